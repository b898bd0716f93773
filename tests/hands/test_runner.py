"""What the supervisor starts below it, without a supervisor."""

import time
from pathlib import Path

import pytest

from hands.inside import runner
from hands.inside.call import Call, Place
from hands.inside.shell import Shell
from tests.pace import SCALE


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A hand's."""
    for name in ("workspace", "hand", "spools"):
        (tmp_path / name).mkdir()
    shell = Shell(tmp_path / "workspace", tmp_path / "hand", {"PATH": "/usr/bin:/bin"})
    return Place(tmp_path / "workspace", shell, tmp_path / "spools", 20.0 * SCALE)


def turn(place: Place, call: Call) -> None:
    """Once around, as the supervisor goes."""
    for key, _ in place.loop.select(0.01):
        key.data()
    place.children.reap()
    call.tick(time.monotonic())


def test_a_call_that_was_killed_and_does_not_end_is_interrupted_and_nothing_waits_for_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network disk that is gone: what it does there may still happen."""
    monkeypatch.setattr(runner, "END_LIMIT", 0.3 * SCALE)
    call = Call(place, "c", "bash", {"command": "sleep 60"}, 0.3 * SCALE)
    with monkeypatch.context() as held:
        held.setattr(runner.Children, "ended", lambda *_: None)
        call.begin()
        turns = 0
        while call.result is None:
            turn(place, call)
            turns += 1
    assert turns > 20, "it stood still"
    assert call.result["outcome"] == "interrupted"
    assert "does not end; this call may have partly happened" in call.result["content"]
    assert call.lingers
    turn(place, call)
    assert not call.lingers, "it ended after all"


def test_a_call_that_was_killed_is_over_as_soon_as_it_ended(place: Place) -> None:
    call = Call(place, "c", "bash", {"command": "echo up; sleep 60"}, 0.3 * SCALE)
    call.begin()
    while call.result is None:
        turn(place, call)
    assert call.result["outcome"] == "timed_out"
    assert call.result["elapsed"] < (0.3 + runner.END_LIMIT) * SCALE
    assert call.result["content"].startswith("up\n")
    assert not call.lingers
