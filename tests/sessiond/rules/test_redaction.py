"""Redaction: the data is gone for good, everything else stays (invariants 5 and 6)."""

import pytest

from carpal.chain import data_digest
from carpal.status import Reason
from sessiond.rows import Group, Redaction
from sessiond.rules import redaction, sessions
from sessiond.rules.append import append
from tests.sessiond.desk import ADA, EVE, Desk, message, refused
from tests.sessiond.keeping import chained, fork, redact

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
    assert changes.erased
    assert not changes.events
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
