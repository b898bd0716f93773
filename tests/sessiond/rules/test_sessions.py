"""Sessions: creating, updating and archiving."""

import msgspec
import pytest

from carpal.status import Reason
from sessiond.rows import NewEvent, SessionRow
from sessiond.rules import sessions
from tests.sessiond.desk import ADA, BRAIN, EVE, VAULT, Desk, message, refused, reply


def change(event_id: str, **fields: object) -> sessions.Update:
    defaults: dict[str, object] = {
        "title": None,
        "metadata": {},
        "labels": {},
        "data": b"{}",
    }
    update = {"session_id": "sesn_1", "event_id": event_id} | defaults | fields
    return sessions.Update(**update, request=repr(update).encode())  # type: ignore[arg-type]


def updated(desk: Desk, update: sessions.Update) -> SessionRow:
    return desk.run(lambda tx: sessions.update(tx, ADA, update))


def test_creating_again_answers_with_the_session(desk: Desk) -> None:
    created = desk.create("sesn_1", message("a"), wake=True)
    assert (created.head, created.wake) == (1, 1)
    desk.append("sesn_1", message("b"))
    assert desk.create("sesn_1", message("a"), wake=True).head == 2


def test_creating_with_other_content_is_refused(desk: Desk) -> None:
    desk.create("sesn_1", message("a"))
    with refused(Reason.ID_REUSED):
        desk.create("sesn_1", message("b"))
    with refused(Reason.ID_REUSED):
        desk.create("sesn_1", message("a"), who=EVE)


def test_a_brain_may_begin_a_session_with_any_event_and_an_operator_with_no_drivers(
    desk: Desk,
) -> None:
    with refused(Reason.EPOCH_REQUIRED):
        desk.create("sesn_1", reply("a"))
    desk.create("sesn_1", reply("a"), who=BRAIN)
    assert [e.type for e in desk.log()] == ["agent.message"]
    desk.create("sesn_2", NewEvent("a", "session.updated", b"{}"), message("b"))


def test_a_wake_without_an_event_is_refused(desk: Desk) -> None:
    with refused(Reason.INVALID_FIELD):
        desk.create("sesn_1", wake=True)


def test_an_operator_means_its_own_workspace_and_a_brain_must_name_one() -> None:
    assert sessions.own_workspace(ADA, "") == "default"
    assert sessions.own_workspace(ADA, "default") == "default"
    assert sessions.own_workspace(BRAIN, "elsewhere") == "elsewhere"
    for who, asked in [(ADA, "elsewhere"), (BRAIN, ""), (VAULT, ""), (BRAIN, "No/Such")]:
        with refused(Reason.INVALID_FIELD):
            sessions.own_workspace(who, asked)


def test_an_update_patches_maps_and_appends_an_event(desk: Desk) -> None:
    desk.create()
    updated(desk, change("u1", title="t", metadata={"a": "1", "b": "2"}))
    session = updated(desk, change("u2", metadata={"a": "", "c": "3"}, labels={"l": "x"}))
    assert msgspec.structs.replace(session, hash=b"") == msgspec.structs.replace(
        desk.session(), hash=b""
    )
    assert (session.title, session.metadata, session.labels) == (
        "t",
        {"b": "2", "c": "3"},
        {"l": "x"},
    )
    assert [(e.id, e.type) for e in desk.log()] == [
        ("u1", "session.updated"),
        ("u2", "session.updated"),
    ]


def test_the_same_update_again_changes_nothing_and_another_under_its_id_is_refused(
    desk: Desk,
) -> None:
    desk.create("sesn_1", message("m"))
    updated(desk, change("u1", title="one"))
    updated(desk, change("u2", title="two"))
    assert updated(desk, change("u1", title="one")).title == "two"
    for clash in (change("u1", title="other"), change("m", title="one")):
        with refused(Reason.ID_REUSED):
            updated(desk, clash)
    assert desk.session().head == 3


def test_an_archived_session_takes_no_more_but_answers_what_it_took(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    archived = desk.run(lambda tx: sessions.archive(tx, ADA, "sesn_1")).archived
    assert archived == desk.clock.wall()
    desk.clock.advance(1)
    assert desk.run(lambda tx: sessions.archive(tx, ADA, "sesn_1")).archived == archived
    with refused(Reason.SESSION_ARCHIVED):
        desk.append("sesn_1", message("b"))
    with refused(Reason.SESSION_ARCHIVED):
        updated(desk, change("u1", title="t"))
    with refused(Reason.SESSION_ARCHIVED):
        desk.acquire("session/sesn_1")
    assert desk.append("sesn_1", message("a")).first.position == 1


def test_a_driven_session_is_not_archived_before_its_lease_ends(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    desk.acquire("session/sesn_1")
    with refused(Reason.LEASE_HELD):
        desk.run(lambda tx: sessions.archive(tx, ADA, "sesn_1"))
    desk.clock.advance(10)
    desk.run(lambda tx: sessions.archive(tx, ADA, "sesn_1"))
    desk.expire()  # recorded after the fact, it must not append to the closed log
    assert desk.session().head == 1
    assert not desk.session().driven


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", "x" * 1025),
        ("metadata", {"k": "v" * 4096}),
        ("labels", {"": "v"}),
    ],
)
def test_what_is_too_large_is_refused(desk: Desk, field: str, value: object) -> None:
    desk.create()
    with refused(Reason.INVALID_FIELD):
        updated(desk, change("u1", **{field: value}))
    assert desk.session().head == 0
