"""One stream per thread, and the order between them. The emulated streams run their work as late as possible, at random moments, or
at once; where a wait is missing, a result is wrong. Each case is also run with the waits taken out, which must be noticed."""

import contextlib
import gc
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import transformer_c as tc
from cuda_library import KERNELS
from transformer_c import _core

LENGTH = 1000


@pytest.fixture(params=["late", "random", "at_once"])
def order(request, emulated_library):
    emulated_library.set_streams(request.param, 1)
    yield request.param
    emulated_library.set_streams("late")


@pytest.fixture
def without_waits(emulated_library):
    """Calls without the waits for events: a deliberate bug."""

    def run(case, who):
        emulated_library.set_streams("late")
        tc.cuda.synchronize("cuda:emulated")
        emulated_library.ignore_events(who)
        try:
            return case()
        except RuntimeError as error:  # the access check sees a read of uninitialised memory
            return str(error), None
        finally:
            emulated_library.ignore_events("nobody")
            with contextlib.suppress(RuntimeError):
                tc.cuda.synchronize("cuda:emulated")

    return run


@pytest.fixture(autouse=True)
def fresh(emulated_gpu):
    tc.cuda.synchronize(emulated_gpu)
    tc.cuda.empty_cache(emulated_gpu)


class Worker(threading.Thread):
    """A thread that runs given functions one after the other and stays alive in between."""

    def __enter__(self):
        self.asked, self.answered = threading.Semaphore(0), threading.Semaphore(0)
        self.start()
        return self

    def run(self):
        while True:
            self.asked.acquire()
            if self.work is None:
                return
            try:
                self.result, self.failure = self.work(), None
            except BaseException as error:
                self.result, self.failure = None, error
            self.answered.release()

    def do(self, work):
        self.work = work
        self.asked.release()
        self.answered.acquire()
        if self.failure:
            raise self.failure
        return self.result

    def __exit__(self, *_):
        self.work = None
        self.asked.release()
        self.join()


def value(tensor):
    """The one value that all elements have; None when they differ."""
    array = tensor.cpu().numpy()
    return float(array.flat[0]) if (array == array.flat[0]).all() else None


# ---- the cases: each gives what was read and what should have been ------------------------------------------------------------


def read_what_another_thread_wrote(gpu):
    with Worker() as other:
        x = other.do(lambda: tc.full((LENGTH,), 2.0, device=gpu) * 3)
        return value(x + 1), 7.0


def read_a_view_of_what_another_thread_wrote(gpu):
    with Worker() as other:
        x = other.do(lambda: (tc.full((4, LENGTH), 2.0, device=gpu) * 3)[1:, 5:])
        return value(x.contiguous()), 6.0


def write_what_another_thread_reads(gpu):
    x = tc.full((LENGTH,), 2.0, device=gpu)
    tc.cuda.synchronize(gpu)
    with Worker() as other:
        y = other.do(lambda: x * 3)
        x.fill_(9.0)
        value(x)  # the write is done; the other thread's reading, unless it was waited for, is not
        return other.do(lambda: value(y)), 6.0


def take_a_block_that_another_thread_freed(gpu):
    x = tc.full((LENGTH,), 2.0, device=gpu)
    kept = [x]
    tc.cuda.synchronize(gpu)
    calls = tc.cuda.memory_stats(gpu)["device_calls"]

    def use_and_free():
        y = kept[0] * 3
        kept.clear()
        return y

    del x
    with Worker() as other:
        y = other.do(use_and_free)
        z = tc.full((LENGTH,), 9.0, device=gpu)
        assert tc.cuda.memory_stats(gpu)["device_calls"] == calls + 1, "the block was not taken from the cache"
        value(z)
        return other.do(lambda: value(y)), 6.0


def a_chain_over_three_threads(gpu):
    with Worker() as second, Worker() as third:
        x = tc.full((LENGTH,), 1.0, device=gpu)
        for _ in range(3):
            x = second.do(lambda x=x: x + 1)
            x = third.do(lambda x=x: x * 2)
            x = x + 0.5
        return value(x), 25.5


def backward_of_another_threads_forward(gpu):
    x = tc.full((LENGTH,), 3.0, device=gpu).requires_grad_()
    with Worker() as other:
        y = other.do(lambda: (x * x).sum())
        y.backward()
        return other.do(lambda: value(x.grad * 1)), 6.0


def an_optimizer_in_another_thread(gpu):
    weight = tc.nn.Parameter(tc.full((LENGTH,), 2.0, device=gpu))
    optimizer = tc.optim.SGD([weight], lr=0.5)
    (weight * 3).sum().backward()
    tc.cuda.synchronize(gpu)
    y = weight.detach() * 5
    with Worker() as other:
        other.do(optimizer.step)
        other.do(lambda: value(weight))
        return (value(y), value(weight * 2)), (10.0, 1.0)


def a_clipped_gradient_in_another_thread(gpu):
    weight = tc.nn.Parameter(tc.full((LENGTH,), 2.0, device=gpu))
    weight.grad = tc.full((LENGTH,), 4.0, device=gpu)
    tc.cuda.synchronize(gpu)
    y = weight.grad * 5
    with Worker() as other:
        other.do(lambda: tc.nn.utils.clip_grad_norm_([weight], 2.0, norm_type="inf"))
        clipped = weight.grad * 2
        other.do(lambda: value(weight.grad))
        return (value(y), round(value(clipped), 4)), (20.0, 4.0)


def a_state_of_an_optimizer_in_another_thread(gpu):
    weight = tc.nn.Parameter(tc.full((LENGTH,), 2.0, device=gpu))
    optimizer = tc.optim.SGD([weight], lr=0.5, momentum=0.5)
    weight.grad = tc.full((LENGTH,), 4.0, device=gpu)
    optimizer.step()
    momentum = optimizer.state[weight]["momentum_buffer"]
    tc.cuda.synchronize(gpu)
    y = momentum * 5
    with Worker() as other:
        other.do(optimizer.step)
        stepped = momentum * 2
        other.do(lambda: value(weight))
        return (value(y), value(stepped)), (20.0, 12.0)


def a_kept_half_that_another_thread_steps(gpu):
    layer = tc.nn.Linear(8, 4, bias=False).to(gpu)
    optimizer = tc.optim.SGD(layer.parameters(), lr=0.5)
    ones = tc.ones(1, 8, device=gpu)

    def in_halves():
        with tc.no_grad(), tc.autocast():
            return layer(ones).float()

    tc.nn.init.constant_(layer.weight, 2.0)
    layer.weight.grad = tc.full((4, 8), 2.0, device=gpu)
    with Worker() as other:
        other.do(in_halves)  # here nothing but the copy is read
        tc.cuda.synchronize(gpu)
        y = in_halves()
        other.do(optimizer.step)
        stepped = in_halves()
        other.do(lambda: value(layer.weight))
        return (value(y), value(stepped)), (16.0, 8.0)


def take_the_scratch_of_another_threads_kernel(gpu):
    x = tc.full((LENGTH,), 2.0, device=gpu)
    tc.cuda.synchronize(gpu)
    with Worker() as other:
        before = tc.cuda.memory_stats(gpu)
        places = other.do(x.argsort)
        after = tc.cuda.memory_stats(gpu)
        scratch = after["cached"] - before["cached"]  # the kernel has not run, and the memory is free
        z = tc.full((scratch // 4,), 9.0, device=gpu)
        assert scratch and tc.cuda.memory_stats(gpu)["device_calls"] == after["device_calls"], "the block was not taken from the cache"
        value(z)
        ordered = other.do(lambda: places.cpu().numpy()).tolist() == list(range(LENGTH))
        return (ordered, value(z)), (True, 9.0)


def two_streams_of_a_thread(gpu):
    with tc.cuda.stream(gpu):
        x = tc.full((LENGTH,), 2.0, device=gpu) * 3
        with tc.cuda.stream(gpu):
            y = x + 1
    return value(y * 2), 14.0


CASES = [
    read_what_another_thread_wrote,
    read_a_view_of_what_another_thread_wrote,
    write_what_another_thread_reads,
    take_a_block_that_another_thread_freed,
    a_chain_over_three_threads,
    backward_of_another_threads_forward,
    an_optimizer_in_another_thread,
    a_clipped_gradient_in_another_thread,
    a_state_of_an_optimizer_in_another_thread,
    a_kept_half_that_another_thread_steps,
    take_the_scratch_of_another_threads_kernel,
    two_streams_of_a_thread,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_order_between_threads(emulated_gpu, order, case):
    read, expected = case(emulated_gpu)
    assert read == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_missing_wait_is_noticed(emulated_gpu, without_waits, case):
    # the step of an optimizer waits by the host, for a buffer: this alone keeps the order
    who = "streams and host" if case is an_optimizer_in_another_thread else "streams"
    read, expected = without_waits(lambda: case(emulated_gpu), who)
    assert read != expected


@pytest.mark.parametrize("seed", range(6))
def test_threads_that_pass_tensors_around(emulated_gpu, emulated_library, seed):
    """Four threads take tensors from a common heap, work on them, and put new ones back; each tensor knows what it should be."""
    emulated_library.set_streams("random", seed)
    heap = [(tc.full((LENGTH + 7 * i,), float(i), device=emulated_gpu), float(i)) for i in range(6)]
    lock, failures = threading.Lock(), []

    def work(number):
        rng = np.random.default_rng([seed, number])
        try:
            for _ in range(25):
                with lock:
                    place = int(rng.integers(len(heap)))
                    x, expected = heap[place]
                y = x * 0.5 + 1
                if rng.random() < 0.2:
                    assert value(x) == expected
                with lock:
                    heap[place] = y, float(np.float32(expected) * np.float32(0.5) + 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emulated_library.set_streams("late")
    assert not failures
    assert [value(x) for x, _ in heap] == [expected for _, expected in heap]


def test_readers_do_not_wait_for_each_other(emulated_gpu, emulated_library):
    """What two threads only read, such as weights, makes neither wait: work of one stays undone while the other's is done."""
    weights = tc.full((LENGTH,), 2.0, device=emulated_gpu)
    gc.collect()  # memory of other tests: giving it back waits for all work
    tc.cuda.synchronize(emulated_gpu)
    tc.cuda.empty_cache(emulated_gpu)  # a block that another test left would be waited for
    with Worker() as other:
        mine = weights * 3
        theirs = other.do(lambda: weights * 5)
        before = emulated_library.library.emulator_work_left()
        assert other.do(lambda: value(theirs)) == 10
        assert 0 < emulated_library.library.emulator_work_left() < before
        assert value(mine) == 6


def test_memory_that_needs_no_wait_is_taken_first(emulated_gpu):
    """Of two free blocks, though the other was freed later."""
    idle, busy = tc.full((LENGTH,), 1.0, device=emulated_gpu), [tc.full((LENGTH,), 2.0, device=emulated_gpu)]
    address = idle.data_ptr()
    tc.cuda.synchronize(emulated_gpu)
    with Worker() as other:
        y = other.do(lambda: busy[0] * 3)
        del idle
        busy.clear()
        assert tc.full((LENGTH,), 9.0, device=emulated_gpu).data_ptr() == address
        assert other.do(lambda: value(y)) == 6


def test_a_stream_is_used_again_by_the_next_thread(emulated_gpu):
    """More threads than there are streams, one after the other and at once."""

    def address():
        x = tc.full((3,), 1.0, device=emulated_gpu) + 1
        with tc.cuda.stream(emulated_gpu) as stream:
            assert value(x + 1) == 3
        return stream

    addresses = set()
    for _ in range(100):
        with Worker() as other:
            addresses.add(other.do(address))
    assert len(addresses) < 50  # a thread returns its stream shortly after it was joined
    workers = [Worker() for _ in range(100)]
    for worker in workers:
        worker.__enter__()
    xs = [worker.do(lambda i=i: tc.full((LENGTH,), float(i), device=emulated_gpu) * 2) for i, worker in enumerate(workers)]
    assert [worker.do(lambda i=i: value(xs[-1 - i] + 1)) for i, worker in enumerate(workers)] == [2 * (99 - i) + 1 for i in range(100)]
    for worker in workers:
        worker.__exit__()


def test_a_stream_that_is_none(emulated_gpu):
    with pytest.raises(ValueError, match="is not a stream of transformer_c"):
        _core.cuda_set_stream(12345)


# ---- copies from the host ---------------------------------------------------------------------------------------------------------


def fill_many_times(gpu, elements=LENGTH):
    """More copies than there are page-locked buffers, each from memory that changes at once."""
    host, tensors = np.empty(elements, np.float32), []
    for i in range(20):
        host[:] = i
        tensors.append(tc.tensor(host, device=gpu))
        host[:] = -1
    return [value(x) for x in tensors], [float(i) for i in range(20)]


@pytest.mark.parametrize("elements", [1, LENGTH, 2**18, 2**18 + 1])  # 2**18 fill a buffer
def test_what_was_copied_from_may_change(emulated_gpu, order, elements):
    read, expected = fill_many_times(emulated_gpu, elements)
    assert read == expected


def test_a_buffer_taken_too_early_is_noticed(emulated_gpu, without_waits):
    read, expected = without_waits(lambda: fill_many_times(emulated_gpu), "streams and host")
    assert read != expected


NOT_WAITED_FOR = """
import sys
sys.path.insert(0, sys.argv[1])
import cuda_library
import numpy as np
emulated = cuda_library.EmulatedLibrary(sys.argv[2])
import transformer_c as tc
emulated.set_streams("late")
for elements in (1000, 2**18 + 1, 5 * 2**18):
    tensor = tc.tensor(np.ones(elements, np.float32), device="cuda:emulated")
    assert emulated.library.emulator_work_left() >= -(-elements // 2**18), elements
    assert float(tensor.sum()) == elements
"""


def test_a_copy_from_the_host_is_not_waited_for(emulated_library):
    """In a process whose page-locked buffers no other test has used."""
    library = emulated_library.library._name
    subprocess.run(
        [sys.executable, "-c", NOT_WAITED_FOR, os.path.dirname(__file__), library],
        env={**os.environ, "TRANSFORMER_C_CUDA_LIBRARY": library}, check=True,
    )  # fmt: skip


@pytest.mark.parametrize("elements", [2**18 - 1, 2**18, 2**18 + 1, 3 * 2**18 + 5])
def test_large_copies_keep_every_element(emulated_gpu, order, elements):
    host = np.random.default_rng(0).standard_normal(elements).astype(np.float32)
    x = tc.tensor(host, device=emulated_gpu)
    np.testing.assert_array_equal(x.cpu().numpy(), host)
    np.testing.assert_array_equal((x * 2).cpu().numpy(), host * 2)


# ---- what kernels write -----------------------------------------------------------------------------------------------------------


def test_the_table_of_what_kernels_write_agrees_with_their_headers():
    """Whatever a kernel writes is a pointer to non-const, and is in the table; operands that are void * and only read are known here."""
    only_read = {"attention_forward": "problem", "attention_backward": "problem values dvalues", "attention_dbias": "backward"}
    only_read |= {"attention_sum_splits": "problem values dvalues dq dk_partial dv_partial"}
    only_read |= {"lines_gather": "whole outside", "lines_put": "taken outside", "lines_combine": "taken outside"}  # outside: on CPUs alone
    only_read |= {"index_add": "selection", "index_put": "selection", "integer_product": ""}
    only_read |= {"encoder_block_forward": "qkv out up down"}
    only_read |= {"rms_norm_backward": "dbeta_partial ddropped"}  # it has neither: the struct is layer norm's
    text = (KERNELS / "kernels.def").read_text()
    rows = re.findall(r"^TC_KERNEL_ENTRY\((\w+), \w+, (\w+), ([^)]*)\)", text, re.M)
    rows = [(name, struct, written.replace("chunks", "")) for name, struct, written in rows]
    headers = "".join(re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S) for path in sorted(KERNELS.glob("*.h")))
    for name, struct, written in rows:
        (body,) = re.findall(rf"typedef struct {struct} {{([^}}]*)}} {struct};", headers)
        pointers = set()
        for declaration in body.split(";"):
            words = declaration.split()
            if not words or words[0] == "const":
                continue
            if "*" in declaration or words[0] in ("tc_attention_operand", "tc_attention_plane", "tc_attention_problem", "tc_operand"):
                pointers |= {w for w in re.findall(r"(\w+)(?:\[\w+\])?\s*(?:,|$)", declaration.split(maxsplit=1)[1].replace("*", ""))}
            if words[0] in ("tc_attention_backward_args", "tc_gemm_args", "tc_index_args", "tc_index_points_args"):
                pointers |= {word.rstrip(",") for word in words[1:]}
        told = {re.split(r"[.\[]", w)[0] for w in written.replace(",", " ").split()}
        read = set(only_read.get(name, "").split()) | ({"in"} if struct == "tc_elementwise_args" else set())
        assert told | read == pointers and not told & read, name
