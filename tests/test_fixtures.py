"""The fixtures do what they say and restore everything: a test that changes the process must not affect the next test."""

from transformer_c import _core

BEFORE = _core.cpu_isa(), _core.get_num_threads()


def test_isa_is_in_use(isa):
    assert _core.cpu_isa() == isa


def test_threads_are_set(threads):
    assert _core.get_num_threads() == threads


def test_both_are_restored_afterwards():
    assert (_core.cpu_isa(), _core.get_num_threads()) == BEFORE


def test_every_instruction_set_gets_its_turn(request):
    ran = {item.callspec.params["isa"] for item in request.session.items if item.name.startswith("test_isa_is_in_use")}
    if ran and not request.config.getoption("--by-turns"):  # not when a single test was asked for
        assert ran == {name for name, usable in _core.cpu_isas().items() if usable} and "baseline" in ran
