"""The lease table: who holds what, under which epoch, until when (invariant 4; S02, S03, S14)."""

from collections.abc import Callable

import pytest

from carpal.identity import Identity
from carpal.status import Reason
from sessiond.clock import SECOND
from sessiond.rows import LeaseState
from sessiond.store import Store
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, BRAIN, OTHER, Desk, message, refused, reply


def test_two_brains_that_want_one_session_one_wins_and_the_loser_cannot_append_s02(
    desk: Desk,
) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    won = desk.acquire("session/sesn_1", who=BRAIN)
    with refused(Reason.LEASE_HELD) as lost:
        desk.acquire("session/sesn_1", who=OTHER)
    assert lost.value.fields["holder"] == BRAIN.uri
    assert lost.value.fields["address"] == "brain-1:1"
    for epoch in (won.lease.epoch, won.lease.epoch + 1):
        with refused(Reason.STALE_EPOCH):
            desk.append("sesn_1", reply("b"), who=OTHER, epoch=epoch)
    desk.append("sesn_1", reply("b"), epoch=won.lease.epoch)


@pytest.mark.parametrize("successor", [OTHER, BRAIN], ids=["another", "the same name"])
def test_a_brain_stopped_past_its_lease_can_do_nothing_when_it_goes_on_s03(
    desk: Desk, successor: Identity
) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    old = desk.acquire("session/sesn_1", who=BRAIN).lease.epoch
    desk.append("sesn_1", reply("b"), epoch=old)
    desk.clock.advance(11)
    desk.expire()
    new = desk.acquire("session/sesn_1", who=successor).lease.epoch
    before = desk.session()
    attempts: list[Callable[[], object]] = [
        lambda: desk.renew("session/sesn_1", old),
        lambda: desk.append("sesn_1", reply("c"), epoch=old),
        lambda: desk.append("sesn_1", reply("b"), epoch=old),
        lambda: desk.release("session/sesn_1", old, 2),
        lambda: desk.release("session/sesn_1", old, failure="late"),
    ]
    for attempt in attempts:
        with refused(Reason.STALE_EPOCH):
            attempt()
    assert desk.session() == before
    desk.append("sesn_1", reply("c"), who=successor, epoch=new)


def test_an_expired_lease_can_do_nothing_even_while_nobody_took_it(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.clock.advance(10)
    for recorded in (False, True):
        if recorded:
            desk.expire()
        with refused(Reason.STALE_EPOCH):
            desk.renew("session/sesn_1", epoch)
        with refused(Reason.STALE_EPOCH):
            desk.release("session/sesn_1", epoch, 1)
    assert desk.session().processed == 0


def test_every_grant_has_a_higher_epoch_also_for_the_same_holder(desk: Desk) -> None:
    desk.create()
    epochs = [desk.acquire("session/sesn_1").lease.epoch]
    epochs.append(desk.acquire("session/sesn_1").lease.epoch)
    desk.release("session/sesn_1", epochs[-1])
    epochs.append(desk.acquire("session/sesn_1", who=OTHER).lease.epoch)
    desk.clock.advance(11)
    desk.expire()
    epochs.append(desk.acquire("session/sesn_1").lease.epoch)
    assert epochs == sorted(set(epochs))


def test_a_lease_lives_one_term_from_its_last_renewal(desk: Desk) -> None:
    desk.create()
    held = desk.acquire("session/sesn_1", term=2 * SECOND).lease
    for _ in range(5):
        desk.clock.advance(1.5)
        lease = desk.renew("session/sesn_1", held.epoch)
        assert lease.expires == desk.clock.steady() + 2 * SECOND
    desk.clock.advance(2)
    with refused(Reason.STALE_EPOCH):
        desk.renew("session/sesn_1", held.epoch)


def test_only_the_holder_renews_and_releases(desk: Desk) -> None:
    desk.create()
    epoch = desk.acquire("session/sesn_1").lease.epoch
    with refused(Reason.STALE_EPOCH):
        desk.renew("session/sesn_1", epoch, who=OTHER)
    with refused(Reason.STALE_EPOCH):
        desk.release("session/sesn_1", epoch, who=OTHER)
    with refused(Reason.STALE_EPOCH):
        desk.renew("session/nowhere", 1)


def test_releasing_again_is_the_first_answer(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    released = desk.release("session/sesn_1", epoch, 1)
    desk.append("sesn_1", message("b"), wake=True)
    again = desk.release("session/sesn_1", epoch, 1, failure="said only the second time")
    assert released is not None
    assert again is not None
    assert (again.processed, again.attempts, again.wake) == (1, 0, 2)
    with refused(Reason.STALE_EPOCH):
        desk.renew("session/sesn_1", epoch)


def test_processed_beyond_the_head_is_refused_and_never_falls(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), message("b"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    with refused(Reason.INVALID_FIELD):
        desk.release("session/sesn_1", epoch, 3)
    desk.release("session/sesn_1", epoch, 2)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.release("session/sesn_1", epoch, 1)
    assert desk.session().processed == 2


def test_a_session_is_never_taken_over_but_a_daemon_is(desk: Desk) -> None:
    desk.create()
    with refused(Reason.TAKEOVER_NOT_ALLOWED):
        desk.acquire("session/sesn_1", takeover=True)
    first = desk.acquire("daemon/lab", who=BRAIN, workspace="default").lease
    with refused(Reason.LEASE_HELD):
        desk.acquire("daemon/lab", who=OTHER, workspace="default")
    second = desk.acquire("daemon/lab", who=OTHER, workspace="default", takeover=True).lease
    assert second.epoch == first.epoch + 1
    with refused(Reason.STALE_EPOCH):
        desk.renew("daemon/lab", first.epoch, who=BRAIN)


def test_a_brains_name_is_its_own(desk: Desk) -> None:
    first = desk.acquire("brain/brain-1").lease
    assert desk.acquire("brain/brain-1", takeover=True).lease.epoch == first.epoch + 1
    for takeover in (False, True):
        with refused(Reason.TAKEOVER_NOT_ALLOWED):
            desk.acquire("brain/brain-1", who=OTHER, takeover=takeover)
    desk.clock.advance(60)
    with refused(Reason.TAKEOVER_NOT_ALLOWED):
        desk.acquire("brain/brain-1", who=OTHER)


def test_a_lease_says_its_workspace(desk: Desk) -> None:
    desk.create()
    assert desk.acquire("session/sesn_1", workspace="ignored").lease.workspace == "default"
    assert desk.acquire("daemon/lab", workspace="w").lease.workspace == "w"
    assert desk.acquire("brain/brain-1").lease.workspace == ""
    with refused(Reason.INVALID_FIELD):
        desk.acquire("daemon/lab")


@pytest.mark.parametrize(
    "resource", ["", "session", "session/", "hand/x", "brain/a/b", "daemon/A", "sessionx/y"]
)
def test_a_malformed_resource_is_refused(desk: Desk, resource: str) -> None:
    with refused(Reason.INVALID_FIELD):
        desk.acquire(resource, workspace="w")


@pytest.mark.parametrize("term", [SECOND // 2 - 1, 60 * SECOND + 1, -SECOND])
def test_a_term_outside_its_bounds_is_refused(desk: Desk, term: int) -> None:
    desk.create()
    with refused(Reason.INVALID_FIELD):
        desk.acquire("session/sesn_1", term=term)


def test_the_lease_of_what_does_not_exist_is_refused(desk: Desk) -> None:
    with refused(Reason.SESSION_NOT_FOUND):
        desk.acquire("session/nowhere")


def test_expiring_ends_what_is_due_and_leaves_the_rest(desk: Desk) -> None:
    desk.create("sesn_1")
    desk.create("sesn_2")
    desk.acquire("session/sesn_1", term=1 * SECOND)
    desk.acquire("session/sesn_2", term=2 * SECOND)
    desk.acquire("daemon/lab", workspace="w", term=1 * SECOND)
    desk.clock.advance(1)
    desk.expire()
    ended = {lease.resource: lease.state for lease in desk.changes.leases}
    assert ended == {"session/sesn_1": LeaseState.EXPIRED, "daemon/lab": LeaseState.EXPIRED}
    assert not desk.session("sesn_1").driven
    assert desk.session("sesn_2").driven


def test_after_a_start_every_live_lease_has_one_full_term(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock)
    for name in ("sesn_1", "sesn_2"):
        desk.create(name, message("a"), wake=True)
        desk.acquire(f"session/{name}", term=5 * SECOND)
    desk.release("session/sesn_2", 1)
    clock.advance(4)
    # Another process, whose steady clock began anew.
    store.clock = anew = FakeClock(wall=clock.wall(), steady=77 * SECOND)
    restarted = Desk(store, anew)
    store.restart()
    assert restarted.session("sesn_2").not_before is None
    restarted.clock.advance(4.9)
    restarted.append("sesn_1", reply("b"), epoch=1)
    with refused(Reason.LEASE_HELD):
        restarted.acquire("session/sesn_1", who=OTHER)
    restarted.clock.advance(0.1)
    restarted.expire()
    assert restarted.acquire("session/sesn_1", who=OTHER).lease.epoch == 2


def test_an_operator_drives_nothing(desk: Desk) -> None:
    desk.create()
    epoch = desk.acquire("session/sesn_1").lease.epoch
    with refused(Reason.STALE_EPOCH):
        desk.append("sesn_1", reply("a"), who=ADA, epoch=epoch)
