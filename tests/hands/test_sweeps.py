"""What is killed is killed whole, whatever it does about it, and nothing else is."""

import os
import time
from pathlib import Path

import pytest

from carpal import hand_mark
from carpal.v1 import hand_pb2 as pb
from hands.inside import tree
from tests.hands.place import Place, open_place, until
from tests.hands.test_restart import DRIVER, child
from tests.pace import AT_ONCE

STUBBORN = (
    "trap '' TERM HUP; setsid sleep 60 & nohup sleep 61 & (setsid sh -c 'sleep 62 & sleep 63' &) ; "
    "python3 -c 'import os,time; os.fork() or (os.setsid(), os.fork()); time.sleep(64)' & "
)
"""Everything there is to get away by, each way with a process that ignores TERM."""


def below(place: Place, hand: str) -> list[tree.Process]:
    """What lives in a hand."""
    return tree.descendants(place.supervisor(hand))


def _sleepers(place: Place, hand: str) -> int:
    return sum(b"sleep" in Path(f"/proc/{p.pid}/cmdline").read_bytes() for p in below(place, hand))


async def test_a_cancel_takes_everything_along_however_it_detached_h31(
    place: Place, hand: str
) -> None:
    call = place.begin(place.request(hand, command=f"{STUBBORN} echo up; sleep 65"))
    await call.output()
    await until(lambda: _sleepers(place, hand) >= 7, "it did not all start")
    cancel = pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
    cancel.grace.FromMilliseconds(50)
    begun = time.monotonic()
    await place.service.cancel(cancel)
    assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
    assert time.monotonic() - begun < AT_ONCE
    assert not below(place, hand)
    assert (await place.sh(hand, "echo on")).content == "on\n"


@pytest.mark.parametrize("how", ["cancel", "timeout", "release"])
async def test_processes_spawned_while_a_tree_is_killed_are_killed_too_l16(
    place: Place, hand: str, how: str
) -> None:
    """L16: one look at who lives misses what is spawned during the cleanup."""
    hydra = (
        "grow() { setsid sh -c 'trap \"\" TERM; while :; do sleep 60 & sleep 0.01; done' & }; "
        "trap grow TERM; grow; echo up; while :; do sleep 0.02; done"
    )
    request = place.request(hand, command=hydra, limit=1.0 if how == "timeout" else 60.0)
    call = place.begin(request)
    await call.output()
    await until(lambda: len(below(place, hand)) > 5, "it did not grow")
    if how == "release":
        assert await place.release(hand)
        assert not marked(place.inventory.folder_of(hand))
    else:
        cancel = pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
        cancel.grace.FromMilliseconds(200)
        if how == "cancel":
            await place.service.cancel(cancel)
        await call.result()
        assert not below(place, hand)
        assert (await place.sh(hand, "echo on")).content == "on\n"
    await call.leave()


async def test_what_a_dead_daemon_left_is_reaped_at_its_start_and_a_live_one_keeps_its_own_l17(
    tmp_path: Path,
) -> None:
    """L17: of two daemons on one machine with hands of one name, one dies and forgets all."""
    dead, live = tmp_path / "dead", tmp_path / "live"
    async with open_place(live) as place:
        provision = pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="process")
        await place.provision(provision)
        kept = place.begin(place.request("h", command="setsid sleep 60 & echo up; sleep 61"))
        await kept.output()
        mine = below(place, "h")
        async with child(dead) as daemon:
            daemon.ask(provision=provision)
            while not (await daemon.reply()).last:
                pass
            request = pb.ExecuteRequest(driver=DRIVER, hand_id="h", call_id="c", name="bash")
            request.input = b'{"command": "setsid sleep 60 & echo up; sleep 61"}'
            daemon.ask(execute=request)
            assert (await daemon.reply()).execute.output.data == b"up\n"
            await daemon.kill()
        orphans = marked(dead / "hands/h")
        assert len(orphans) >= 3, "they outlive the daemon"
        for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
            (dead / name).unlink(missing_ok=True)
        async with open_place(dead) as again:
            assert not [p for p in orphans if tree.alive(p.pid, p.start)]
            assert not (dead / "hands/h").exists()
            assert again.inventory.count == 0
        assert all(tree.alive(p.pid, p.start) for p in mine)
        await kept.leave()


def marked(folder: Path) -> list[tree.Process]:
    """Processes that carry a hand's mark."""
    mark = os.fsencode(hand_mark.mark(folder))
    found = []
    for process in tree.everyone().values():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            found.append(process)
    return found
