"""Process hands in their sandbox: what code in them sees, reaches, keeps and breaks."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from carpal.hand_mark import mark
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.process import ProcessType
from hands.builtin.supervised import SupervisedHand
from hands.contract import MountFailed
from hands.inside import tree
from hands.isolation import bwrap, cgroups, probe, uids
from tests.hands import hostile
from tests.hands.place import PATIENCE, Place, open_place, until
from tests.hands.test_service import provision, refused
from tests.leftovers import nothing_orphaned
from tests.pace import SCALE

ROOT = os.geteuid() == 0
MIB = 1024 * 1024
_PROBLEM = probe.problem()
pytestmark = pytest.mark.skipif(bool(_PROBLEM), reason=_PROBLEM)
as_root = pytest.mark.skipif(not ROOT, reason="the tests do not run as root")


def _has(*controllers: str) -> pytest.MarkDecorator:
    lacks = set(controllers) - cgroups.bases().keys()
    return pytest.mark.skipif(bool(lacks), reason=f"no control groups for {lacks}")


@asynccontextmanager
async def boxes(state: Path, *, end: bool = True) -> AsyncIterator[Place]:
    """A service whose process hands are in a sandbox."""
    async with open_place(state, process=ProcessType(sandbox="required"), end=end) as place:
        yield place


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Place]:
    async with boxes(tmp_path / "state") as place:
        yield place


async def limited(place: Place, hand_id: str = "h", **limits: float) -> str:
    """A hand with limits."""
    request = provision(place, hand_id, limits=pb.Limits(**limits))  # type: ignore[arg-type]
    await place.provision(request)
    return hand_id


async def out(place: Place, hand: str, command: str) -> str:
    """What a command says."""
    return (await place.sh(hand, command)).content


async def test_what_the_machine_has_beside_its_programs_is_not_there_h37(
    box: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_DAEMON", "xyzzy")
    (tmp_path / "planted").write_text("xyzzy")
    hand = await box.hand()
    with closing(socket.socket(socket.AF_UNIX)) as planted:
        planted.bind(str(tmp_path / "s"))
        planted.listen()
        said = await out(
            box,
            hand,
            f"cat {tmp_path}/planted {tmp_path}/s /etc/shadow /etc/hostname /var/run/docker.sock;"
            f" ls {tmp_path} {Path(__file__).parent} /root/.ssh /sys /var/lib /mnt; env;"
            " grep -al xyzzy /proc/*/environ; ls -d /proc/[0-9]* | wc -l",
        )
    assert "xyzzy" not in said
    assert said.count("No such file") >= 9, said
    assert int(said.split("[")[0].split()[-1]) < 10, "its own processes alone"


async def test_it_has_no_capability_and_makes_no_namespace_h37(box: Place) -> None:
    hand = await box.hand()
    said = await out(box, hand, "cat /proc/self/status; id -u")
    lines = dict(line.split(":\t") for line in said.splitlines() if ":\t" in line)
    assert {lines[f"Cap{each}"] for each in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (lines["NoNewPrivs"], lines["Seccomp"]) == ("1", "2")
    assert int(said.split()[-1]) == uids.owner(box.inventory.folder_of(hand))
    denied = """
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
calls = {"ptrace": 101, "bpf": 321, "keyctl": 250, "io_uring_setup": 425, "mount": 165,
    "unshare": 272, "setns": 308, "userfaultfd": 323, "perf_event_open": 298, "pidfd_getfd": 438}
if os.uname().machine == "aarch64":
    calls = {"ptrace": 117, "bpf": 280, "keyctl": 219, "io_uring_setup": 425, "mount": 40,
        "unshare": 97, "setns": 268, "userfaultfd": 282, "perf_event_open": 241, "pidfd_getfd": 438}
for name, number in calls.items():
    ctypes.set_errno(0)
    print(name, libc.syscall(number, 0x10000000, 0, 0, 0, 0), ctypes.get_errno())
ctypes.set_errno(0)
clone = 56 if os.uname().machine == "x86_64" else 220
print("clone", libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0), ctypes.get_errno())
print("clone3", libc.syscall(435, 0, 0), ctypes.get_errno())
for family in (40, 38, 17):
    try:
        socket.socket(family, socket.SOCK_STREAM)
        print("family", family, "open")
    except OSError as error:
        print("family", family, error.errno)
print(socket.socketpair(), os.fork() >= 0)
"""
    said = await out(box, hand, f"python3 - <<'E'\n{denied}\nE")
    answers = dict(line.rsplit(maxsplit=1) for line in said.splitlines() if "-1" in line)
    assert len(answers) == 12, said
    assert set(answers.values()) == {"1", "38"}, said  # EPERM; of clone3, ENOSYS
    assert " open\n" not in said
    assert "True" in said


async def test_nothing_answers_from_outside_h38(box: Place) -> None:
    hand = await box.hand()
    with closing(socket.socket()) as listening:
        listening.bind(("0.0.0.0", 0))
        listening.listen()
        port = listening.getsockname()[1]
        said = await out(
            box,
            hand,
            f"for a in 127.0.0.1 169.254.169.254 10.0.0.1 1.1.1.1 ::1; do"
            f' timeout 2 bash -c "exec 3<>/dev/tcp/$a/{port}" && echo REACHED; done;'
            " timeout 5 getent hosts example.com && echo REACHED; cat /proc/net/dev | wc -l",
        )
    assert "REACHED" not in said
    assert "3" in said, "its loopback alone"


@pytest.mark.parametrize("bound", [pytest.param(True, marks=as_root), False])
async def test_a_hostile_program_sees_reaches_keeps_and_breaks_nothing_outside_its_hand(
    box: Place, tmp_path: Path, bound: bool
) -> None:
    config: dict[str, Any] = {}
    workspace = tmp_path / "bound"
    if bound:
        workspace.mkdir()
        os.chown(workspace, 12345, 12345)
        config["workspace"] = str(workspace)
    mine, other = await box.hand(keep_files=True, **config), await box.hand()
    assert await out(box, other, f"umask 0; printf {hostile.SECRET} >secret; echo up") == "up\n"
    anothers = box.inventory.folder_of(other) / "workspace/secret"
    async with hostile.machine(tmp_path / "outside", anothers) as its:
        its.told["sockets"].append(str(box.inventory.folder_of(other) / "socket"))
        assert await hostile.let_loose(box, mine, its, "python3") == []
        assert await out(box, other, "cat secret") == hostile.SECRET
        await hostile.unharmed(its, box, mine, workspace if bound else None)
    await box.release(other)
    await nothing_orphaned(tmp_path / "state")


async def test_what_a_hostile_program_is_kept_from_it_manages_where_there_is_no_sandbox(
    tmp_path: Path,
) -> None:
    """That it manages nothing in a sandbox is no fault of the program's."""
    async with (
        open_place(tmp_path / "state") as place,
        hostile.machine(tmp_path / "outside") as its,
    ):
        managed = await hostile.let_loose(place, await place.hand(), its, "python3", harms=False)
        await until(lambda: len(its.came) == 4, "not all that was sent came")
    assert {f"read {secret}" for secret in its.secrets} <= set(managed)
    assert {"a folder outside", "another's process", "memory shared outside"} <= set(managed)
    assert "another's environment" in managed
    assert {f"connected {its.told['sockets'][0]}", "an abstract socket"} <= set(managed)
    assert {f"dialled {list(its.told['addresses'][0])}"} <= set(managed)
    assert f"signalled {its.told['pids'][0]}" in managed


async def test_its_environment_is_on_no_command_line_of_the_machine(box: Place) -> None:
    hand = await box.hand(env={"TOKEN": "a-secret-of-the-hands"})
    assert await out(box, hand, "echo $TOKEN") == "a-secret-of-the-hands\n"
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in tree.everyone() if tree.find(pid)]
    assert any(b"--args" in line for line in lines)
    assert not [line for line in lines if b"a-secret-of-the-hands" in line]


@as_root
async def test_what_is_still_root_is_not_found_by_the_hands_path(
    box: Place, tmp_path: Path
) -> None:
    bound = tmp_path / "bound"
    bound.mkdir()
    planted = bound / "setpriv"
    planted.write_text("#!/bin/sh\nid -u >/workspace/ran\n")
    planted.chmod(0o755)
    os.chown(bound, 12345, 12345)
    await box.hand(workspace=str(bound), env={"PATH": "/workspace:/usr/bin:/bin"})
    assert not (bound / "ran").exists()


async def test_its_user_has_a_name(box: Place) -> None:
    hand = await box.hand()
    said = await out(box, hand, "whoami; id -gn; stat -c %a /etc/passwd /etc/group")
    assert said == "hand\nhand\n644\n644\n"


@as_root
async def test_each_live_hand_has_a_user_of_its_own_h40(box: Place) -> None:
    first, second = await box.hand(), await box.hand()
    found = {int(await out(box, each, "touch f; stat -c %u f")) for each in (first, second)}
    assert len(found) == 2
    assert all(uids.FIRST <= uid < uids.FIRST + uids.COUNT for uid in found)


@as_root
async def test_files_on_a_bound_workspace_belong_to_the_hands_user_never_root_h40(
    box: Place, tmp_path: Path
) -> None:
    bound = tmp_path / "bound"
    bound.mkdir()
    error = await refused(
        box.service.provision(
            provision(box, "h-root", config=f'{{"workspace": "{bound}"}}'.encode())
        )
    )
    assert error.reason is Reason.INVALID_FIELD
    assert "config.workspace" in error.message
    os.chown(bound, 12345, 12345)
    hand = await box.hand(workspace=str(bound))
    await out(box, hand, "mkdir d; echo x >d/f")
    await box.run(hand, "write", file_path="g", content="x")
    assert {path.lstat().st_uid for path in bound.rglob("*")} == {12345}
    await box.release(hand)
    assert (bound / "d/f").read_text() == "x\n"


async def test_a_process_that_left_its_session_ends_with_its_hand_h04(
    box: Place, tmp_path: Path
) -> None:
    hand = await box.hand()
    await out(box, hand, "setsid env -i sleep 7213 >/dev/null 2>&1 & disown; sleep 0.1; echo up")
    below = tree.descendants(box.supervisor(hand))
    assert [p for p in below if b"7213" in Path(f"/proc/{p.pid}/cmdline").read_bytes()]
    await box.release(hand)
    assert not [p for p in below if tree.alive(p.pid, p.start)]
    await nothing_orphaned(tmp_path / "state")


async def test_a_hand_started_from_a_thread_that_ends_lives_on_h18(tmp_path: Path) -> None:
    from hands.contract import Order

    folder = tmp_path / "f"
    folder.mkdir(mode=0o700)
    kind = ProcessType(sandbox="required")
    order = Order("h", folder, {}, {}, 60.0)
    states: list[dict[str, object]] = []

    async def make() -> None:
        made = await kind.provision(order, lambda _: None)
        states.append(dict(made.state))
        await made.hand.detach()

    thread = threading.Thread(target=lambda: asyncio.run(make()))
    thread.start()
    await asyncio.to_thread(thread.join, PATIENCE)
    hand = await kind.adopt("h", folder, states[0])
    await hand.release()
    await kind.reap("h", folder)


async def test_a_hand_is_adopted_with_its_state_after_the_daemon_was_killed_h44(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    async with boxes(state, end=False) as place:
        hand = await place.hand()
        await out(place, hand, "cd /tmp; export A=1; echo x >/tmp/f; sleep 7214 & echo up")
    async with boxes(state) as place:
        assert await out(place, hand, "pwd; echo $A; cat f; pgrep -c sleep") == "/tmp\n1\nx\n1\n"


async def test_what_binds_a_socket_in_the_supervisors_place_is_not_adopted(tmp_path: Path) -> None:
    state = tmp_path / "state"
    liar = (
        "import socket, time, struct, json; s = socket.socket(socket.AF_UNIX);"
        "s.bind('/run/carpal/socket'); s.listen(); print('up', flush=True);"
        "hello = json.dumps({'event': 'hello', 'pid': 1, 'start': 1, 'calls': []}).encode();"
        "c = s.accept()[0]; c.sendall(struct.pack('>I', len(hello)) + hello); time.sleep(60)"
    )
    async with boxes(state, end=False) as place:
        hand = await place.hand()
        command = f'rm /run/carpal/socket; python3 -c "{liar}" & sleep 1; echo done'
        assert "up" in await out(place, hand, command)
        supervisor = place.supervisor(hand)
    async with boxes(state) as place:
        assert place.inventory.count == 0
        assert tree.find(supervisor) is None
        await nothing_orphaned(state)


async def test_a_symlink_in_a_sockets_place_leads_the_daemon_to_no_other_hand(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    async with boxes(state, end=False) as place:
        other, hostile = await place.hand(), await place.hand()
        theirs = place.inventory.folder_of(other) / "socket"
        await out(place, hostile, f"cd /run/carpal && rm socket && ln -s {theirs} socket")
        assert (place.inventory.folder_of(hostile) / "socket").is_symlink()
    async with boxes(state) as place:
        # To be connected to would have cost it the daemon's own connection.
        assert await out(place, other, "echo on") == "on\n"
        assert set(place.inventory.keepers) == {other}
        lost = place.journal.hand(hostile)
        assert lost is not None
        assert "in its socket's place" in lost.reason


@_has("pids")
@pytest.mark.parametrize(
    "bomb",
    [
        ":(){ :|:& };:",
        "python3 -c 'import os\nwhile 1:\n try: os.fork(); os.setsid()\n except OSError: pass'",
    ],
)
async def test_a_fork_bomb_meets_its_limit_and_the_next_call_works_h09_h33(
    box: Place, bomb: str
) -> None:
    hand = await limited(box, processes=64)
    result = await box.sh(hand, bomb, limit=1.0)
    assert result.outcome in (pb.OUTCOME_TIMED_OUT, pb.OUTCOME_OK, pb.OUTCOME_ERROR)
    async with asyncio.timeout(10 * SCALE):
        assert "on" in await out(box, hand, "echo on")


@_has("memory")
async def test_memory_that_runs_out_ends_the_command_alone_and_is_named_h13_h34(box: Place) -> None:
    hand = await limited(box, memory_bytes=96 * MIB)
    result = await box.sh(hand, "python3 -c 'x = b\"x\" * (300 << 20)'; echo rc=$?")
    assert "[out of memory: limit 96 MiB]" in result.content, result
    assert "rc=137" in result.content
    again = await box.sh(hand, "exec python3 -c 'x = b\"x\" * (300 << 20)'")
    assert again.outcome == pb.OUTCOME_ERROR
    assert "[out of memory: limit 96 MiB]" in again.content
    assert await out(box, hand, "echo on") == "on\n"


@as_root
async def test_a_full_disk_is_full_inside_alone_and_recovers_h35(
    box: Place, tmp_path: Path
) -> None:
    hand = await limited(box, disk_bytes=8 * MIB)
    before = os.statvfs(tmp_path).f_bavail
    result = await box.sh(hand, "cat /dev/zero >a; cat /dev/zero >/tmp/b; cat /dev/zero >~/c; pwd")
    assert result.content.count("No space left") == 3, result
    assert "/workspace" in result.content
    assert before - os.statvfs(tmp_path).f_bavail < 4 * MIB / os.statvfs(tmp_path).f_bsize
    await box.sh(hand, "cat /dev/zero >/run/carpal/fill")
    assert "on" in await out(box, hand, "rm -f a /tmp/b ~/c /run/carpal/fill; echo on >f; cat f")
    await box.release(hand)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@as_root
@pytest.mark.parametrize("adopted", [False, True])
async def test_a_save_is_no_larger_than_the_hands_disk_whatever_its_files_seem_to_be(
    tmp_path: Path, adopted: bool
) -> None:
    taken = 0

    async def take(piece: bytes) -> None:
        nonlocal taken
        taken += len(piece)

    async with boxes(tmp_path / "state", end=not adopted) as place:
        hand = await limited(place, disk_bytes=4 * MIB)
        await out(place, hand, "head -c 3M /dev/urandom >full")
        if not adopted:
            assert "1 member" in await saved(place, hand, take)
            assert taken > 3 * MIB
        taken = 0
        await out(place, hand, "truncate -s 40M holes")
        if not adopted:
            with pytest.raises(MountFailed, match="have holes"):
                await saved(place, hand, take)
    if adopted:
        async with boxes(tmp_path / "state") as place:
            with pytest.raises(MountFailed, match="have holes"):
                await saved(place, hand, take)
    assert taken < 10 * MIB


async def saved(place: Place, hand: str, take: Callable[[bytes], Awaitable[None]]) -> str:
    """A save of a hand's, as its keeper does it."""
    its = place.inventory.keepers[hand]._hand
    assert isinstance(its, SupervisedHand)
    return await its.save(take)


@_has("cpu")
async def test_processors_are_shared_out_as_asked(box: Place) -> None:
    hand = await limited(box, cpus=0.25)
    said = await out(box, hand, "timeout 1.5 bash -c 'while :; do :; done'; times")
    user, system = said.splitlines()[1].split()[:2]
    spent = sum(float(each.removeprefix("0m").removesuffix("s")) for each in (user, system))
    assert spent < 0.9, said


async def test_a_limit_no_hand_of_this_machine_keeps_is_refused_by_name_h10(box: Place) -> None:
    request = provision(
        box, "h-both", limits=pb.Limits(memory_bytes=128 * MIB, disk_bytes=512 * MIB)
    )
    error = await refused(box.service.provision(request))
    assert error.reason is Reason.LIMIT_NOT_ENFORCEABLE
    assert "disk_bytes" in error.message


async def test_a_release_leaves_no_process_group_mount_or_folder_h45(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with boxes(state) as place:
        hand = await (limited(place, disk_bytes=8 * MIB) if ROOT else place.hand())
        folder = place.inventory.folder_of(hand)
        await out(place, hand, "setsid sleep 7215 & mkdir -p a/b; chmod 0 a; echo up")
        supervisor = place.supervisor(hand)
        assert await place.release(hand)
        assert await place.release(hand), "again is no error"
        assert not folder.exists()
        assert tree.find(supervisor) is None
        found = cgroups.find(cgroups.name_of(folder), cgroups.bases())
        assert not found.folders
        assert str(folder) not in Path("/proc/self/mountinfo").read_text()
        await until(lambda: not list(tree._marked(os.fsencode(mark(folder)))), "a process is left")
        await nothing_orphaned(state)


async def test_a_sandbox_that_is_required_and_cannot_be_made_is_no_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bwrap, "PATH", "/usr/bin:/bin")
    async with boxes(tmp_path / "state") as place:
        health = await place.service.probe(pb.ProbeRequest(type="process"))
        assert health.state == pb.PROBE_STATE_BROKEN
        error = await refused(place.service.provision(provision(place, "h")))
        assert "bubblewrap is not installed" in error.message
