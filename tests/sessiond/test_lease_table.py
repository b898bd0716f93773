"""The live leases as watchers see them, and when the next one expires."""

from msgspec.structs import replace

from sessiond.clock import SECOND
from sessiond.lease_table import LeaseChanges, LeaseTable
from sessiond.rows import LeaseRow, LeaseState


def lease(resource: str, expires: int, epoch: int = 1, **fields: object) -> LeaseRow:
    row = {"holder": "b", "term": 10 * SECOND} | fields
    return LeaseRow(resource=resource, epoch=epoch, expires=expires, **row)  # type: ignore[arg-type]


def changed(changes: LeaseChanges) -> list[LeaseRow]:
    return [row for _, row in changes.take_now(100)]


def test_a_watch_is_a_snapshot_and_then_every_change_but_renewals() -> None:
    table = LeaseTable()
    one, two = lease("brain/a", 10), lease("brain/b", 20)
    table.update([one, two, lease("daemon/c", 5)])
    with table.watch(lambda row: row.resource.startswith("brain/")) as (live, changes):
        assert live == [one, two]
        table.update([replace(one, expires=30)])
        assert changed(changes) == []
        moved = lease("brain/a", 40, epoch=2, address="elsewhere:1")
        ended = replace(two, state=LeaseState.EXPIRED)
        table.update([moved, ended, lease("daemon/c", 9, epoch=2)])
        assert changed(changes) == [moved, ended]
    with table.watch(lambda row: True) as (live, _):
        assert [(row.resource, row.epoch) for row in live] == [("brain/a", 2), ("daemon/c", 2)]


def test_the_next_expiry_follows_renewals_takeovers_and_ends() -> None:
    table = LeaseTable()
    assert table.next_expiry() is None
    a, b = lease("session/a", 10), lease("session/b", 20)
    table.update([a, b])
    assert table.next_expiry() == 10
    table.update([replace(a, expires=30)])
    assert table.next_expiry() == 20
    table.update([replace(b, state=LeaseState.RELEASED)])
    assert table.next_expiry() == 30
    table.update([lease("session/a", 25, epoch=2)])
    assert table.next_expiry() == 25
    table.update([lease("session/a", 25, epoch=2, state=LeaseState.RELEASED)])
    assert table.next_expiry() is None


def test_a_lease_renewed_for_ever_does_not_pile_up() -> None:
    table = LeaseTable()
    for expires in range(10_000):
        table.update([lease("session/a", expires)])
        table.next_expiry()
    assert len(table._heap) == 1
