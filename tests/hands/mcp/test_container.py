"""An MCP server in a container: hardened as every container hand's, gone with its hand, adopted."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.hand_mark import mark
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.mcp import McpType
from hands.inside import tree
from tests import images
from tests.engine import Engine
from tests.hands.mcp.conftest import Servers, in_container
from tests.hands.owner.owner import Owner
from tests.hands.place import let_go, open_place, until
from tests.hands.test_restart import child

SERVER = Path(__file__).with_name("server.sh")
WAITS = "mkfifo go; read x < go; echo ran >> log; cat log"


def order(servers: Servers, **config: Any) -> pb.ProvisionRequest:
    """A hand whose server the image's own bash runs."""
    shutil.copy(SERVER, servers.workspace)
    ours = {"command": ["bash", "/workspace/server.sh"], "env": {}}
    return servers.order(**{**ours, **config})


async def made(servers: Servers, **config: Any) -> str:
    """Its id."""
    request = order(servers, **config)
    await servers.place.provision(request)
    return request.hand_id


@in_container
async def test_a_server_in_a_container_has_no_rights_and_sees_nothing_of_the_machine(
    servers: Servers, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_DAEMON", "hidden")
    hand = await made(servers)

    async def sh(line: str) -> str:
        return str((await servers.place.run(hand, "sh", line=line)).content).strip()

    assert await sh("whoami") == "hand"
    assert "0000000000000000" in await sh("grep CapEff /proc/self/status")
    assert await sh("touch /usr/x /opt/carpal-code/x /opt/carpal-packages/0/x; echo $?") == "1"
    assert await sh("env | grep -c SECRET") == "0"
    assert await sh(f"ls {servers.folder} /root/.ssh /var/run/docker.sock; echo $?") == "2"
    (container,) = engine.client.api.containers()
    about = engine.client.api.inspect_container(container["Id"])
    confined = about["HostConfig"]
    assert (confined["NetworkMode"], confined["CapDrop"]) == ("none", ["ALL"])
    assert (confined["ReadonlyRootfs"], confined["Privileged"]) == (True, False)
    assert "no-new-privileges" in confined["SecurityOpt"]
    assert confined["Memory"] == 1024**3, "as an MCP hand has where no limit is asked for"
    assert about["Config"]["Labels"]["carpal.hand"] == hand


@in_container
@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        ({"image": "no-such/image:9"}, "config.image", "pull no-such/image:9"),
        ({"image": images.BUSYBOX}, "config.image", "no bash"),
        ({"runtime": "nope"}, "config.runtime", "runc"),
        ({"image": images.SHELL, "privileged": True}, "config.privileged", "not known"),
        ({"namespaces": True}, "config.namespaces", "container"),
        ({"url": "http://x/mcp", "image": images.SHELL}, "config.image", "url"),
        ({"url": "http://x/mcp", "runtime": "runc"}, "config.runtime", "image"),
    ],
)
async def test_a_container_that_cannot_be_is_refused_by_its_field_and_leaves_nothing(
    servers: Servers, engine: Engine, config: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(CarpalError) as raised:
        await servers.hand(**config)
    assert raised.value.reason is Reason.INVALID_FIELD
    assert raised.value.fields["field"] == field
    assert words in str(raised.value)
    assert not engine.containers()


@in_container
async def test_a_limit_that_cannot_be_kept_or_is_too_small_for_a_server_is_refused(
    servers: Servers, engine: Engine
) -> None:
    request = order(servers)
    request.limits.memory_bytes = 64 * 1024**2
    with pytest.raises(CarpalError) as raised:
        await servers.place.provision(request)
    assert raised.value.fields["field"] == "limits.memory_bytes"
    request = order(servers)
    request.limits.disk_bytes = 64 * 1024**2
    with pytest.raises(CarpalError) as raised:
        await servers.place.provision(request)
    assert raised.value.reason is Reason.LIMIT_NOT_ENFORCEABLE, "its workspace is the machine's"
    assert not engine.containers()


@in_container
async def test_a_program_that_the_image_lacks_makes_no_hand_and_leaves_no_container(
    servers: Servers, engine: Engine
) -> None:
    with pytest.raises(CarpalError) as raised:
        await made(servers, command=["node", "server.js"])
    assert raised.value.reason is Reason.PROVISION_FAILED
    assert "there is no program node in the hand" in raised.value.message
    assert not engine.containers()


@in_container
async def test_a_container_that_is_removed_behind_our_back_is_one_lost_hand(
    servers: Servers, engine: Engine
) -> None:
    other, hand = await made(servers), await made(servers)
    call = servers.place.begin(servers.place.request(hand, "sh", line="sleep 600"))
    named = {each["Labels"]["carpal.hand"]: each["Id"] for each in engine.client.api.containers()}
    engine.client.api.remove_container(named[hand], force=True)
    assert (await call.result()).outcome in (pb.OUTCOME_LOST, pb.OUTCOME_INTERRUPTED)
    assert (await servers.place.run(other, "whoami")).content == "hand"


@in_container
async def test_a_release_amid_a_call_leaves_neither_container_nor_process(
    servers: Servers, engine: Engine
) -> None:
    hand = await made(servers)
    folder = servers.place.inventory.folder_of(hand)
    request = servers.place.request(hand, "sh", line="touch up; setsid sleep 600")
    call = servers.place.begin(request)
    await until((servers.workspace / "up").exists, "the call never ran")
    assert await servers.place.release(hand)
    assert (await call.result()).outcome != pb.OUTCOME_OK
    assert not engine.containers()
    assert not await asyncio.to_thread(tree.kill_marked, mark(folder))


@in_container
async def test_a_hand_released_while_the_engine_is_away_is_dead_and_its_container_removed_later(
    servers: Servers, engine: Engine
) -> None:
    hand = await made(servers)
    pid = servers.place.supervisor(hand)
    start = tree.start_time(pid)
    engine.kill()
    try:
        assert await servers.place.release(hand)
        assert not tree.alive(pid, start)
    finally:
        engine.start()
    assert len(engine.containers()) == 1
    fresh = await made(servers)
    assert len(engine.containers()) == 1, "whoever makes a hand removes what nobody owns"
    assert await servers.place.release(fresh)


@in_container
async def test_a_killed_daemon_finds_the_hand_with_its_call_and_the_call_runs_once(
    servers: Servers, engine: Engine, boxed: McpType
) -> None:
    state = servers.folder / "other"
    driver = servers.place.driver()
    making = order(servers)
    line = json.dumps({"line": WAITS}).encode()
    request = pb.ExecuteRequest(
        driver=driver, hand_id=making.hand_id, call_id="c", name="sh", input=line
    )
    async with child(state, {"CARPAL_TEST_ENGINE": engine.url}) as daemon:
        daemon.ask(provision=making)
        while not (await daemon.reply()).last:
            pass
        daemon.ask(execute=request)
        await until((servers.workspace / "go").exists, "the call never ran")
        await daemon.kill()
    async with open_place(state, more={"mcp": boxed}) as place:
        call = place.begin(request)
        await let_go(servers.workspace / "go")
        assert (await call.result()).content.strip() == "ran"
        assert (await place.run(making.hand_id, "whoami")).content == "hand"
        assert await place.release(making.hand_id)
    assert not engine.containers()


@in_container
async def test_a_hand_whose_container_died_with_its_daemon_is_lost_and_its_call_interrupted(
    servers: Servers, engine: Engine, boxed: McpType
) -> None:
    state = servers.folder / "other"
    making = order(servers)
    line = json.dumps({"line": WAITS}).encode()
    request = pb.ExecuteRequest(
        driver=servers.place.driver(), hand_id=making.hand_id, call_id="c", name="sh", input=line
    )
    async with child(state, {"CARPAL_TEST_ENGINE": engine.url}) as daemon:
        daemon.ask(provision=making)
        while not (await daemon.reply()).last:
            pass
        daemon.ask(execute=request)
        await until((servers.workspace / "go").exists, "the call never ran")
        await daemon.kill()
    (container,) = engine.client.api.containers()
    engine.client.api.kill(container["Id"])
    async with open_place(state, more={"mcp": boxed}) as place:
        result = (await place.steps(request))[-1].result
        assert result.outcome in (pb.OUTCOME_LOST, pb.OUTCOME_INTERRUPTED)
    assert not engine.containers()


async def test_without_an_engine_a_sandboxed_hand_works_and_one_with_an_image_says_what_lacks(
    servers: Servers,
) -> None:
    kind = McpType(engine=f"unix://{servers.folder}/nothing.sock")
    async with open_place(servers.folder / "other", more={"mcp": kind}) as place:
        assert (await kind.probe()).ready
        request = servers.order()
        await place.provision(request)
        assert (await place.run(request.hand_id, "add", a=1, b=2)).content == "3"
        assert await place.release(request.hand_id)
        with pytest.raises(CarpalError, match="no engine answers") as raised:
            await place.provision(servers.order(image=images.SHELL))
        assert raised.value.reason is Reason.PROVISION_FAILED


@in_container
async def test_where_no_sandbox_can_be_made_a_hand_in_a_container_can(
    servers: Servers, engine: Engine, boxed: McpType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")


@in_container
async def test_the_images_that_the_machines_owner_allows_are_those_of_servers_too(
    servers: Servers, engine: Engine, boxed: McpType, tmp_path: Path
) -> None:
    owner = Owner(tmp_path)
    owner.says('images = ["others/*"]')
    async with owner.place(more={"mcp": boxed}) as place:
        with pytest.raises(CarpalError) as raised:
            await place.provision(order(servers))
    assert raised.value.reason is Reason.POLICY_FORBIDS
    assert raised.value.fields["rule"] == "images"
    assert not engine.containers()


async def test_without_the_package_for_containers_the_other_hands_work_and_these_say_what_lacks(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = "import sys; sys.modules['docker'] = None; import hands.builtin.mcp"
    ran = await asyncio.create_subprocess_exec(sys.executable, "-c", hidden)
    assert await ran.wait() == 0
    monkeypatch.setitem(sys.modules, "docker", None)
    hand = await servers.hand()
    assert await servers.place.release(hand)
    with pytest.raises(CarpalError) as raised:
        await servers.hand(image=images.SHELL)
    assert raised.value.reason is Reason.PROVISION_FAILED
    assert "clone[container]" in raised.value.fields["action"]
