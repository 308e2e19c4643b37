"""Streams in capture, and graphs, through the table of the CUDA library. The emulation has CUDA's rules: each is broken once, and that is noticed."""

import ctypes

import numpy as np
import pytest
from cuda_library import KERNEL_IDS, LAUNCHER, fill
from device_cases import in_a_thread

ILLEGAL_STATE, UNSUPPORTED, INVALIDATED, MERGE, UNMATCHED = 401, 900, 901, 902, 903
UNJOINED, ISOLATION, IMPLICIT, OF_CAPTURE, WRONG_THREAD = 904, 905, 906, 907, 908
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
N = 100


class Device:
    """What the cases use of the table. Functions that may be refused give the error number."""

    def __init__(self, emulated_library):
        self.library, self.api = emulated_library, emulated_library.api

    def made(self, make, *args):
        handle = ctypes.c_void_p()
        self.library.check(make(ctypes.byref(handle), *args))
        return handle.value

    def stream(self, apart=True):
        return self.made(self.api.create_stream, apart)

    def event_of(self, stream):
        event = self.made(self.api.create_event)
        self.library.check(self.api.record_event(event, stream))
        return event

    def follow(self, stream, other):
        """Work of `stream` comes after that of `other`."""
        return self.api.wait_event(stream, self.event_of(other))

    def ones(self):
        return self.library.array(np.ones(N, np.float32))

    def double(self, array, stream):
        """array += array."""
        run = self.api.kernels(0).contents.run[KERNEL_IDS["add_in_place"]]
        args = fill("tc_add_in_place_args", to=array, numel=N, **{"from": array})
        return LAUNCHER(run)(ctypes.byref(args), 1, None, stream)

    def capture(self, stream):
        self.library.check(self.api.begin_capture(stream))

    def end(self, stream):
        """(error, graph)."""
        captured, graph = ctypes.c_void_p(), ctypes.c_void_p()
        if error := self.api.end_capture(ctypes.byref(captured), stream):
            return error, graph.value
        error = self.api.instantiate(ctypes.byref(graph), captured)
        self.library.check(self.api.forget_captured(captured))
        return error, graph.value

    def allocate(self):
        pointer = ctypes.c_void_p()
        return self.api.allocate(ctypes.byref(pointer), 512) or self.api.release(pointer)


@pytest.fixture
def device(emulated_library):
    yield Device(emulated_library)
    emulated_library.library.emulator_set_capture_mode(RELAXED)
    emulated_library.set_streams("late")
    emulated_library.library.emulator_clear_report()


@pytest.fixture
def stream(device):
    return device.stream()


# ---- graphs ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["late", "random", "at_once"])
def test_a_graph_does_its_work_when_it_is_launched(device, stream, emulated_library, order):
    emulated_library.set_streams(order, 1)
    x = device.ones()
    device.capture(stream)
    assert [device.double(x, stream) for _ in range(3)] == [0, 0, 0]
    error, graph = device.end(stream)
    assert error == 0
    assert (x.numpy() == 1).all()  # nothing has run
    for launch in range(1, 4):
        assert device.api.launch_graph(graph, stream) == 0
        assert device.api.synchronize(stream) == 0
        assert (x.numpy() == 8**launch).all()
    assert device.api.launch_graph(graph, stream) == device.api.destroy_graph(graph) == 0
    assert device.api.synchronize(stream) == 0
    assert (x.numpy() == 8**4).all()  # it was on its way


def test_a_graph_comes_after_what_is_on_its_stream(device, stream):
    x, other = device.ones(), device.stream()
    device.capture(stream)
    device.double(x, stream)
    _, graph = device.end(stream)
    device.double(x, other)
    assert device.follow(stream, other) == device.api.launch_graph(graph, stream) == device.follow(other, stream) == 0
    device.double(x, other)
    assert device.api.synchronize(other) == 0
    assert (x.numpy() == 8).all()
    device.api.destroy_graph(graph)


def test_a_graph_counts_and_launches_no_kernel(device, stream, emulated_library):
    library, x = emulated_library.library, device.ones()
    before = library.emulator_graph_launches(), library.emulator_graphs()
    device.capture(stream)
    device.double(x, stream)
    _, graph = device.end(stream)
    emulated_library.launches()
    device.api.launch_graph(graph, stream)
    device.api.synchronize(stream)
    assert emulated_library.launches() == []
    assert (library.emulator_graph_launches(), library.emulator_graphs()) == (before[0] + 1, before[1] + 1)
    device.api.destroy_graph(graph)
    assert library.emulator_graphs() == before[1]


def test_another_stream_joins_and_is_joined(device, stream):
    x, y, other = device.ones(), device.ones(), device.stream()
    device.capture(stream)
    device.double(x, stream)
    assert device.follow(other, stream) == 0
    device.double(y, other)  # in the graph
    assert device.follow(stream, other) == 0
    error, graph = device.end(stream)
    assert error == 0 and (y.numpy() == 1).all()
    device.api.launch_graph(graph, stream)
    device.api.synchronize(stream)
    assert (x.numpy() == 2).all() and (y.numpy() == 2).all()
    device.double(y, other)  # the other stream is as before
    device.api.synchronize(other)
    assert (y.numpy() == 4).all()
    device.api.destroy_graph(graph)


def test_the_default_stream_does_not_wait_for_a_stream_apart(device):
    x, y = device.ones(), device.ones()
    apart, blocking = device.stream(), device.stream(apart=False)
    device.double(x, apart)
    device.double(y, blocking)
    z = device.ones()
    assert device.double(z, None) == 0
    device.library.check(device.api.synchronize(None))
    assert device.library.library.emulator_work_left() == 1
    assert device.api.synchronize(apart) == 0
    assert (x.numpy() == 2).all() and (y.numpy() == 2).all() and (z.numpy() == 2).all()


# ---- what CUDA refuses -------------------------------------------------------------------------------------------------------------------


def unjoined(device, stream):
    other = device.stream()
    device.follow(other, stream)
    device.double(device.ones(), other)


def joined_too_early(device, stream):
    other = device.stream()
    device.follow(other, stream)
    device.follow(stream, other)
    device.double(device.ones(), other)


def pageable_copy(device, stream):
    array = device.ones()
    host = np.empty(N, np.float32)
    return device.api.copy_to_host(host.ctypes.data, array.pointer, host.nbytes, stream)


def wait_of_another_stream_after_the_end(device, stream):
    event, other = device.event_of(stream), device.stream()
    _, graph = device.end(stream)
    device.api.destroy_graph(graph)
    error = device.api.wait_event(other, event)
    device.capture(stream)
    return error


CASES = {  # what is done in a capture: its error, and that of the capture's end
    "synchronize the stream": (lambda d, s: d.api.synchronize(s), UNSUPPORTED, INVALIDATED),
    "synchronize the device": (lambda d, s: d.api.synchronize_device(), UNSUPPORTED, INVALIDATED),
    "query an event of it": (lambda d, s: d.api.query_event(d.event_of(s)), OF_CAPTURE, INVALIDATED),
    "synchronize an event of it": (lambda d, s: d.api.synchronize_event(d.event_of(s)), OF_CAPTURE, INVALIDATED),
    "pageable copy": (pageable_copy, UNSUPPORTED, INVALIDATED),
    "wait for work outside": (lambda d, s: d.follow(s, d.stream()), ISOLATION, INVALIDATED),
    "a second capture": (lambda d, s: d.api.begin_capture(s), ILLEGAL_STATE, 0),
    "unjoined": (unjoined, None, UNJOINED),
    "joined too early": (joined_too_early, None, UNJOINED),
    "end on another stream": (lambda d, s: d.follow(other := d.stream(), s) or d.end(other)[0], UNMATCHED, UNJOINED),
    "after the end": (wait_of_another_stream_after_the_end, OF_CAPTURE, 0),
    "nothing": (lambda d, s: None, None, 0),
    "another stream": (lambda d, s: d.api.synchronize(d.stream()), 0, 0),
    "the default stream": (lambda d, s: d.double(d.ones(), None), 0, 0),
    "allocate": (lambda d, s: d.allocate(), 0, 0),
    "query another event": (lambda d, s: d.api.query_event(d.event_of(d.stream())), 0, 0),
}


@pytest.mark.parametrize("case", CASES)
def test_what_may_be_done_in_a_capture(device, stream, case):
    act, error, error_of_end = CASES[case]
    device.capture(stream)
    device.double(device.ones(), stream)
    assert act(device, stream) == error
    if error_of_end == INVALIDATED:
        assert device.double(device.ones(), stream) == INVALIDATED
    ended, graph = device.end(stream)
    assert ended == error_of_end and (graph is None) == bool(ended)
    if graph:
        device.api.destroy_graph(graph)
    device.capture(stream)  # the stream is as before
    error, graph = device.end(stream)
    assert error == 0
    device.api.destroy_graph(graph)


def test_the_default_stream_cannot_be_captured(device):
    assert device.api.begin_capture(None) == UNSUPPORTED
    assert device.end(None) == (ILLEGAL_STATE, None)


def test_a_stream_that_is_not_in_a_capture_ends_none(device, stream):
    assert device.end(stream) == (ILLEGAL_STATE, None)


def test_work_of_two_captures_stays_apart(device, stream):
    other = device.stream()
    device.capture(stream)
    device.capture(other)
    assert device.follow(other, stream) == MERGE
    assert [device.end(s)[0] for s in (stream, other)] == [INVALIDATED, INVALIDATED]


def test_the_default_stream_ends_the_capture_of_a_blocking_one(device):
    stream, array = device.stream(apart=False), device.ones()
    device.capture(stream)
    assert device.double(array, None) == IMPLICIT
    assert device.end(stream) == (INVALIDATED, None)


@pytest.mark.parametrize(
    "mode, mine, others, ended_elsewhere",
    [(GLOBAL, UNSUPPORTED, UNSUPPORTED, WRONG_THREAD), (THREAD_LOCAL, UNSUPPORTED, 0, WRONG_THREAD), (RELAXED, 0, 0, 0)],
)
def test_the_modes(device, stream, mode, mine, others, ended_elsewhere):
    """The library captures in the relaxed one."""
    array = device.ones()
    device.library.library.emulator_set_capture_mode(mode)
    for act, error in [(device.allocate, mine), (lambda: in_a_thread(device.allocate), others)]:
        device.capture(stream)
        device.double(array, stream)
        assert act() == error
        ended, graph = device.end(stream)
        assert ended == (INVALIDATED if error else 0)
        if graph:
            device.api.destroy_graph(graph)
    device.capture(stream)
    error, graph = in_a_thread(lambda: device.end(stream))
    assert error == ended_elsewhere
    if error:
        error, graph = device.end(stream)
        assert error == 0
    device.api.destroy_graph(graph)


def test_a_graph_that_was_not_made_is_not_launched(emulated_library):
    device = Device(emulated_library)
    stream = device.stream()
    device.capture(stream)
    emulated_library.library.emulator_fail_instantiations(1)
    assert device.end(stream) == (2, None)
    assert device.api.launch_graph(None, stream) == 1
