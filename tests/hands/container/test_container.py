"""Container hands on a real engine: what they take, what they keep in, what they leave."""

import asyncio
import os
import shutil
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.container import ContainerType
from hands.contract import Call, Order, Result
from hands.inside import tree
from hands.isolation import uids
from tests import images
from tests.engine import Engine
from tests.hands import hostile
from tests.hands.bad_input import each_is_told_and_the_hand_stays_usable
from tests.hands.container.conftest import box
from tests.hands.place import Place, open_place, until

PYTHON = "/opt/carpal/lib/loader --library-path /opt/carpal/lib /opt/carpal/bin/python3 -I -S"
"""In a hand: the one brought along, by a line of bash."""


async def test_an_image_without_python_serves_every_tool_with_the_python_brought_along(
    boxes: Place,
) -> None:
    hand = await box(boxes)
    assert (await boxes.sh(hand, "command -v python3; echo $?")).content == "1\n"
    await boxes.run(hand, "write", file_path="notes/a.txt", content="first\nsecond\n")
    await boxes.run(hand, "edit", file_path="notes/a.txt", old_string="second", new_string="2nd")
    assert (await boxes.sh(hand, "cat notes/a.txt; pwd")).content == "first\n2nd\n/workspace\n"
    assert "2nd" in (await boxes.run(hand, "read", file_path="notes/a.txt")).content
    assert "notes/a.txt" in (await boxes.run(hand, "glob", pattern="**/*.txt")).content
    assert "2nd" in (await boxes.run(hand, "grep", pattern="2n")).content


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        ({}, "config.image", "is required"),
        ({"image": "no-such/image:9"}, "config.image", "pull no-such/image:9"),
        ({"image": images.BUSYBOX}, "config.image", "no bash"),
        ({"image": "-v"}, "config.image", "no name of an image"),
        ({"image": "../containers"}, "config.image", "no name of an image"),
        ({"image": f"{images.SHELL}?x=1"}, "config.image", "no name of an image"),
        ({"image": images.SHELL, "runtime": "nope"}, "config.runtime", "runc"),
        ({"image": images.SHELL, "workspace": "here"}, "config.workspace", "absolute"),
        ({"image": images.SHELL, "privileged": True}, "config.privileged", "not known"),
        ({"image": images.SHELL, "env": {"LD_PRELOAD": "x"}}, "config.env.LD_PRELOAD", "name"),
    ],
)
async def test_a_config_that_cannot_be_is_refused_by_its_field_and_leaves_nothing(
    boxes: Place, engine: Engine, config: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(CarpalError) as refused:
        await boxes.hand(type="container", **config)
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.fields["field"] == field
    assert words in str(refused.value)
    assert not engine.containers()
    assert not list(boxes.inventory.folder_of("").iterdir())


async def test_whatever_a_container_hand_is_given_wrongly_is_told_by_its_field(
    boxes: Place,
) -> None:
    await each_is_told_and_the_hand_stays_usable(boxes, "container", {"image": images.SHELL})


@pytest.mark.parametrize("machine", [0, 183])
async def test_an_image_whose_bash_does_not_run_here_is_refused_with_why(
    boxes: Place, engine: Engine, machine: int
) -> None:
    """Without the libraries of a bash that is linked, and one of another architecture."""
    program = bytearray(Path("/bin/bash").read_bytes())
    if machine:
        program[18:20] = machine.to_bytes(2, "little")  # e_machine
    image = f"carpal-test/bash-{machine}"
    await asyncio.to_thread(images.add_bash_alone, engine.client, image, bytes(program))
    try:
        with pytest.raises(CarpalError) as refused:
            await box(boxes, f"{image}:1")
        assert refused.value.fields["field"] == "config.image"
        assert "another architecture" in refused.value.message
        assert not engine.containers()
    finally:
        engine.client.api.remove_image(f"{image}:1")


async def test_no_engine_is_said_by_probe_and_by_provision(state: Path) -> None:
    nowhere = ContainerType(f"unix://{state}/nothing.sock")
    health = await nowhere.probe()
    assert health.broken
    assert "no engine answers" in health.reason
    async with open_place(state, more={"container": nowhere}) as place:
        with pytest.raises(CarpalError, match="no engine answers") as refused:
            await box(place)
    assert refused.value.reason is Reason.PROVISION_FAILED


async def test_a_hand_has_no_rights_and_sees_nothing_of_the_machine_h37(
    boxes: Place, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_DAEMON", "hidden")
    planted = state.parent / "planted"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(planted))
        listening.listen()
        planted.chmod(0o777)
        hand = await box(boxes)

        async def sh(command: str) -> str:
            return str((await boxes.sh(hand, command)).content)

        status = await sh("cat /proc/self/status")
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert f"{name}:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        assert (await sh("id -u")).strip() == str(uids.owner(state / "hands" / hand))
        assert "Operation not permitted" in await sh("unshare -U true")
        assert "Read-only file system" in await sh("echo x >/etc/passwd")
        environment = await sh("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
        assert "hidden" not in environment
        assert str(state) not in environment
        assert await sh("ls -A /var/run/docker.sock /run/docker.sock 2>/dev/null | wc -l") == "0\n"
        assert "exit code" in await sh(f"test -e {planted}")
        assert "exit code" in await sh(f"test -e {state}")
        # Its supervisor, the root of this call, and what the call itself runs.
        assert int(await sh("ls -d /proc/[0-9]* | wc -l")) < 8
        assert f"/{os.getpid()}\n" not in await sh("ls -d /proc/[0-9]*")
        assert (await sh("cat /proc/net/dev | tail -n +3 | wc -l")).strip() == "1", "loopback"
        assert "exit code" in await sh("exec 3<>/dev/tcp/127.0.0.1/22")
        ring = f"{PYTHON} -c 'import ctypes; l = ctypes.CDLL(None, use_errno=True);"
        ring += " print(l.syscall(425, 8, 0), ctypes.get_errno())'"
        assert await sh(ring) == "-1 1\n", "no io_uring"


async def test_the_supervisor_cannot_be_killed_from_inside(boxes: Place) -> None:
    hand = await box(boxes)
    await boxes.sh(hand, "kill -9 1; kill -STOP 1; kill -TERM -1")
    assert (await boxes.sh(hand, "echo here")).content == "here\n"


async def test_a_hostile_program_sees_reaches_keeps_and_breaks_nothing_outside_its_hand(
    boxes: Place, engine: Engine, state: Path
) -> None:
    mine, other = await box(boxes, keep_files=True), await box(boxes)
    await boxes.sh(other, f"umask 0; printf {hostile.SECRET} >secret")
    anothers = state / "hands" / other / "workspace/secret"
    async with hostile.machine(state.parent / "outside", anothers) as its:
        its.told["sockets"] += [str(state / "hands" / other / "socket"), engine.url[7:]]
        assert await hostile.let_loose(boxes, mine, its, PYTHON) == []
        assert (await boxes.sh(other, "cat secret")).content == hostile.SECRET
        await hostile.unharmed(its, boxes, mine)
    assert len(engine.containers()) == 1, "another's"


async def test_files_go_in_and_out_with_a_root_that_is_read_only_h20(boxes: Place) -> None:
    hand = await box(boxes)
    assert "Read-only" in (await boxes.sh(hand, "touch /usr/x")).content
    wrote = await boxes.run(hand, "write", file_path="a/b", content="x\n")
    assert wrote.outcome == pb.OUTCOME_OK
    assert "x" in (await boxes.run(hand, "read", file_path="a/b")).content
    both = "printf '#!/bin/bash\necho ran' >/tmp/p; chmod +x /tmp/p; /tmp/p; echo >~/h; echo ok"
    assert (await boxes.sh(hand, both)).content == "ran\nok\n"


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_debian_as_people_use_it_serves_with_its_own_python_and_git(
    boxes: Place, engine: Engine
) -> None:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("no mmdebstrap here: Debian's package of that name brings it")
    await asyncio.to_thread(images.add_debian, engine.client)
    hand = await box(boxes, image=images.DEBIAN)
    git = "git init -q r && cd r && echo x >f && git add f && git commit -qm first"
    who = "git config --global user.name h && git config --global user.email h@example.com"
    assert (await boxes.sh(hand, f"{who} && {git} && git log --format=%s")).content == "first\n"
    its = "import os, ssl, sqlite3; print(os.getcwd())"
    assert (await boxes.sh(hand, f"/usr/bin/python3 -c '{its}'")).content == "/workspace/r\n"


@pytest.mark.parametrize(("volume", "field"), [("/data", ""), ("/run", "config.image")])
async def test_an_images_volumes_are_no_way_past_the_limit_of_the_disk_h35(
    boxes: Place, engine: Engine, volume: str, field: str
) -> None:
    client = engine.client.api
    base = client.create_container(images.SHELL, command=["true"])["Id"]
    client.commit(base, "carpal-test/volume", "1", changes=[f"VOLUME {volume}"])
    client.remove_container(base)
    try:
        limits = {"disk_bytes": 16 << 20, "memory_bytes": 128 << 20}
        if field:
            with pytest.raises(CarpalError) as refused:
                await box(boxes, "carpal-test/volume:1", limits=limits)
            assert refused.value.fields["field"] == field
        else:
            hand = await box(boxes, "carpal-test/volume:1", limits=limits)
            said = (await boxes.sh(hand, f"ls -A {volume}; echo x >{volume}/f")).content
            assert "Read-only file system" in said
            await boxes.release(hand)
        assert not client.volumes()["Volumes"]
    finally:
        client.remove_image("carpal-test/volume:1")


async def test_a_workspace_with_a_colon_is_refused_by_its_field(boxes: Place, state: Path) -> None:
    owned = state.parent / "a:b"
    owned.mkdir()
    os.chown(owned, 12345, 12345)
    with pytest.raises(CarpalError) as refused:
        await box(boxes, workspace=str(owned))
    assert refused.value.fields["field"] == "config.workspace"


async def test_the_hands_user_has_a_name(boxes: Place) -> None:
    hand = await box(boxes)
    assert (await boxes.sh(hand, "whoami; id -gn; cd ~; pwd")).content == "hand\nhand\n/home/hand\n"
    assert "exit code" in (await boxes.sh(hand, "echo x >>/etc/passwd")).content


@pytest.mark.parametrize("keep", [True, False])
async def test_what_a_call_makes_of_files_is_kept_when_asked(
    kind: ContainerType, state: Path, keep: bool
) -> None:
    folder = state / "hands" / "h"
    folder.mkdir(parents=True)
    order = Order("h", folder, {"image": images.SHELL, "keep_files": keep}, {}, 60.0)
    hand = (await kind.provision(order, lambda _: None)).hand
    steps = [step async for step in hand.execute(Call("c", "bash", {"command": "echo x >a"}))]
    assert isinstance(steps[-1], Result)
    assert [(change.path, change.kept) for change in steps[-1].files] == [("a", keep)]
    await hand.release()
    await kind.reap("h", folder)


async def test_files_on_a_bound_workspace_belong_to_its_group_too(
    boxes: Place, state: Path
) -> None:
    owned = state.parent / "owned"
    owned.mkdir()
    os.chown(owned, 12345, 100)
    hand = await box(boxes, workspace=str(owned))
    await boxes.sh(hand, "echo hi >by-bash")
    assert (owned / "by-bash").stat().st_gid == 100


async def test_files_on_a_bound_workspace_belong_to_its_owner_and_never_to_root_h40(
    boxes: Place, state: Path
) -> None:
    owned = state.parent / "owned"
    owned.mkdir()
    os.chown(owned, 12345, 12345)
    hand = await box(boxes, workspace=str(owned))
    await boxes.sh(hand, "echo hi >by-bash; id -u")
    await boxes.run(hand, "write", file_path="by-tool", content="x")
    assert {path.stat().st_uid for path in owned.iterdir()} == {12345}
    await boxes.release(hand)
    assert sorted(path.name for path in owned.iterdir()) == ["by-bash", "by-tool"]
    roots = state.parent / "roots"
    roots.mkdir()
    with pytest.raises(CarpalError, match="belongs to root"):
        await box(boxes, workspace=str(roots))


async def test_two_hands_are_different_users_and_share_nothing_h42(
    boxes: Place, state: Path
) -> None:
    one, other = await box(boxes), await box(boxes)
    assert uids.owner(state / "hands" / one) != uids.owner(state / "hands" / other)
    await boxes.sh(one, "echo mine >/workspace/f; echo mine >/tmp/f; export A=mine; sleep 60 &")
    seen = await boxes.sh(other, "ls /workspace /tmp; echo $A; ps ax | grep -c '[s]leep'")
    assert "mine" not in seen.content


async def test_a_limit_is_kept_or_refused_and_never_only_warned_of_h10_h23(boxes: Place) -> None:
    hand = await box(boxes, limits={"memory_bytes": 96 << 20, "processes": 40, "cpus": 0.5})
    kept = await boxes.sh(
        hand,
        "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max"
        " /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; :",
    )
    assert kept.content == f"{96 << 20}\n40\n"
    with pytest.raises(CarpalError) as refused:
        await box(boxes, limits={"memory_bytes": 1 << 20})
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.fields["field"] == "limits.memory_bytes"
    assert "must be at least 67108864" in refused.value.message


async def test_a_fork_bomb_stays_inside_and_the_next_call_works_h09_h33(boxes: Place) -> None:
    hand = await box(boxes, limits={"processes": 60})
    bomb = "f() { f | f & }; f; sleep 1"
    result = await boxes.sh(hand, bomb, limit=3)
    assert "Resource temporarily unavailable" in result.content
    assert (await boxes.sh(hand, "echo fine")).content.startswith("fine\n")


async def test_out_of_memory_ends_the_command_and_says_so_with_the_limit_h13_h34(
    boxes: Place,
) -> None:
    hand = await box(boxes, limits={"memory_bytes": 80 << 20})
    result = await boxes.sh(hand, "a=x; while :; do a=$a$a; done")
    assert "[out of memory: limit 80 MiB]" in result.content
    assert (await boxes.sh(hand, "echo fine")).content == "fine\n"


async def test_a_full_disk_is_the_hands_own_and_can_be_emptied_h35_h20(
    boxes: Place, state: Path
) -> None:
    hand = await box(boxes, limits={"disk_bytes": 32 << 20, "memory_bytes": 256 << 20})
    for place in ("/workspace", "~", "/tmp"):
        full = await boxes.sh(hand, f"dd if=/dev/zero of={place}/f bs=1M count=200; echo $?")
        assert "No space left on device" in full.content
        assert (await boxes.sh(hand, f"rm {place}/f; echo ok >{place}/g")).outcome == pb.OUTCOME_OK
    own = await boxes.sh(hand, "dd if=/dev/zero of=/run/carpal/f bs=1M count=200")
    assert "No space left on device" in own.content
    await boxes.sh(hand, "rm /run/carpal/f")
    await boxes.run(hand, "write", file_path="x", content="in memory")
    assert "in memory" in (await boxes.run(hand, "read", file_path="x")).content
    await boxes.release(hand)
    assert str(state) not in Path("/proc/self/mountinfo").read_text()


async def test_a_disk_that_is_the_machines_own_is_not_limited_but_refused_h10(
    boxes: Place, state: Path
) -> None:
    owned = state.parent / "owned"
    owned.mkdir()
    os.chown(owned, 12345, 12345)
    with pytest.raises(CarpalError) as refused:
        await box(boxes, workspace=str(owned), limits={"disk_bytes": 32 << 20})
    assert refused.value.reason is Reason.LIMIT_NOT_ENFORCEABLE
    assert refused.value.fields["field"] == "limits.disk_bytes"


async def test_nothing_goes_out_and_what_is_asked_is_told_why_h38(boxes: Place) -> None:
    hand = await box(boxes)
    ask = (
        "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://example.com/ HTTP/1.1\\r\\n"
        "Host: example.com\\r\\n\\r\\n' >&3; head -1 <&3; env | grep -c -i https_proxy"
    )
    told = (await boxes.sh(hand, ask)).content
    assert told.startswith("HTTP/1.1 403")
    assert told.endswith("\n2\n")
    assert "exit code" in (await boxes.sh(hand, "exec 3<>/dev/tcp/169.254.169.254/80")).content


async def test_release_leaves_nothing_and_again_is_no_error_h45(
    boxes: Place, engine: Engine, state: Path
) -> None:
    hand = await box(boxes)
    pid = boxes.supervisor(hand)
    start = tree.start_time(pid)
    await boxes.sh(hand, "setsid sleep 1000 & nohup sleep 1000 & mkdir d; chmod 0 d")
    assert await boxes.release(hand)
    assert await boxes.release(hand)
    assert not tree.alive(pid, start)
    assert not engine.containers()
    assert not (state / "hands" / hand).exists()
    assert str(state) not in Path("/proc/self/mountinfo").read_text()


async def test_what_left_its_session_and_its_parent_ends_with_the_hand_h04(boxes: Place) -> None:
    hand = await box(boxes)
    await boxes.sh(hand, "(setsid sleep 7272 &) ; setsid nohup sleep 7272 >/dev/null 2>&1 &")
    await until(lambda: _sleeping("7272") == 2, "they do not run")
    await boxes.release(hand)
    assert _sleeping("7272") == 0


def _sleeping(word: str) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() == f"sleep\0{word}\0".encode()
        except OSError:
            continue
    return found


async def test_an_image_whose_bash_plants_a_symlink_as_its_socket_leads_to_no_other_hand(
    boxes: Place, engine: Engine
) -> None:
    victim = await box(boxes)
    theirs = boxes.inventory.folder_of(victim) / "socket"
    bash = f"#!/bin/sh\n/bin/ln -s {theirs} /run/carpal/socket\n/bin/sleep 2\necho planted >&2\n"
    images.add_busybox(engine.client, name := "carpal-test/hostile:1", {"bin/bash": bash})
    with pytest.raises(CarpalError, match="in its socket's place") as refused:
        await box(boxes, name)
    assert refused.value.reason is Reason.PROVISION_FAILED
    assert (await boxes.sh(victim, "echo on")).content == "on\n"
    assert set(boxes.inventory.keepers) == {victim}


def test_a_hand_started_in_a_thread_outlives_that_thread_h18(
    kind: ContainerType, state: Path
) -> None:
    folder = state / "hands" / "h"
    folder.mkdir(parents=True)
    order = Order("h", folder, {"image": images.SHELL}, {}, 60.0)
    made: dict[str, Any] = {}

    async def provision() -> None:
        provisioned = await kind.provision(order, lambda _: None)
        made.update(provisioned.state)
        await provisioned.hand.detach()

    thread = threading.Thread(target=lambda: asyncio.run(provision()))
    thread.start()
    thread.join()

    async def use() -> str:
        hand = await kind.adopt("h", folder, made)
        steps = [s async for s in hand.execute(Call("c", "bash", {"command": "echo alive"}))]
        await hand.release()
        await kind.reap("h", folder)
        assert isinstance(steps[-1], Result)
        return steps[-1].content

    assert asyncio.run(use()) == "alive\n"
