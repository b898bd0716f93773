"""Leases are watched: a snapshot, then every change."""

from carpal.status import Reason
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import TERM_SHORT, Bench
from sessiond.conformance.group import Group
from sessiond.conformance.streams import is_live

group = Group("leases")


@group
async def snapshot_then_changes(bench: Bench) -> None:
    """A watch begins with a snapshot of what is live, then tells of every change."""
    here, later = await bench.session(), await bench.session()
    held = (await bench.lease(here.session_id)).lease
    watch = bench.leases("session/")
    await watch.snapshot()
    must(is_live(watch.rows[held.resource]), "the snapshot lacks a live lease")
    must(f"session/{later.session_id}" not in watch.rows, "the snapshot has what does not exist")
    taken = (await bench.lease(later.session_id)).lease
    row = await watch.until(taken.resource, is_live)
    equal("epoch and holder", (row.epoch, row.holder), (taken.epoch, taken.holder))
    await bench.release(later.session_id, taken.epoch)
    await watch.until(taken.resource, lambda row: not is_live(row))
    again = (await bench.lease(later.session_id)).lease
    await watch.until(taken.resource, lambda row: is_live(row) and row.epoch == again.epoch)


@group
async def snapshot_is_whole(bench: Bench) -> None:
    """A snapshot has every lease that was granted before, whoever watches and by whichever way."""
    for seat, watcher in (("brain-2", "brain"), ("brain", "brain-2"), ("brain-2", "operator")):
        made = await bench.session()
        lease = (await bench.lease(made.session_id, stub=bench.caller(seat).stub)).lease
        watch = bench.leases("session/", bench.caller(watcher).stub)
        await watch.snapshot()
        must(lease.resource in watch.rows, f"{watcher} does not see what {seat} was granted")


@group
async def expiry_is_told(bench: Bench) -> None:
    """A watch tells of an expiry within moments of it, and not before."""
    made = await bench.session()
    watch = bench.leases(f"session/{made.session_id}")
    await watch.snapshot()
    before = bench.now()
    lease = (await bench.lease(made.session_id, term=TERM_SHORT)).lease
    after = bench.now()
    await watch.until(lease.resource, lambda row: row.epoch == lease.epoch and not is_live(row))
    must(bench.now() - before >= TERM_SHORT, "it was told before the term was over")
    late = bench.now() - after - TERM_SHORT
    must(late < bench.slack, f"it was told {late:.1f} s late")


@group
async def one_resource(bench: Bench) -> None:
    """A watch of one resource tells of no other."""
    one, other = await bench.session(), await bench.session()
    watch = bench.leases(f"session/{one.session_id}")
    await watch.snapshot()
    await bench.lease(other.session_id)
    lease = (await bench.lease(one.session_id)).lease
    await watch.until(lease.resource, is_live)
    equal("resources", list(watch.rows), [lease.resource])


@group
async def by_kind(bench: Bench) -> None:
    """A watch of daemon/ tells of daemons alone."""
    made = await bench.session()
    watch = bench.leases("daemon/")
    await watch.snapshot()
    await bench.lease(made.session_id)
    resource = f"daemon/{bench.fresh('d')}"
    await bench.acquire(resource, workspace=bench.fresh("check"))
    await watch.until(resource, is_live)
    must(all(name.startswith("daemon/") for name in watch.rows), "it tells of others")


@group
async def prefix_malformed(bench: Bench) -> None:
    """A prefix is session/, brain/, daemon/ or one full resource."""
    for bad in ("", "session", "hand/", "s", "session/a b"):
        with refused(Reason.INVALID_FIELD):
            await bench.leases(bad).read()


@group
async def own_workspace(bench: Bench) -> None:
    """An operator sees the leases of its own workspace, not of another."""
    mine = await bench.session()
    theirs = await bench.session(workspace=bench.caller("other-operator").identity.workspace)
    watches = [bench.leases("session/", bench.operator), bench.leases("session/", bench.other)]
    for watch in watches:
        await watch.snapshot()
    for session in (theirs, mine, theirs):
        await bench.lease(session.session_id)
    await watches[0].until(f"session/{mine.session_id}", is_live)
    await watches[1].until(f"session/{theirs.session_id}", is_live)
    must(f"session/{theirs.session_id}" not in watches[0].rows, "it sees the other's")
    must(f"session/{mine.session_id}" not in watches[1].rows, "the other sees this one's")


@group
async def watched_by_the_vault(bench: Bench) -> None:
    """The vault may watch leases."""
    made = await bench.session()
    watch = bench.leases("session/", bench.caller("vault").stub)
    await watch.snapshot()
    lease = (await bench.lease(made.session_id)).lease
    await watch.until(lease.resource, is_live)
