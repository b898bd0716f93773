"""Units that a type is asked for in the background, and a question that breaks."""

import asyncio
from collections.abc import Sequence

import pytest

from hands.builtin import kept_units
from hands.builtin.kept_units import KeptUnits
from hands.contract import Unit, UnitsUnknown
from tests.hands.place import PATIENCE, until


async def test_what_nobody_expected_of_a_question_is_said_and_keeps_nothing_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_units, "AGAIN", 0.0)
    answers: list[Sequence[Unit]] = [[Unit("left")]]

    async def ask() -> Sequence[Unit]:
        if answers:
            return answers.pop()
        raise OSError(24, "Too many open files")

    kept = KeptUnits(ask)
    async with asyncio.timeout(PATIENCE):
        await kept.open()
    await until(lambda: "Too many open files" in kept.problem, "nothing is said of it")
    assert "started anew" in kept.problem
    assert [each.unit_id for each in kept.named()] == ["left"]
    await kept.close()


async def test_a_first_question_that_breaks_leaves_the_units_unknown_and_says_why() -> None:
    async def ask() -> Sequence[Unit]:
        raise OSError(24, "Too many open files")

    kept = KeptUnits(ask)
    async with asyncio.timeout(PATIENCE):
        await kept.open()
    await until(lambda: "asked for still" not in kept.problem, "nothing is said of it")
    with pytest.raises(UnitsUnknown, match="Too many open files"):
        kept.named()
    await kept.close()
