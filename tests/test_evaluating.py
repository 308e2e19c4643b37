"""Entries that a block replaces: left in any order, as threads do, and what was there is there again after the last one."""

import ctypes
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c._evaluating import evaluating


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("before", [{"k": "first"}, {}])
def test_blocks_are_left_in_any_order(order, before):
    entries = dict(before)
    blocks = [_core.replaced([(entries, "k", i)]) for i in range(3)]
    for block in blocks:
        block.__enter__()
    inside = {0, 1, 2}
    for i in order:
        blocks[i].__exit__()
        inside.remove(i)
        assert entries == ({"k": max(inside)} if inside else before)


def test_the_same_entry_twice_in_a_block():
    entries = {"k": "first"}
    outer, inner = _core.replaced([(entries, "k", 1), (entries, "k", 2)]), _core.replaced([(entries, "k", 3), (entries, "k", 4)])
    outer.__enter__()
    inner.__enter__()
    outer.__exit__()
    assert entries == {"k": 4}
    inner.__exit__()
    assert entries == {"k": "first"}


def test_equal_keys_are_the_same_entry():
    for first, second in ((int("1000000000"), int("1000000000")), ("".join(["a", "b"]), "".join(["a", "b"]))):
        entries: dict = {}
        outer, inner = _core.replaced([(entries, first, 1)]), _core.replaced([(entries, second, 2)])
        outer.__enter__()
        inner.__enter__()
        outer.__exit__()
        inner.__exit__()
        assert entries == {}


class Finally:
    """Calls a function when it is dropped."""

    def __init__(self, function):
        self.function = function

    def __del__(self):
        self.function()


@pytest.mark.parametrize("is_put_back", [False, True])
def test_an_earlier_block_is_left_while_a_later_one_is_being_left(is_put_back):
    """Before, and after, the later one has put back the entry of both."""
    entries, other = {"k": "first"}, {"z": 0}
    places = [(entries, "k", 2), (other, "z", 1)]
    outer, inner = _core.replaced([(entries, "k", 1)]), _core.replaced(places[::-1] if is_put_back else places)
    outer.__enter__()
    inner.__enter__()
    other["z"] = Finally(outer.__exit__)
    inner.__exit__()
    assert entries == {"k": "first"} and other == {"z": 0}


def test_a_block_is_not_entered_while_it_is_left():
    entries, refused = {"k": "first"}, []

    def enter():
        with pytest.raises(RuntimeError, match="it is on already"):
            block.__enter__()
        refused.append(True)

    outer, block = _core.replaced([({}, "k", 1)]), _core.replaced([(entries, "k", 2)])
    outer.__enter__()
    block.__enter__()
    entries["k"] = Finally(enter)
    block.__exit__()
    outer.__exit__()
    assert refused and entries == {"k": "first"}


def test_a_block_that_is_entered_while_another_begins_comes_before_it():
    """Up to Python 3.11 making a list may collect garbage, and so run finalizers and other threads."""
    entries = {"k": "first"}
    block, other = (_core.replaced([(entries, "k", name)]) for name in ("block", "other"))
    gc.collect()
    was = gc.get_threshold()
    gc.disable()
    try:
        garbage = Finally(other.__enter__)
        garbage.itself = garbage
        kept = [[] for _ in range(500)]  # no list is free for use
        del garbage
        enter = block.__enter__
        gc.set_threshold(1)
        gc.enable()
        enter()
        gc.disable()
        gc.set_threshold(*was)
        gc.collect()  # where entering has not
        del kept
    finally:
        gc.set_threshold(*was)
        gc.enable()
    now = entries["k"]
    (other if now == "block" else block).__exit__()
    assert entries == {"k": now}
    (block if now == "block" else other).__exit__()
    assert entries == {"k": "first"}


def test_a_block_that_cannot_be_entered_leaves_no_trace():
    entries = {"k": "first"}
    outer, bad = _core.replaced([(entries, "k", 1)]), _core.replaced([(entries, "k", 2), (entries, [], 3)])
    outer.__enter__()
    with pytest.raises(TypeError, match="unhashable"):
        bad.__enter__()
    assert entries == {"k": 1}
    with pytest.raises(RuntimeError, match="without having been entered"):
        bad.__exit__()
    outer.__exit__()
    assert entries == {"k": "first"}


def test_the_end_comes_once_after_all_is_put_back():
    entries, seen = {"k": "first"}, []
    outer, inner = (_core.replaced([(entries, "k", i)], f"result {i}", lambda x: seen.append((x, dict(entries)))) for i in range(2))
    assert outer.__enter__() == "result 0" and inner.__enter__() == "result 1"
    outer.__exit__()
    inner.__exit__()
    assert seen == [("result 0", {"k": 1}), ("result 1", {"k": "first"})]


def test_a_block_that_is_collected_is_not_asked():
    """A capsule's destructor runs when the garbage is cleared, after all finalizers of Python."""
    entries, garbage = {"k": "first"}, {"x": 0}
    outer, calls = _core.replaced([(entries, "k", 1)]), []
    outer.__enter__()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def leave(capsule):
        calls.append(outer.__exit__())

    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"capsule"
    block = _core.replaced([(garbage, "x", make(1, name, ctypes.cast(leave, ctypes.c_void_p)))])
    block.__enter__()
    garbage["x"], garbage["self"] = None, block
    del block, garbage
    gc.collect()
    assert len(calls) == 1 and entries == {"k": "first"}


def test_other_entries_and_dicts_are_left_alone():
    one, other = {"k": 0, "j": 0}, {"k": 0}
    blocks = [_core.replaced([(one, "k", 1)]), _core.replaced([(one, "j", 2)]), _core.replaced([(other, "k", 3)])]
    for block in blocks:
        block.__enter__()
    blocks[0].__exit__()
    assert one == {"k": 0, "j": 2} and other == {"k": 3}
    blocks[1].__exit__()
    blocks[2].__exit__()
    assert one == {"k": 0, "j": 0} and other == {"k": 0}


def test_a_block_that_is_dropped_is_not_asked():
    entries = {"k": "first"}
    outer, dropped = _core.replaced([(entries, "k", 1)]), _core.replaced([(entries, "k", 2)])
    outer.__enter__()
    dropped.__enter__()
    del dropped
    with _core.replaced([(entries, "k", 3)]):
        outer.__exit__()
        assert entries == {"k": 3}
    assert entries == {"k": "first"}


def test_threads_evaluate_one_model_that_trains():
    """The first to leave does not switch dropout on for the others."""
    model, x = tc.nn.Sequential(tc.nn.Dropout(0.5), tc.nn.Dropout(0.5)), np.ones((4, 4), np.float32)
    start = threading.Barrier(4)

    def work(seed):
        start.wait()
        pause = np.random.default_rng(seed)
        for _ in range(60):
            with evaluating(model):
                threading.Event().wait(pause.random() / 1000)
                assert (model(x) == x).all()

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(work, range(4)))) == 4
    assert all(part.training for part in model.modules())
