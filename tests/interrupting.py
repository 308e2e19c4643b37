"""Interrupts at every place of a call, one after the other: by signals, where Python runs their handlers, or before any instruction."""

import ctypes
import signal
import sys

NUMBER = signal.SIGUSR2


class Interrupt(BaseException):
    """What a handler raises."""


class _Trip:
    """``trip - number`` makes a signal wait for Python, in C: its handler runs at the next place where Python looks for signals, which is no
    subtraction. (After a call of this in a function that traces, it would run in that function.)"""

    __sub__ = ctypes.pythonapi.PyErr_SetInterruptEx


_TRIP = _Trip()


def by_signal(frame):
    """Has a signal wait as the instruction begins: Python runs handlers after calls, at jumps back and as functions begin."""
    sys.settrace(None)  # a function that traces begins, too
    _TRIP - NUMBER


def before_instruction(frame):
    """Raises before the instruction, where no signal would."""
    sys.settrace(None)
    raise Interrupt


def interrupted(nth, call, interrupt=by_signal, follows=lambda frame: True, begins=lambda: True):
    """Whether an Interrupt ends `call` when it comes at the nth instruction of the frames that `follows` is true for, once `begins()` is."""
    left, is_inside = nth, True

    def trace(frame, event, argument):
        nonlocal left
        if not follows(frame):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and begins():
            left -= 1
            if left < 0:
                interrupt(frame)
        return trace

    def handle(number, frame):
        if is_inside:
            raise Interrupt

    before = signal.signal(NUMBER, handle)
    sys.settrace(trace)
    try:
        call()
        is_inside = False  # a signal that came last is handled after the call, and ends nothing
    except Interrupt:
        return True
    finally:
        is_inside = False
        sys.settrace(None)
        signal.signal(NUMBER, before)
    return False
