"""S05: 200,000 tokens of conversation, 100 calls in one turn: it ends, the log grows linearly."""

import json
from typing import Any

import pytest

from brain.context.tokens import estimate
from brain.effects import CallModel, Failed, Replied
from tests.brain.context.chats import log_with
from tests.brain.context.test_window import OVERLONG
from tests.brain.playing import Mind, Player, runs, says

WINDOW = 200_000


def model(rounds: int, calls: int, size: int) -> Mind:
    """So many replies with so many calls, of so many characters; what is too long is refused."""

    def mind(effect: CallModel, player: Player) -> Replied | Failed:
        if estimate(effect.request) > WINDOW:
            return OVERLONG
        if effect.purpose == "compaction":
            return says("SUMMARY " + "s" * 2000)
        made = sum(e.type == "agent.tool_use" for e in player.log.entries) // calls
        if made >= rounds:
            return says("all done")
        # Results are what was run: the log has each text twice.
        return runs(*(f"{made}.{n} " + "x" * size for n in range(calls)))

    return mind


def size_of(entries: list[Any]) -> int:
    """Bytes of the data of events."""
    return sum(len(json.dumps(entry.data)) for entry in entries)


@pytest.mark.parametrize("policy", ["compact", "reset", "trim", "retrieve"])
def test_a_turn_of_a_hundred_calls_that_fills_the_window_comes_to_its_end(policy: str) -> None:
    log = log_with(policy=policy)
    log.say("do a hundred things at once, twice")
    player = Player(log, model(rounds=2, calls=100, size=4000)).run()
    assert player.finished is not None
    assert player.finished.stop_reason == "end_turn"
    assert sum(e.type == "agent.tool_result" for e in log.entries) == 200
    assert size_of(log.entries) * 2 // 7 > WINDOW * 2, "it would not fit into one window, nor two"


def test_a_conversation_of_very_many_turns_grows_the_log_by_what_is_new_alone() -> None:
    log = log_with(policy="compact")
    grown = []
    for turn in range(6):
        before = len(log.entries)
        log.say(f"turn {turn}")
        player = Player(log, model(rounds=(turn + 1) * 20, calls=1, size=8000)).run()
        assert player.finished is not None
        assert player.finished.stop_reason == "end_turn"
        grown.append(size_of(log.entries[before:]))
    assert sum(grown) * 2 // 7 > WINDOW * 2
    assert max(grown) < min(grown) * 1.3, "a turn late in a session costs what an early one did"
    assert sum(len(r.blocks) for r in log.transcript.requests.values()) < 60
