"""What marks the processes of a hand: known on the machine, and telling the hand nothing of it."""

import os
from pathlib import Path

import pytest

from carpal import hand_mark
from hands.builtin.process import ProcessType
from hands.isolation import probe
from tests.hands.place import Place, open_place

_PROBLEM = probe.problem()


@pytest.mark.skipif(bool(_PROBLEM), reason=_PROBLEM or "none")
async def test_the_environment_of_a_hand_names_no_path_of_the_machine(tmp_path: Path) -> None:
    state = tmp_path / "state-of-the-daemon"
    async with open_place(state, process=ProcessType(sandbox="required")) as place:
        hand = await place.hand()
        told = (await place.sh(hand, "env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'")).content
    assert f"{hand_mark.NAME}=" in told
    for path in (tmp_path, Path(__file__).parents[2]):
        assert str(path) not in told


async def test_a_hand_without_a_sandbox_is_marked_by_no_path_either(
    place: Place, hand: str
) -> None:
    told = (await place.sh(hand, f"echo ${hand_mark.NAME}")).content
    assert told.endswith(f".{hand}\n")
    assert "/" not in told


def test_a_mark_is_of_one_hand_of_one_daemon_however_its_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to("one")
    marks = {hand_mark.mark(tmp_path / at) for at in ("one/h", "link/h", "other/h", "one/h2")}
    assert len(marks) == 3
    begins = hand_mark.every(tmp_path / "one")
    assert sum(mark.startswith(begins) for mark in marks) == 2
    assert not any(os.sep in mark for mark in marks)
