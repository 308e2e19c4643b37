"""Interrupts at every place of a call, one after the other, as a signal handler would raise them."""

import dis
import sys


class Interrupt(BaseException):
    """What a handler raises."""


def takes_signals(frame, event):
    """Whether Python runs handlers of signals here: at calls and at jumps back."""
    if event == "call":
        return True
    return event == "opcode" and dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE"))


def is_instruction(frame, event):
    """Whether an instruction begins here."""
    return event == "opcode"


def interrupted(nth, call, is_place, follows=lambda frame: True):
    """Whether an Interrupt ends `call` when it is raised at the nth place of the frames that `follows` is true for."""
    left = nth

    def trace(frame, event, argument):
        nonlocal left
        if not follows(frame):
            return None
        frame.f_trace_opcodes = True
        if is_place(frame, event):
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.settrace(None)
    return False
