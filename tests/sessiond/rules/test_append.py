"""Appending: positions, idempotence, epochs, the chain (invariants 1, 3, 4, 6)."""

import pytest

from carpal.chain import data_digest, event_hash, genesis
from carpal.identity import Identity
from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.rows import EventRow, Group, NewEvent
from sessiond.rules import append as rules
from tests.sessiond.desk import ADA, BRAIN, EVE, OTHER, VAULT, Desk, message, refused, reply


def test_positions_are_1_2_3_whatever_came_in_between(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), message("b"))
    desk.create("sesn_2", message("a"))
    desk.append("sesn_1", message("c"))
    with refused(Reason.EPOCH_REQUIRED):
        desk.append("sesn_1", reply("refused"))
    desk.append("sesn_1", message("d"), message("e"), who=ADA)
    desk.append("sesn_1", message("d"), who=ADA)
    assert [(e.position, e.id) for e in desk.log("sesn_1")] == list(enumerate("abcde", 1))
    assert [(e.position, e.id) for e in desk.log("sesn_2")] == [(1, "a")]


def test_the_same_event_again_is_the_first_answer_and_adds_nothing(desk: Desk) -> None:
    desk.create()
    first = desk.append("sesn_1", message("a", b"1"), wake=True)
    desk.append("sesn_1", message("b"))
    desk.clock.advance(60)
    again = desk.append("sesn_1", message("a", b"1"), wake=True)
    assert again.first == first.first
    assert desk.session().head == 2
    assert desk.session().wake == 1


@pytest.mark.parametrize(
    "other",
    [
        message("a", b"2"),
        NewEvent("a", "user.interrupt", b"1"),
        NewEvent("a", "user.message", b"1", must_understand=True),
    ],
    ids=["data", "type", "must_understand"],
)
def test_an_id_with_other_content_is_refused(desk: Desk, other: NewEvent) -> None:
    desk.create("sesn_1", message("a", b"1"))
    with refused(Reason.ID_REUSED):
        desk.append("sesn_1", message("new"), other)
    assert desk.session().head == 1


def test_an_id_costs_no_more_for_being_used_in_many_sessions(desk: Desk) -> None:
    names = [f"sesn_{number}" for number in range(20)]
    for name in names:
        desk.create(name, message("1", name.encode()))
    groups = [Group(name, (message("1", name.encode()), message("2"))) for name in names]
    tx = desk.store.begin([rules.needs_of(groups)])
    loaded = tx._known_events.values()  # type: ignore[attr-defined]
    assert sum(len(rows) for rows in loaded) <= 2
    assert [rules.append(tx, BRAIN, group).first.position for group in groups] == [1] * 20
    with refused(Reason.ID_REUSED):
        rules.append(tx, BRAIN, Group("sesn_1", (message("1", b"other"),)))
    desk.store.commit()
    for name in names:
        assert [(e.position, e.id) for e in desk.log(name)] == [(1, "1"), (2, "2")]


def test_a_resend_that_is_grouped_differently_adds_only_what_is_new(desk: Desk) -> None:
    desk.create()
    desk.append("sesn_1", message("a"), message("b"))
    answer = desk.append("sesn_1", message("b"), message("c"), message("c"), message("d"))
    assert answer.first.position == 2
    assert [e.id for e in desk.log()] == ["a", "b", "c", "d"]


def test_an_id_twice_in_a_group_with_other_content_is_refused(desk: Desk) -> None:
    desk.create()
    with refused(Reason.ID_REUSED):
        desk.append("sesn_1", message("a", b"1"), message("a", b"2"))
    assert desk.log() == []


def test_a_group_is_all_or_nothing(desk: Desk) -> None:
    desk.create()
    with refused(Reason.EPOCH_REQUIRED):
        desk.append("sesn_1", message("a"), reply("b"))
    with refused(Reason.EVENT_TOO_LARGE):
        desk.append("sesn_1", message("a"), message("b", bytes(rules.EVENT_BYTES + 1)))
    assert desk.log() == []


@pytest.mark.parametrize(
    "type",
    [
        "user.message",
        "user.interrupt",
        "system.message",
        "hand.event",
        "hand.offered",
        "agent.thread_message_received",
    ],
)
@pytest.mark.parametrize("who", [ADA, BRAIN, VAULT], ids=["operator", "brain", "vault"])
def test_inbox_types_come_without_an_epoch(desk: Desk, type: str, who: Identity) -> None:
    desk.create()
    appended = desk.append("sesn_1", NewEvent("a", type, b"{}"), who=who)
    assert appended.first.source == who.uri


@pytest.mark.parametrize("type", ["agent.message", "session.updated", "hand.provisioned", "user"])
@pytest.mark.parametrize("who", [ADA, BRAIN, VAULT], ids=["operator", "brain", "vault"])
def test_other_types_need_an_epoch(desk: Desk, type: str, who: Identity) -> None:
    desk.create()
    with refused(Reason.EPOCH_REQUIRED):
        desk.append("sesn_1", NewEvent("a", type, b"{}"), who=who)


@pytest.mark.parametrize("type", ["hand.entered", "hand.left"])
def test_that_a_person_is_in_a_hand_brains_alone_say_without_an_epoch(
    desk: Desk, type: str
) -> None:
    desk.create()
    desk.append("sesn_1", NewEvent("a", type, b"{}"), who=BRAIN)
    for who in (ADA, VAULT):
        with refused(Reason.EPOCH_REQUIRED):
            desk.append("sesn_1", NewEvent("b", type, b"{}"), who=who)


def test_a_stale_epoch_is_refused_even_for_an_event_that_is_there(desk: Desk) -> None:
    desk.create()
    old = desk.acquire("session/sesn_1").lease.epoch
    desk.append("sesn_1", reply("a"), epoch=old)
    new = desk.acquire("session/sesn_1").lease.epoch
    assert new > old
    with refused(Reason.STALE_EPOCH):
        desk.append("sesn_1", reply("a"), epoch=old)
    with refused(Reason.STALE_EPOCH):
        desk.append("sesn_1", message("inbox, with an epoch"), epoch=old)
    assert desk.append("sesn_1", reply("a"), epoch=new).first.position == 1


@pytest.mark.parametrize("epoch", [0, 2, 2**63])
def test_an_epoch_that_was_never_granted_is_refused(desk: Desk, epoch: int) -> None:
    desk.create()
    with refused(Reason.STALE_EPOCH):
        desk.append("sesn_1", reply("a"), epoch=1)
    desk.acquire("session/sesn_1")
    with refused(Reason.STALE_EPOCH):
        desk.append("sesn_1", reply("a"), epoch=epoch)


def test_an_epoch_is_good_only_in_the_hands_it_was_given_to(desk: Desk) -> None:
    desk.create()
    epoch = desk.acquire("session/sesn_1").lease.epoch
    for thief in (OTHER, ADA):
        with refused(Reason.STALE_EPOCH):
            desk.append("sesn_1", reply("a"), who=thief, epoch=epoch)


def test_the_epoch_ends_in_the_instant_the_lease_does(desk: Desk) -> None:
    desk.create()
    epoch = desk.acquire("session/sesn_1", term=10 * SECOND).lease.epoch
    desk.clock.advance(9.999)
    desk.append("sesn_1", reply("a"), epoch=epoch)
    desk.clock.advance(0.001)
    with refused(Reason.STALE_EPOCH):  # though no timer has recorded it
        desk.append("sesn_1", reply("b"), epoch=epoch)


def test_another_workspace_is_as_if_it_did_not_exist(desk: Desk) -> None:
    desk.create()
    with refused(Reason.SESSION_NOT_FOUND):
        desk.append("sesn_1", message("a"), who=EVE)
    with refused(Reason.SESSION_NOT_FOUND):
        desk.append("nowhere", message("a"), who=EVE)


def test_limits_are_inclusive(desk: Desk) -> None:
    desk.create()
    mib = bytes(rules.EVENT_BYTES)
    desk.append("sesn_1", *(message(str(n), mib) for n in range(4)))
    with refused(Reason.GROUP_TOO_LARGE):
        desk.append("sesn_1", *(message(f"x{n}", mib) for n in range(4)), message("y", b"1"))
    desk.append("sesn_1", *(message(f"m{n}") for n in range(rules.GROUP_EVENTS)))
    with refused(Reason.GROUP_TOO_LARGE):
        desk.append("sesn_1", *(message(f"n{n}") for n in range(rules.GROUP_EVENTS + 1)))


@pytest.mark.parametrize(
    "event",
    [
        message(""),
        message("x" * 129),
        message("é" * 65),
        NewEvent("a", "", b""),
        NewEvent("a", "user.", b""),
        NewEvent("a", "User.Message", b""),
        NewEvent("a", "user.message\n", b""),
        NewEvent("a", "user." + "x" * 128, b""),
    ],
)
def test_a_malformed_event_is_refused(desk: Desk, event: NewEvent) -> None:
    desk.create()
    with refused(Reason.INVALID_FIELD):
        desk.append("sesn_1", event)


def test_data_is_kept_as_it_came_and_never_parsed(desk: Desk) -> None:
    desk.create()
    for number, data in enumerate([b"", b"not json", b"\xff\xfe\0"]):
        desk.append("sesn_1", message(str(number), data))
    assert [e.data for e in desk.log()] == [b"", b"not json", b"\xff\xfe\0"]


def test_an_empty_group_is_refused(desk: Desk) -> None:
    desk.create()
    with refused(Reason.INVALID_FIELD):
        desk.append("sesn_1")


def test_the_hash_of_every_event_chains_over_the_one_before(desk: Desk) -> None:
    desk.create("sesn_1", message("a", b"1"))
    desk.clock.advance(1)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.append("sesn_1", reply("b", b"2"), NewEvent("c", "x.y", b"", True), epoch=epoch)
    log = desk.log()
    assert desk.session().hash == log[-1].hash == verified(log, "sesn_1")
    assert {e.time for e in log} == {desk.clock.wall() - SECOND, desk.clock.wall()}


def verified(log: list[EventRow], session_id: str) -> bytes:
    """The head of the chain recomputed from the events alone."""
    chain = genesis(session_id)
    for event in log:
        chain = event_hash(
            chain,
            id=event.id,
            position=event.position,
            time_ns=event.time,
            type=event.type,
            source=event.source,
            must_understand=event.must_understand,
            digest=data_digest(event.data),
        )
        assert chain == event.hash
    return chain
