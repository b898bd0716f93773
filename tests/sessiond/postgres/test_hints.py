"""What one process tells the others: enough, and no more than one message holds."""

import msgspec

from sessiond.postgres.hints import PAYLOAD_BYTES, Wanted, payloads, tokens
from sessiond.rows import Changes, LeaseRow, SessionRow

ROW = SessionRow(session_id="s", workspace="w", request=b"", created=0, hash=b"", head=3)
LEASE = LeaseRow(resource="session/s", epoch=1, holder="b", term=1, expires=1)


def told(*sessions: SessionRow, lease: LeaseRow | None = None) -> list[str]:
    return list(tokens(Changes(sessions, (lease,) if lease else ())))


def changed(**fields: object) -> SessionRow:
    return msgspec.structs.replace(ROW, **fields)


def test_a_log_that_grew_matters_to_its_tails_alone() -> None:
    assert told(ROW) == ["+s"]
    assert told(changed(wake=3, driven=True)) == ["+s"]
    wanted = Wanted()
    wanted.add(["+s", "+tailed"], {"tailed"})
    assert wanted.sessions == {"tailed"}


def test_what_may_be_driven_or_no_longer_may_matters_to_all() -> None:
    for row in (
        changed(wake=3),
        changed(wake_at=5),
        changed(archived=1),
        changed(deleted=1),
    ):
        assert told(row) == ["=s"]
    assert told(ROW, lease=LEASE) == ["=s", "@session/s"]


def test_hints_fit_in_messages_and_many_become_one() -> None:
    news = [f"={n:0100}" for n in range(200)]
    hints = payloads("me", news)
    assert all(len(hint) <= PAYLOAD_BYTES for hint in hints)
    assert [token for hint in hints for token in hint.split()[1:]] == news
    assert payloads("me", news * 30) == ["me *"]
    everything = Wanted()
    everything.add(["*"], ())
    assert everything
    assert not Wanted()
