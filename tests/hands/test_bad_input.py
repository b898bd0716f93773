"""Bad input of every kind is told by its field, with what would be right, and breaks no hand."""

from pathlib import Path

import pytest

from hands.builtin.process import ProcessType
from hands.isolation import probe
from tests.hands.bad_input import each_is_told_and_the_hand_stays_usable
from tests.hands.place import open_place

_PROBLEM = probe.problem()


@pytest.mark.skipif(bool(_PROBLEM), reason=_PROBLEM)
async def test_whatever_a_process_hand_is_given_wrongly_is_told_by_its_field(
    tmp_path: Path,
) -> None:
    kind = ProcessType(sandbox="required")
    async with open_place(tmp_path / "state", process=kind) as place:
        await each_is_told_and_the_hand_stays_usable(place, "process", {})
