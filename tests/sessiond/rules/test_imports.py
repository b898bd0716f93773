"""Imports: a log taken in as it was, or not at all; a broken stream is gone on with."""

import msgspec
import pytest

from carpal.chain import data_digest, genesis
from carpal.status import Reason
from sessiond.rows import EventRow, Redaction, SessionRow
from sessiond.rules import imports, removal, sessions
from sessiond.rules.runnable import due_in
from tests.sessiond.desk import ADA, EVE, Desk, message, refused
from tests.sessiond.keeping import (
    begin,
    chained,
    delete,
    fork,
    import_of,
    purges,
    redact,
    rehashed,
    sweep,
    take,
)


@pytest.fixture
def exported(desk: Desk) -> tuple[SessionRow, list[EventRow]]:
    """A session of six events, one of them redacted, as somebody exported it."""
    desk.create("sesn_1", *(message(id, id.encode()) for id in "abc"), wake=True)
    desk.clock.advance(60)
    desk.append("sesn_1", *(message(id, id.encode()) for id in "def"))
    redact(desk, "sesn_1", 2)
    return desk.session("sesn_1"), desk.log("sesn_1")


Exported = tuple[SessionRow, list[EventRow]]


def test_an_imported_session_is_what_was_exported_and_is_not_woken(
    desk: Desk, exported: Exported
) -> None:
    session, log = exported
    new = import_of(session, log)
    desk.clock.advance(60)
    begin(desk, new)
    take(desk, new, log[:4])
    with refused(Reason.SESSION_NOT_FOUND):
        desk.append("sesn_copy", message("x"))
    made = take(desk, new, log[4:])
    assert not made.importing
    assert desk.log("sesn_copy") == log
    there = desk.session("sesn_copy")
    assert (there.chain_id, there.imported_to, there.hash) == ("sesn_1", 6, session.hash)
    assert (there.created, there.labels) == (session.created, {"from": "afar"})
    assert due_in(there, desk.clock.wall(), desk.clock.steady()) is None
    desk.append("sesn_copy", message("x"), wake=True)
    there = desk.session("sesn_copy")
    assert there.hash == chained(desk.log("sesn_copy"), "sesn_1")
    assert due_in(there, desk.clock.wall(), desk.clock.steady()) == 0
    assert desk.append("sesn_copy", message("b", b"b")).first.position == 2


def test_a_broken_stream_is_gone_on_with_by_the_same_import(desk: Desk, exported: Exported) -> None:
    session, log = exported
    new = import_of(session, log)
    begin(desk, new)
    take(desk, new, log[:3])
    assert begin(desk, new).head == 3
    assert take(desk, new, log[:2]).head == 3
    assert take(desk, new, log[2:5]).head == 5
    assert not take(desk, new, log).importing
    assert desk.log("sesn_copy") == log


def test_the_same_import_again_answers_with_the_session_even_when_it_grew(
    desk: Desk, exported: Exported
) -> None:
    session, log = exported
    new = import_of(session, log)
    begin(desk, new)
    take(desk, new, log)
    desk.append("sesn_copy", message("x"))
    assert begin(desk, new).head == 7
    assert take(desk, new, log[:2]).head == 7
    assert take(desk, new, log).head == 7
    forged = [*log[:-1], msgspec.structs.replace(log[-1], data=b"?", digest=data_digest(b"?"))]
    with refused(Reason.CHAIN_BROKEN):
        take(desk, new, rehashed(forged, "sesn_1"))


def test_a_sessions_own_export_finds_it_there_even_when_it_grew(
    desk: Desk, exported: Exported
) -> None:
    session, log = exported
    new = import_of(session, log)._replace(session_id="sesn_1")
    assert begin(desk, new).imported_to == 0
    desk.append("sesn_1", message("x"))
    assert begin(desk, new).head == 7
    assert take(desk, new, log).head == 7
    assert len(desk.log("sesn_1")) == 7


def test_another_chain_under_the_id_is_refused(desk: Desk, exported: Exported) -> None:
    session, log = exported
    desk.create("sesn_2", message("a"))
    with refused(Reason.ID_REUSED):
        begin(desk, import_of(session, log, "sesn_2"))
    begin(desk, import_of(session, log))
    with refused(Reason.ID_REUSED):
        begin(desk, import_of(session, log[:3]))
    with refused(Reason.ID_REUSED):
        desk.create("sesn_copy")
    with refused(Reason.ID_REUSED):
        fork(desk, "sesn_1", 1, "sesn_copy")
    new = import_of(session, log)
    with refused(Reason.ID_REUSED):
        begin(desk, new._replace(workspace="elsewhere"), who=EVE)
    take(desk, new, log)
    delete(desk, "sesn_copy")
    with refused(Reason.ID_REUSED):
        begin(desk, new)


def changed(event: EventRow, **fields: object) -> EventRow:
    return msgspec.structs.replace(event, **fields)


@pytest.mark.parametrize(
    ("at", "fields"),
    [
        (3, {"data": b"forged"}),
        (3, {"data": b"forged", "digest": data_digest(b"forged")}),
        (3, {"time": 1}),
        (3, {"source": "spiffe://carpal.internal/operator/someone"}),
        (3, {"type": "user.interrupt"}),
        (3, {"must_understand": True}),
        (3, {"id": "z"}),
        (3, {"position": 5}),
        (3, {"hash": b"\0" * 32}),
        (2, {"data": b"b"}),
        (2, {"redaction": None}),
    ],
)
def test_whatever_was_changed_breaks_the_chain_and_leaves_nothing_behind(
    desk: Desk, exported: Exported, at: int, fields: dict[str, object]
) -> None:
    session, log = exported
    new = import_of(session, log)
    begin(desk, new)
    log[at - 1] = changed(log[at - 1], **fields)
    with refused(Reason.CHAIN_BROKEN):
        take(desk, new, log)
    with refused(Reason.CHAIN_BROKEN) as error:
        for event in log:
            take(desk, new, [event])
    assert error.value.fields["position"] in (str(at), str(at + 1))


@pytest.mark.parametrize("field", ["by", "reason"])
def test_a_redaction_says_no_more_than_one_made_here_could(
    desk: Desk, exported: Exported, field: str
) -> None:
    session, log = exported
    new = import_of(session, log)
    begin(desk, new)
    redaction = msgspec.structs.replace(
        log[1].redaction or Redaction("", 0, ""), **{field: "x" * 2000}
    )
    log[1] = changed(log[1], redaction=redaction)
    with refused(Reason.INVALID_FIELD) as error:
        take(desk, new, log)
    assert error.value.fields["field"] == f"events.redaction.{field}"


def test_a_chain_that_is_whole_but_another_than_was_said_is_refused_at_its_end(
    desk: Desk, exported: Exported
) -> None:
    session, log = exported
    new = import_of(session, log)
    begin(desk, new)
    log[2] = changed(log[2], data=b"forged", digest=data_digest(b"forged"))
    with refused(Reason.CHAIN_BROKEN):
        take(desk, new, rehashed(log, "sesn_1"))


def test_events_beyond_the_head_twice_or_out_of_order_are_refused(
    desk: Desk, exported: Exported
) -> None:
    session, log = exported
    short = import_of(session, log[:3])
    begin(desk, short)
    with refused(Reason.CHAIN_BROKEN):
        take(desk, short, log[:4])
    with refused(Reason.CHAIN_BROKEN):
        take(desk, short, log[1:3])
    with refused(Reason.CHAIN_BROKEN):
        take(desk, short, [log[0], log[2]])
    twice = rehashed([log[0], changed(log[1], id="a")], "sesn_1")
    new = import_of(session, twice, "other")
    begin(desk, new)
    with refused(Reason.CHAIN_BROKEN) as error:
        take(desk, new, twice)
    assert "is that of an event before" in str(error.value)


def test_a_stream_that_ends_before_the_head_is_no_whole_log(desk: Desk, exported: Exported) -> None:
    session, log = exported
    new = import_of(session, log)
    begin(desk, new)
    part = take(desk, new, log[:3])
    with refused(Reason.CHAIN_BROKEN) as error:
        imports.check_whole(part, new)
    assert error.value.fields["position"] == "4"


def test_an_empty_log_is_imported_by_its_first_message(desk: Desk) -> None:
    desk.create("sesn_1")
    session = desk.session("sesn_1")
    made = begin(desk, import_of(session, []))
    assert (made.importing, made.chain_id, made.hash) == (False, "sesn_1", genesis("sesn_1"))
    assert desk.session("sesn_copy").head == 0
    with refused(Reason.CHAIN_BROKEN):
        begin(desk, import_of(session, [], "other")._replace(hash=b"\0" * 32))


@pytest.mark.parametrize(
    "fields",
    [
        {"session_id": "no/slash"},
        {"chain_id": ""},
        {"title": "x" * 1025},
        {"hash": b"short"},
        {"head": 2**60},
        {"labels": {"": "x"}},
    ],
)
def test_a_malformed_session_is_refused(
    desk: Desk, exported: Exported, fields: dict[str, object]
) -> None:
    new = import_of(*exported)._replace(**fields)  # type: ignore[arg-type]
    with refused(Reason.INVALID_FIELD):
        begin(desk, new)


def test_a_fork_is_imported_as_a_log_of_its_own_and_forked_again(
    desk: Desk, exported: Exported
) -> None:
    fork(desk, "sesn_1", 4, "f")
    desk.append("f", message("x"))
    new = import_of(desk.session("f"), desk.log("f"))
    begin(desk, new)
    take(desk, new, desk.log("f"))
    assert desk.log("sesn_copy") == desk.log("f")
    low, high = fork(desk, "sesn_copy", 3, "g"), fork(desk, "sesn_copy", 5, "h")
    assert (low.imported_to, high.imported_to) == (3, 5)
    assert desk.log("g") == desk.log("f")[:3]


def test_an_import_that_stands_still_for_a_day_is_given_up_and_its_id_is_free(
    desk: Desk, exported: Exported
) -> None:
    session, log = exported
    new = import_of(session, log)
    begin(desk, new)
    desk.clock.advance(20 * 3600)
    take(desk, new, log[:3])
    desk.clock.advance(20 * 3600)
    reader = desk.store.reader()
    before = desk.clock.wall() - removal.IMPORT_PATIENCE
    assert reader.erasable.stalled(before, 9) == []
    assert desk.run(lambda tx: removal.give_up_imports(tx, ["sesn_copy"])) == []
    desk.clock.advance(5 * 3600)
    before = desk.clock.wall() - removal.IMPORT_PATIENCE
    assert reader.erasable.stalled(before, 9) == ["sesn_copy"]
    reader.close()
    assert desk.run(lambda tx: removal.give_up_imports(tx, ["sesn_copy"]))
    with refused(Reason.UNAVAILABLE):
        begin(desk, new)
    with refused(Reason.UNAVAILABLE):
        take(desk, new, log[3:])
    sweep(desk)
    assert purges(desk) == []
    desk.create("sesn_copy", message("a"))
    assert [event.id for event in desk.log("sesn_copy")] == ["a"]


def test_an_unfinished_import_is_not_there(desk: Desk, exported: Exported) -> None:
    new = import_of(*exported)
    begin(desk, new)
    take(desk, new, exported[1][:3])
    for attempt in (
        lambda: delete(desk, "sesn_copy"),
        lambda: fork(desk, "sesn_copy", 1, "f"),
        lambda: redact(desk, "sesn_copy", 1),
        lambda: desk.acquire("session/sesn_copy"),
        lambda: desk.run(lambda tx: sessions.archive(tx, ADA, "sesn_copy")),
    ):
        with refused(Reason.SESSION_NOT_FOUND):
            attempt()
    reader = desk.store.reader()
    assert reader.session("sesn_copy") is None
    found = reader.page("default", before=100, limit=9, archived=True, labels={"from": "afar"})
    assert found == []
    reader.close()
