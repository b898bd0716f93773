"""A checkpoint is the fold it stands for, or it is passed over."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brain.session.checkpoint import MAX_BYTES, checkpoint, restored, shape, usable
from brain.session.entries import COMPACTED, KNOWN_TYPES, Entry
from brain.session.eviction import SETTLED_MAX
from brain.session.transcript import Transcript
from tests.brain.chance import BRAIN, Chance, asked_of
from tests.brain.context.chats import log_with, work
from tests.brain.logs import Log
from tests.pace import times


def folded(entries: list[Entry], inherited: int, onto: Transcript | None = None) -> Transcript:
    """The fold of all entries, or of those after what is folded already."""
    transcript = onto or Transcript(inherited)
    for entry in entries:
        if entry.position > transcript.head:
            transcript.apply(entry)
    return transcript


def cuts(log: Log) -> list[tuple[int, int]]:
    """Cuts that hold: position of the event, and through."""
    bad = {entry.position for entry in log.transcript.malformed}
    found = [e for e in log.entries if e.type == COMPACTED and e.position not in bad]
    return [(entry.position, entry.data["through"]) for entry in found]


@settings(max_examples=times(150, 5000), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 0, 20, 60]), st.integers(20, 200))
@example(612830104, 0, 78)  # a hand that failed, and was lost after that
def test_waking_from_a_checkpoint_answers_every_question_as_a_fold_from_the_start(
    seed: int, inherited: int, steps: int
) -> None:
    log = Chance(seed, inherited).grow(steps)
    whole = asked_of(folded(log.entries, inherited))
    for position, through in cuts(log):
        if position <= inherited:
            continue
        state = checkpoint(folded(log.entries[:through], inherited))
        assert state is not None
        kept = json.loads(json.dumps(state))
        woken = folded(log.entries, inherited, restored(kept, inherited))
        assert asked_of(woken) == whole, (position, through)


@settings(max_examples=times(60, 2000), deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 120), st.integers(0, 40))
def test_a_fork_wakes_from_what_the_other_session_left_before_they_parted(
    seed: int, steps: int, later: int
) -> None:
    log = Chance(seed).grow(steps)
    parted = log.transcript.head
    whole = folded(log.entries, parted)
    for position, through in cuts(log):
        # What the other session's driver wrote, who had inherited nothing.
        state = checkpoint(folded(log.entries[:through], 0))
        assert position <= parted
        woken = folded(log.entries, parted, restored(state, parted))
        assert asked_of(woken) == asked_of(whole)
        more = [
            Entry(parted + 1 + n, f"f{n}", "user.message", {"content": []}) for n in range(later)
        ]
        assert asked_of(folded(more, parted, woken)) == asked_of(folded(log.entries + more, parted))


def a_cut() -> tuple[Log, Entry]:
    """A log with a cut by a brain, its checkpoint in it."""
    log = log_with(policy="compact")
    log.say("go")
    work(log, 5)
    through = log.transcript.head
    state = checkpoint(folded(log.entries, 0))
    data = {"policy": "compact/1", "kind": "summary", "through": through, "text": "S"}
    log.add(COMPACTED, data | {"state": state})
    return log, replace(log.entries[-1], source=BRAIN)


def test_a_checkpoint_of_a_brain_is_gone_by() -> None:
    log, entry = a_cut()
    woken = usable(entry, 0)
    assert woken is not None
    assert woken.head == entry.data["through"]
    assert asked_of(folded(log.entries, 0, woken)) == asked_of(log.transcript)


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "spiffe://carpal.internal/operator/ada"},
        {"source": "spiffe://carpal.internal/daemon/brain"},
        {"source": ""},
        {"redacted": True, "data": {}},
        {"data": {"through": 5, "text": "S"}},
        {"data": {"through": 5, "text": "S", "state": 7}},
        {"data": {"through": 5, "text": "S", "state": {}}},
        {"data": {"through": 5, "text": "S", "state": {"version": shape(), "through": 5}}},
    ],
)
def test_one_that_is_redacted_malformed_or_of_no_brain_is_passed_over(
    changed: dict[str, Any],
) -> None:
    _, entry = a_cut()
    assert usable(replace(entry, **changed), 0) is None


def test_one_that_was_edited_or_is_of_another_version_is_passed_over() -> None:
    _, entry = a_cut()
    state = entry.data["state"]
    for changed in (
        state | {"version": "1/0"},
        state | {"fold": state["fold"] | {"failures": 1}},
        state | {"inherited": 3},
        {key: value for key, value in state.items() if key != "fold"},
        state | {"sha256": "0"},
    ):
        assert usable(replace(entry, data=entry.data | {"state": changed}), 0) is None


def test_one_by_a_brain_that_knows_more_types_is_passed_over_for_it_may_hide_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("brain.session.checkpoint.KNOWN_TYPES", KNOWN_TYPES | {"browser.opened"})
        _, entry = a_cut()
        assert usable(entry, 0) is not None
    assert usable(entry, 0) is None


def test_one_at_another_position_than_its_event_says_is_passed_over() -> None:
    _, entry = a_cut()
    assert usable(replace(entry, data=entry.data | {"through": 3}), 0) is None


def test_one_that_was_imported_is_passed_over_for_nobody_here_knows_who_wrote_it() -> None:
    _, entry = a_cut()
    assert usable(entry, entry.position, entry.position) is None
    assert usable(entry, entry.position, entry.position - 1) is not None


def test_one_that_is_too_large_for_its_event_is_not_made() -> None:
    log = log_with(policy="compact")
    log.add("user.save", {"hand": "x" * MAX_BYTES})
    assert checkpoint(folded(log.entries, 0)) is None


def test_a_transcript_does_not_grow_with_a_log_that_is_cut() -> None:
    log = log_with(policy="compact")
    log.provision("h1")
    sizes = []
    for _ in range(3 * SETTLED_MAX // 250):
        log.say("go")
        for number in range(5):
            for call in log.reply(log.ask(), calls=("run " * 50,) * 50):
                log.result(call, f"{number} " * 500, hand_id="h1")
        log.reply(log.ask(), "done")
        data = {"policy": "p", "kind": "summary", "through": log.transcript.head, "text": "S"}
        log.add(COMPACTED, data)
        sizes.append(len(log.transcript.calls))
        assert not log.transcript.inputs
        assert sum(len(r.blocks) for r in log.transcript.requests.values()) == 0
    assert max(sizes) == sizes[-1] == SETTLED_MAX
    state = checkpoint(folded(log.entries, 0))
    assert state is not None
    assert len(json.dumps(state)) < MAX_BYTES


def test_every_kind_of_thing_that_a_transcript_holds_can_be_kept() -> None:
    assert checkpoint(Transcript()) is not None
