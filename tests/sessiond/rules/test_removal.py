"""Deletion: a tombstone at once, the bytes when no fork needs them (invariant 5)."""

import pytest

from carpal.status import Reason
from sessiond.rows import Group, LeaseState
from sessiond.rules import removal, sessions
from sessiond.rules.append import append
from sessiond.rules.runnable import due_in
from sessiond.sql import erasing
from sessiond.store import Reader
from tests.sessiond.desk import ADA, BRAIN, EVE, OTHER, Desk, message, refused
from tests.sessiond.keeping import delete, fork, purges, redact, sweep


def there(desk: Desk, session_id: str) -> bool:
    reader: Reader = desk.store.reader()
    try:
        return reader.session(session_id) is not None
    finally:
        reader.close()


def test_a_deleted_session_is_not_found_and_only_a_tombstone_is_left(desk: Desk) -> None:
    request = sessions.NewSession(
        "sesn_1", "default", "a title", {"k": "v"}, {"l": "w"}, (message("a"),), True, b"r"
    )
    desk.run(lambda tx: sessions.create(tx, ADA, request))
    tombstone = delete(desk, "sesn_1")
    assert tombstone.deleted == desk.clock.wall()
    assert (tombstone.title, tombstone.metadata, tombstone.labels) == ("", {}, {})
    assert not there(desk, "sesn_1")
    for attempt in (
        lambda: desk.append("sesn_1", message("a")),
        lambda: desk.append("sesn_1", message("b")),
        lambda: desk.acquire("session/sesn_1"),
        lambda: redact(desk, "sesn_1", 1),
        lambda: fork(desk, "sesn_1", 1, "f"),
        lambda: desk.run(lambda tx: sessions.archive(tx, ADA, "sesn_1")),
    ):
        with refused(Reason.SESSION_NOT_FOUND):
            attempt()


def test_deleting_again_succeeds_before_and_after_its_bytes_are_gone(desk: Desk) -> None:
    desk.create("sesn_1", message("a"))
    first = delete(desk, "sesn_1")
    desk.clock.advance(5)
    assert delete(desk, "sesn_1") == first
    sweep(desk)
    assert delete(desk, "sesn_1") == first
    assert purges(desk) == []


def test_the_id_of_a_deleted_session_is_never_used_again(desk: Desk) -> None:
    desk.create("sesn_1", message("a"))
    desk.create("other", message("a"))
    delete(desk, "sesn_1")
    for _ in range(2):
        with refused(Reason.ID_REUSED):
            desk.create("sesn_1", message("a"))
        with refused(Reason.ID_REUSED):
            fork(desk, "other", 1, "sesn_1")
        sweep(desk)


def test_only_its_own_workspace_deletes_a_session(desk: Desk) -> None:
    desk.create("sesn_1")
    with refused(Reason.SESSION_NOT_FOUND):
        delete(desk, "sesn_1", who=EVE)
    with refused(Reason.SESSION_NOT_FOUND):
        delete(desk, "nowhere")
    delete(desk, "sesn_1")
    with refused(Reason.SESSION_NOT_FOUND):
        delete(desk, "sesn_1", who=EVE)


def test_a_driven_session_is_not_deleted_before_its_lease_ends(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    with refused(Reason.LEASE_HELD) as error:
        delete(desk, "sesn_1")
    assert error.value.fields["holder"] == BRAIN.uri
    desk.release("session/sesn_1", epoch, 1)
    delete(desk, "sesn_1")


def test_an_expired_lease_does_not_hold_a_session_nor_is_it_settled_later(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for _ in range(2):
        desk.acquire("session/sesn_1")
        desk.clock.advance(10)
        desk.expire()
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.clock.advance(10)
    tombstone = delete(desk, "sesn_1")
    assert [lease.state for lease in desk.changes.leases] == [LeaseState.EXPIRED]
    desk.expire()  # would have parked it, with two events
    assert delete(desk, "sesn_1") == tombstone
    with refused(Reason.SESSION_NOT_FOUND):
        desk.release("session/sesn_1", epoch, 1)


def test_a_tombstone_is_never_runnable_nor_listed(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    tombstone = delete(desk, "sesn_1")
    assert due_in(tombstone, desk.clock.wall(), desk.clock.steady()) is None
    reader = desk.store.reader()
    assert reader.with_work() == []
    found = reader.page("default", before=100, limit=9, archived=True, labels={})
    assert found == []
    reader.close()


def test_events_go_newest_first_in_bounded_steps(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasing, "PURGE_EVENTS", 10)
    desk.create("sesn_1", *(message(f"e{n}") for n in range(25)))
    redact(desk, "sesn_1", 3)
    redact(desk, "sesn_1", 24)
    fork(desk, "sesn_1", 3, "f")
    delete(desk, "sesn_1")
    assert not desk.run(lambda tx: removal.purge(tx, "sesn_1"))
    assert sweep(desk) == 2
    assert len(desk.log("f")) == 3


def test_a_step_is_bounded_by_bytes_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "PURGE_BYTES", 2500)
    desk.create("sesn_1", *(message(f"e{n}", b"x" * 1000) for n in range(5)))
    desk.append("sesn_1", message("big", b"x" * 9000))
    delete(desk, "sesn_1")
    assert sweep(desk) == 4  # one, two, two, one


def test_what_a_fork_shares_stays_until_the_last_such_fork_goes(desk: Desk) -> None:
    desk.create("sesn_1", *(message(id) for id in "abcdef"))
    fork(desk, "sesn_1", 4, "f1")
    desk.append("f1", message("x"), message("y"))
    fork(desk, "f1", 5, "f2")
    fork(desk, "f2", 2, "f3")
    desk.append("f3", message("z"))
    logs = {session_id: desk.log(session_id) for session_id in ("f1", "f2", "f3")}

    def same(*left: str) -> None:
        for session_id in left:
            assert desk.log(session_id) == logs[session_id]

    delete(desk, "sesn_1")
    sweep(desk)
    same("f1", "f2", "f3")
    delete(desk, "f1")
    sweep(desk)
    same("f2", "f3")
    assert held(desk) == 4 + 1 + 1  # a to d, x, and z
    delete(desk, "f2")
    sweep(desk)
    same("f3")
    assert held(desk) == 2 + 1
    delete(desk, "f3")
    sweep(desk)
    assert held(desk) == 0
    assert purges(desk) == []


def held(desk: Desk) -> int:
    """Events that the store holds: found again by their ids under any session."""
    numbers = 0
    tx = desk.store.begin()
    tombstones = [tx.session(session_id) for session_id in ("sesn_1", "f1", "f2", "f3")]
    for session in tombstones:
        assert session is not None
        own = range(session.inherited + 1, session.head + 1)
        numbers += sum(tx.event_at(session, position) is not None for position in own)
    desk.store.rollback()
    return numbers


def test_the_shared_events_of_a_tombstone_are_redacted_through_its_fork(desk: Desk) -> None:
    desk.create("sesn_1", message("a", b"secret"), message("b"))
    fork(desk, "sesn_1", 1, "f")
    delete(desk, "sesn_1")
    redact(desk, "f", 1)
    sweep(desk)
    assert [event.data for event in desk.log("f")] == [b""]
    delete(desk, "f")
    sweep(desk)
    assert purges(desk) == []


def test_delete_and_purge_in_the_transaction_of_an_append_leave_it_whole(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), message("b"))
    fork(desk, "sesn_1", 2, "f")
    tx = desk.store.begin()
    append(tx, ADA, Group("f", (message("c"),)))
    removal.delete(tx, ADA, "f")
    removal.delete(tx, ADA, "sesn_1")
    assert not removal.purge(tx, "f")
    assert not removal.purge(tx, "sesn_1")
    desk.store.commit()
    sweep(desk)
    assert purges(desk) == []


def test_another_session_takes_the_event_ids_of_a_deleted_one(desk: Desk) -> None:
    desk.create("sesn_1", message("a", b"1"))
    delete(desk, "sesn_1")
    desk.create("sesn_2", message("a", b"2"))
    sweep(desk)
    assert desk.append("sesn_2", message("a", b"2"), who=OTHER).first.position == 1
