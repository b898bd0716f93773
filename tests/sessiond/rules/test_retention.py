"""Rules of retention: what is too old goes, what is held stays."""

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.rows import SessionRow
from sessiond.rules import removal
from sessiond.rules.retention import Retention
from sessiond.store import Transaction
from sessiond.store_documents import DocumentRow
from tests.sessiond.desk import EVE, Desk, message, refused
from tests.sessiond.keeping import delete

DAY = 24 * 3600.0


def keep(desk: Desk, data: bytes, *, workspace: str = "default") -> None:
    """Write the next version of a workspace's rules."""

    def put(tx: Transaction) -> None:
        newest = tx.documents.newest(workspace, "retention", "default")
        tx.documents.add(
            DocumentRow(
                workspace=workspace,
                kind="retention",
                name="default",
                version=newest.version + 1 if newest else 1,
                time=desk.clock.wall(),
                data=data,
            )
        )

    desk.run(put)


def age(desk: Desk, *session_ids: str) -> list[str]:
    gone: list[SessionRow] = desk.run(lambda tx: removal.delete_aged(tx, session_ids))
    return [session.session_id for session in gone]


@pytest.mark.parametrize(
    ("data", "rules"),
    [
        (b"{}", Retention()),
        (b'{"hold":true}', Retention(hold=True)),
        (b'{"maximum_age_days": 30}', Retention(maximum_age_days=30)),
        (b'{"maximum_age_days": null, "hold": false}', Retention()),
    ],
)
def test_each_member_is_optional(data: bytes, rules: Retention) -> None:
    assert Retention.parse(data) == rules


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"maximum_age_days": 0}',
        b'{"maximum_age_days": -1}',
        b'{"maximum_age_days": 36501}',
        b'{"maximum_age_days": 1.5}',
        b'{"maximum_age_days": "30"}',
        b'{"hold": 1}',
        b'{"hold": null}',
        b'{"max_age_days": 30}',
        b"\xff",
    ],
)
def test_nonsense_is_refused_and_never_read_as_no_rule(data: bytes) -> None:
    with pytest.raises(CarpalError) as error:
        Retention.parse(data)
    assert error.value.reason is Reason.INVALID_FIELD
    assert error.value.fields["field"] == "data"


def test_without_an_age_or_under_a_hold_nothing_is_too_old() -> None:
    assert Retention().oldest(10**18) is None
    assert Retention(maximum_age_days=1, hold=True).oldest(10**18) is None
    assert Retention(maximum_age_days=1).oldest(10**18) == 10**18 - int(DAY) * SECOND


def test_a_held_session_is_not_deleted_until_the_hold_is_lifted(desk: Desk) -> None:
    desk.create("sesn_1")
    desk.create("other", workspace="elsewhere")
    keep(desk, b'{"hold":true}')
    with refused(Reason.SESSION_HELD):
        delete(desk, "sesn_1")
    delete(desk, "other", who=EVE)
    keep(desk, b"{}")
    delete(desk, "sesn_1")


def test_a_tombstone_is_deleted_again_also_under_a_hold(desk: Desk) -> None:
    desk.create("sesn_1")
    first = delete(desk, "sesn_1")
    keep(desk, b'{"hold":true}')
    assert delete(desk, "sesn_1") == first


def test_what_did_not_grow_for_too_long_goes_and_what_did_stays(desk: Desk) -> None:
    keep(desk, b'{"maximum_age_days": 10}')
    for session_id in ("old", "grown", "driven"):
        desk.create(session_id, message("a"))
    desk.create("other", message("a"), workspace="elsewhere")
    desk.clock.advance(9 * DAY)
    desk.append("grown", message("b"))
    desk.clock.advance(DAY)
    every = ("old", "grown", "driven", "other", "nowhere")
    assert age(desk, *every) == []  # to the day
    desk.clock.advance(1)
    desk.acquire("session/driven")
    assert age(desk, *every) == ["old"]
    assert age(desk, *every) == []
    desk.clock.advance(10)
    desk.expire()
    keep(desk, b'{"maximum_age_days": 10, "hold": true}')
    assert age(desk, *every) == []
    keep(desk, b'{"maximum_age_days": 10}')
    assert age(desk, *every) == ["driven"]
