"""A harness that goes round in a loop is told so, and how long loops are its own business."""

import pytest

from brain.effects import CallModel, Effect, Emit, Execute, Failed, ReadEvents, Replied, Sleep
from brain.restraint import EFFECTS_MAX, EFFECTS_RATE, NOTES_MAX, Restraint

ASK = CallModel({"model": "m"}, "given/1", 0)
FAILED = Failed("unknown_error", "no", retryable=False)


def first_beyond(effect: Effect, result: object, most: int, between: float = 0.0) -> int:
    """How many times it was performed when it was one too many; 0 if it never was."""
    restraint = Restraint(0.0)
    for number in range(1, most + 1):
        if restraint.beyond(effect, result, ran=False, now=number * between):
            return number
    return 0


@pytest.mark.parametrize("effect", [Sleep(0), ReadEvents(), Execute(())])
def test_effects_that_take_no_time_end_at_a_number(effect: Effect) -> None:
    assert first_beyond(effect, None, 2 * EFFECTS_MAX) == EFFECTS_MAX + 1


@pytest.mark.parametrize(("effect", "result"), [(Emit("x.note"), 3), (ASK, FAILED)])
def test_events_end_at_a_number_however_slowly_they_come(effect: Effect, result: object) -> None:
    assert first_beyond(effect, result, 2 * NOTES_MAX) == NOTES_MAX + 1
    assert first_beyond(effect, result, 2 * NOTES_MAX, between=60.0) == NOTES_MAX + 1


def test_who_waits_between_may_go_on_for_ever() -> None:
    assert first_beyond(Sleep(1), None, 3 * EFFECTS_MAX, between=1 / EFFECTS_RATE) == 0


def test_a_reply_and_results_of_calls_begin_it_anew() -> None:
    for last, result, ran in ((ASK, Replied("end_turn"), False), (Execute(("c",)), None, True)):
        restraint = Restraint(0.0)
        for _ in range(5):
            for _ in range(NOTES_MAX):
                assert not restraint.beyond(Emit("x.note"), 3, ran=False, now=0.0)
            assert not restraint.beyond(last, result, ran=ran, now=0.0)
        assert restraint.beyond(Emit("x.note"), 3, ran=False, now=0.0) == ""


def test_what_is_said_names_the_number_and_the_cause() -> None:
    restraint = Restraint(0.0)
    said = [restraint.beyond(Sleep(0), None, ran=False, now=0.0) for _ in range(EFFECTS_MAX + 1)]
    assert said[-1].startswith("it asked for more than 10,000 effects, and 10 more a second")
