"""Policies over logs of real sessions, as the practice model, hands and people left them.

Recorded with `carpal run` and `carpal session send` against `carpal dev`, and kept as
`carpal session tail --json` gave them, without hashes: tests/brain/logs/POLICY.jsonl.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from brain.context.made_again import made_again
from brain.context.request import next_reply
from brain.context.window import next_cut
from brain.effects import CallModel, Emit, Harness, HarnessType, Replied
from brain.harnesses.tool_loop import HARNESS, tool_loop
from brain.recorded.recording import Recording
from brain.recorded.replay import Difference, Replay, Replayed
from brain.session.entries import COMPACTED, Entry
from brain.session.transcript import Transcript
from brain.text import canonical
from tests.brain.context.chats import check_fit, prefixes, whole_of
from tests.brain.playing import Player, log_of, says

FOLDER = Path(__file__).parent.parent / "logs"
POLICIES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def recorded(policy: str) -> list[Entry]:
    """A recorded log."""
    lines = (FOLDER / f"{policy}.jsonl").read_text("utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return [Entry(e["position"], e["id"], e["type"], e["data"], source=e["source"]) for e in events]


def requests(entries: list[Entry]) -> list[tuple[str, int, dict[str, Any]]]:
    """Each model call that a recorded log tells of, made again: purpose, position and request."""
    made = []
    transcript = Transcript()
    for entry in entries:
        if entry.type == "span.model_request_start":
            assert entry.data["through"] == transcript.head
            purpose = entry.data.get("purpose", "reply")
            call = made_again(transcript, purpose, entry.data["policy"])
            assert canonical(call.request) == canonical(
                made_again(
                    log_of(entries[: transcript.head]).transcript, purpose, call.policy
                ).request
            )
            made.append((purpose, entry.position, call.request))
        transcript.apply(entry)
    return made


def test_there_is_a_recorded_log_of_each_policy_that_does_something() -> None:
    assert POLICIES == ["compact", "reset", "retrieve", "trim"]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_of_a_recorded_log_is_made_again_and_the_api_takes_it(
    policy: str,
) -> None:
    made = requests(recorded(policy))
    assert len(made) >= 12
    for _, _, request in made:
        check_fit(request)
        assert 1 <= len(prefixes(request)) <= 4


@pytest.mark.parametrize("policy", POLICIES)
def test_within_a_window_each_request_begins_with_the_last_up_to_a_breakpoint(policy: str) -> None:
    entries = recorded(policy)
    cuts = [entry.position for entry in entries if entry.type == COMPACTED]
    replies = [(at, request) for purpose, at, request in requests(entries) if purpose == "reply"]
    kept = missed = 0
    for (before_at, before), (at, request) in pairwise(replies):
        assert prefixes(before)[0] == prefixes(request)[0], "tools and system, whatever was cut"
        if any(before_at < cut < at for cut in cuts):
            continue
        held = whole_of(before) in prefixes(request)
        kept, missed = kept + held, missed + (not held)
    assert kept >= 6
    # Trim's cut moves now and then, and retrieve looks anew at each of the five later messages.
    assert missed <= {"trim": 2, "retrieve": 5}.get(policy, 0), (kept, missed)


@pytest.mark.parametrize("policy", ["compact", "reset"])
def test_the_cut_of_a_recorded_log_stands_for_what_it_covers(policy: str) -> None:
    entries = recorded(policy)
    (cut,) = [entry for entry in entries if entry.type == COMPACTED]
    transcript = log_of(entries[: cut.position]).transcript
    assert transcript.window is not None
    assert transcript.window.through == cut.data["through"] == cut.data["state"]["through"]
    first = next_reply(transcript).request["messages"][0]["content"][0]["text"]
    assert first == cut.data["text"]
    old = [entry for entry in transcript.inputs if entry.position <= cut.data["through"]]
    assert not any("content" in entry.data for entry in old), "of what is cut nothing is kept"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_driver_that_wakes_at_any_event_of_a_recorded_log_finishes_it(policy: str) -> None:
    entries = recorded(policy)
    for upto in range(2, len(entries) + 1):
        if entries[upto - 1].type.startswith("agent.") and upto < len(entries):
            continue  # inside a group, which is in a log whole or not at all
        log = log_of(entries[:upto])
        player = Player(log, answers).run()
        assert player.finished is not None
        assert player.finished.stop_reason == "end_turn"
        assert not log.transcript.open_calls()
        assert next_cut(log.transcript) is None or policy == "reset"


def answers(effect: CallModel, player: Player) -> Replied:
    """Sums up when asked, else has nothing to do."""
    return says("SUMMARY" if effect.purpose == "compaction" else "done")


def test_what_was_said_long_ago_is_brought_back_when_it_is_asked_for() -> None:
    asked = [
        request
        for _, _, request in requests(recorded("retrieve"))
        if "where are the tulip bulbs?" in str(request["messages"][-1])
    ]
    (request,) = asked
    found = request["messages"][0]["content"][0]["text"]
    assert found.startswith("[Of the conversation up to position ")
    assert "the tulip bulbs are in shed nine" in found


@pytest.mark.parametrize("policy", POLICIES)
def test_a_recorded_log_is_replayed_to_its_end_its_cut_among_the_decisions(policy: str) -> None:
    recording = Recording(recorded(policy))
    decided = ("span.model_request_start", "session.status_idle", COMPACTED)
    decisions = sum(entry.type in decided for entry in recording.entries)
    assert Replay(recording, HARNESS, "tool_loop").run() == Replayed(decisions, None)


@pytest.mark.parametrize("policy", ["compact", "reset"])
def test_who_would_cut_the_window_otherwise_parts_from_the_log_at_its_cut(policy: str) -> None:
    def differently(transcript: Transcript) -> Harness:
        harness, result = tool_loop(transcript), None
        while True:
            effect = harness.send(result)
            if isinstance(effect, Emit) and effect.type == COMPACTED:
                effect = Emit(COMPACTED, effect.data | {"text": "something else"})
            result = yield effect

    entries = recorded(policy)
    (cut,) = [entry for entry in entries if entry.type == COMPACTED]
    parted = Replay(Recording(entries), HarnessType("1", differently), "odd").run().difference
    assert parted == Difference(cut.position, "a cut of the window", "another cut of it")
