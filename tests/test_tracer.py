"""The tracer of the core: a function that is shown the ops of a thread."""

import sys
import threading

import pytest
import transformer_c as tc
from transformer_c import _core
from transformer_c.export.tracing import Tracer, traced


def test_a_tracer_sees_the_ops_of_its_thread_only():
    tracer, x = Tracer({}), tc.ones(2, 3)
    with traced(tracer):
        assert _core.is_traced()
        other = threading.Thread(target=lambda: (x.exp(), seen.append(_core.is_traced())))
        seen = []
        other.start()
        other.join()
        y = (x + 1).T[0] @ x
        y[0] = 2.0
    assert [c.op for c in tracer.trace.calls] == ["add", "T", "getitem", "matmul", "setitem"] and seen == [False]
    x.exp()
    assert len(tracer.trace.calls) == 5


def test_an_error_of_the_tracer_is_the_calls_error():
    def refuse(*call):
        raise ZeroDivisionError

    x = tc.ones(2)
    before = _core.set_tracer(refuse)
    try:
        for call in (
            lambda: x + 1,
            lambda: -x,
            lambda: x @ x,
            lambda: x[0],
            lambda: x.T,
            lambda: x.exp(),
            lambda: x.data,
            lambda: next(iter(x)),
        ):
            with pytest.raises(ZeroDivisionError):
                call()
        with pytest.raises(ZeroDivisionError):
            x[0] = 1.0
    finally:
        assert _core.set_tracer(before) is refuse


def test_what_is_shown_is_released():
    def tracer(*call):
        pass

    x = tc.ones(3)
    counts = sys.getrefcount(tracer), sys.getrefcount(x)
    before = _core.set_tracer(tracer)
    for _ in range(100):
        x + 1, -x, x @ x, x[0], x.T, x.exp(), x.data
        x[0] = 1.0
        x += 1
    assert _core.set_tracer(before) is tracer
    del before
    assert (sys.getrefcount(tracer), sys.getrefcount(x)) == counts
