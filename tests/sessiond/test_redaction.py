"""Redaction: the data is gone for good, everything else stays (invariants 5 and 6)."""

from pathlib import Path

import pytest

from carpal.chain import data_digest
from carpal.status import Reason
from sessiond import redaction, sessions, sqlite_checkpoint
from sessiond.append import append
from sessiond.rows import Group, Redaction
from sessiond.sqlite import SqliteStore
from tests.sessiond.desk import ADA, EVE, Desk, message, refused
from tests.sessiond.keeping import chained, delete, fork, owes, redact, sweep

CANARY = b"the-canary-sings-at-dawn"


@pytest.fixture
def secret(desk: Desk) -> Desk:
    """A session whose second event should not have been said."""
    desk.create("sesn_1", message("a"))
    desk.append("sesn_1", message("b", CANARY), message("c"))
    return desk


def test_a_redacted_event_keeps_everything_but_its_data(secret: Desk) -> None:
    before = secret.log()
    secret.clock.advance(5)
    event = redact(secret, "sesn_1", 2)
    assert event.redaction == Redaction(ADA.uri, secret.clock.wall(), "it was a secret")
    assert event.data == b""
    assert event.digest == data_digest(CANARY)
    log = secret.log()
    assert log[1] == event
    assert [log[0], log[2]] == [before[0], before[2]]
    assert chained(log, "sesn_1") == secret.session().hash == before[-1].hash


def test_redacting_twice_is_the_first_answer(secret: Desk) -> None:
    first = redact(secret, "sesn_1", 2)
    secret.clock.advance(5)
    assert redact(secret, "sesn_1", 2, reason="another") == first
    assert secret.log()[1] == first


def test_an_event_is_redacted_for_all_forks_through_any_of_them(secret: Desk) -> None:
    fork(secret, "sesn_1", 3, "f1")
    fork(secret, "f1", 2, "f2")
    event = redact(secret, "f2", 2)
    for session_id in ("sesn_1", "f1", "f2"):
        assert secret.log(session_id)[1] == event
    assert redact(secret, "sesn_1", 2, reason="another") == event
    assert redact(secret, "f1", 2, reason="another") == event


def test_what_is_not_there_is_not_redacted(secret: Desk) -> None:
    for position in (0, 4):
        with refused(Reason.SESSION_NOT_FOUND):
            redact(secret, "sesn_1", position)
    with refused(Reason.SESSION_NOT_FOUND):
        redact(secret, "nowhere", 1)
    with refused(Reason.SESSION_NOT_FOUND):
        redact(secret, "sesn_1", 2, who=EVE)


@pytest.mark.parametrize("reason", ["", "  ", "x" * 1025])
def test_a_reason_is_needed_and_short(secret: Desk, reason: str) -> None:
    with refused(Reason.INVALID_FIELD):
        redact(secret, "sesn_1", 2, reason=reason)


def test_an_archived_log_is_redacted_too(secret: Desk) -> None:
    secret.run(lambda tx: sessions.archive(tx, ADA, "sesn_1"))
    assert redact(secret, "sesn_1", 2).redaction is not None


def test_the_resend_of_a_redacted_event_is_still_the_same_event(secret: Desk) -> None:
    event = redact(secret, "sesn_1", 2)
    again = secret.append("sesn_1", message("b", CANARY))
    assert again.first == event
    with refused(Reason.ID_REUSED):
        secret.append("sesn_1", message("b", b""))
    assert len(secret.log()) == 3


def test_an_event_is_redacted_in_the_very_transaction_that_appends_it(secret: Desk) -> None:
    tx = secret.store.begin()
    append(tx, ADA, Group("sesn_1", (message("d", CANARY),)))
    event = redaction.redact(tx, ADA, "sesn_1", 4, "at once")
    assert append(tx, ADA, Group("sesn_1", (message("d", CANARY),))).first == event
    changes = secret.store.commit()
    assert CANARY not in repr(changes).encode()
    assert secret.log()[3] == event
    assert chained(secret.log(), "sesn_1") == secret.session().hash


def test_a_redaction_of_what_was_looked_at_before_in_its_transaction_is_seen(
    secret: Desk,
) -> None:
    tx = secret.store.begin()
    append(tx, ADA, Group("sesn_1", (message("b", CANARY),)))
    redaction.redact(tx, ADA, "sesn_1", 2, "now")
    assert append(tx, ADA, Group("sesn_1", (message("b", CANARY),))).first.data == b""
    secret.store.commit()


def anywhere(folder: Path, needle: bytes = CANARY) -> list[str]:
    """Names of the store's files that hold these bytes."""
    return [
        path.name for path in folder.iterdir() if path.is_file() and needle in path.read_bytes()
    ]


@pytest.mark.parametrize("size", [0, 3000, 300_000])
def test_its_bytes_are_nowhere_on_the_disk_of_sqlite(
    desk: Desk, store: SqliteStore, tmp_path: Path, size: int
) -> None:
    store.maintain()
    data = CANARY * (size // len(CANARY) + 1)
    desk.create("sesn_1", *(message(f"e{n}", b"x" * 700) for n in range(50)))
    desk.append("sesn_1", message("b", data))
    desk.append("sesn_1", *(message(f"f{n}", b"x" * 700) for n in range(50)))
    assert anywhere(tmp_path)
    redact(desk, "sesn_1", 51)
    assert owes(store)
    store.maintain()
    assert not owes(store)
    assert anywhere(tmp_path) == []
    assert len(desk.log()) == 101


def test_the_bytes_of_a_deleted_session_are_nowhere_on_the_disk_of_sqlite(
    desk: Desk, store: SqliteStore, tmp_path: Path
) -> None:
    desk.create("keep", *(message(f"k{n}", b"x" * 700) for n in range(50)))
    for n in range(50):
        desk.append("keep", message(f"l{n}", b"y" * 700))
        if n == 0:
            desk.create("go")
        desk.append("go", message(f"h{n}", CANARY * 40))
    redact(desk, "go", 7)
    store.maintain()
    assert anywhere(tmp_path)
    delete(desk, "go")
    sweep(desk)
    store.maintain()
    assert anywhere(tmp_path) == []
    assert len(desk.log("keep")) == 100


def test_a_long_read_puts_the_erasing_off_and_no_more(
    secret: Desk, store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = store.reader()
    with reader.snapshot():
        assert reader.session("sesn_1") is not None
        redact(secret, "sesn_1", 2)
        store.maintain()
        assert owes(store)
        secret.append("sesn_1", message("d"))  # nobody waits for the read
    reader.close()
    store.maintain()
    assert owes(store)  # not tried again at once
    monkeypatch.setattr(sqlite_checkpoint, "ERASE_AGAIN", 0.0)
    redact(secret, "sesn_1", 1)
    store.maintain()
    assert not owes(store)
    assert anywhere(tmp_path) == []
