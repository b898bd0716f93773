"""Hands whose tools a class of ours runs, in a sandbox: what it sees, reaches, keeps and leaves."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin import common, egress
from hands.builtin.sandboxed import Kind, SandboxedType
from hands.contract import Description, Tool
from hands.inside import tree
from hands.isolation import bwrap, cgroups, probe
from tests.hands.forwarder.place import host
from tests.hands.life.test_mounts import Kept
from tests.hands.place import Place, open_place
from tests.hands.test_unasked import heard
from tests.leftovers import nothing_orphaned

_PROBLEM = probe.problem()
pytestmark = pytest.mark.skipif(bool(_PROBLEM), reason=_PROBLEM)

CLASS = """
import asyncio, os, subprocess, sys, time
from hands.api import HandLost, ToolError
from hands.plugins.hosted import Hosted

class It(Hosted):
    async def make(self, config, context):
        print('one moment')
        if config.get('broken'):
            raise ToolError('it is broken')
        self.n = 0
        return 'It is there.'

    async def call(self, name, given, context):
        if name == 'sh':
            done = subprocess.run(['bash', '-c', given['command']], capture_output=True, text=True)
            return done.stdout + done.stderr
        if name == 'count':
            self.n += 1
            return str(self.n)
        if name == 'attach':
            context.attach(b'abc', 'text/plain', 'a.txt')
            context.event('done', {'n': self.n})
            return 'attached'
        if name == 'eat':
            held = bytearray(1024 ** 3)
            return str(len(held))
        if name == 'wait':
            print('began', flush=True)
            await asyncio.sleep(600)
        raise HandLost('it is over')

    async def release(self):
        open('released', 'w').close()
"""
_TEXT = {"type": "string"}
_NAMES = ("count", "attach", "eat", "wait", "lose")


def kind(**more: Any) -> SandboxedType:
    schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "workspace": common.WORKSPACE,
            "egress": egress.SCHEMA,
            "broken": {"type": "boolean"},
        },
        "additionalProperties": False,
    }
    tools = [
        Tool("sh", "Run.", {"type": "object", "properties": {"command": _TEXT}}),
        *(Tool(name, name, {"type": "object", "properties": {}}) for name in _NAMES),
    ]
    described = Description("it", "A test's.", tools, schema, ("adopt", "events"))
    # The class is in the workspace, beside which all packages of the daemon are.
    path = {"PYTHONPATH": f"{bwrap.CODE}:{bwrap.WORKSPACE}"}
    return SandboxedType(Kind(described, "it:It", environment=path, **more))


@asynccontextmanager
async def places(
    tmp_path: Path, *, hands: SandboxedType | None = None, end: bool = True, **more: Any
) -> AsyncIterator[Place]:
    """A service that has such hands; what is left of them is killed at its end."""
    made = hands or kind()
    state = tmp_path / "state"
    try:
        async with open_place(state, more={"it": made}, end=end, **more) as place:
            yield place
    finally:
        for folder in (state / "hands").iterdir() if end else ():
            await made.reap(folder.name, folder)


def written(tmp_path: Path) -> str:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    (folder / "it.py").write_text(CLASS)
    folder.chmod(0o777)
    return str(folder)


async def a_hand(place: Place, tmp_path: Path, limits: Any = None, **config: Any) -> str:
    return await place.hand(type="it", workspace=written(tmp_path), limits=limits, **config)


async def out(place: Place, hand: str, command: str) -> str:
    return (await place.run(hand, "sh", command=command)).content


async def test_a_class_runs_in_the_sandbox_with_a_state_of_its_own_and_the_daemons_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_DAEMON", "xyzzy")
    (tmp_path / "planted").write_text("xyzzy")
    async with places(tmp_path) as place:
        request = pb.ProvisionRequest(driver=place.driver(), hand_id="hosted", type="it")
        request.config = f'{{"workspace": "{written(tmp_path)}"}}'.encode()
        steps = [step async for step in place.service.provision(request)]
        assert "one moment" in [step.progress.message for step in steps[:-1]]
        assert steps[-1].result.note == "It is there."
        assert [(await place.run("hosted", "count")).content for _ in range(2)] == ["1", "2"]
        said = await out(
            place,
            "hosted",
            f"cat {tmp_path}/planted /etc/shadow; env; id -u; ls -d /proc/[0-9]* | wc -l; grep -E"
            f" 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status; touch {bwrap.CODE}/hands/x"
            f" {bwrap.PACKAGES}/x /usr/x",
        )
        assert "xyzzy" not in said
        assert str(Path(tree.__file__).parents[2]) not in said, "where the daemon is, is not told"
        assert "\n0\n" not in said, "it is never root"
        assert "CapEff:\t0000000000000000" in said
        assert "NoNewPrivs:\t1" in said
        assert "Seccomp:\t2" in said
        assert said.count("Read-only file system") >= 2
        imported = f"{bwrap.hosting_python()} -c 'import grpc, msgspec; print(grpc.__file__)'"
        assert (await out(place, "hosted", imported)).startswith(("/opt/python/", "/usr/"))
        assert await place.release("hosted")
        assert (tmp_path / "work/released").exists()
    await nothing_orphaned(tmp_path / "state")


async def test_its_way_out_is_the_forwarder_alone(tmp_path: Path) -> None:
    async with host() as there, host() as other, places(tmp_path) as place:
        hand = await a_hand(place, tmp_path, egress=[{"host": f"127.0.0.1:{there.port}"}])
        get = "curl -sS --noproxy '' http://127.0.0.1:{}/"
        assert "hi" in await out(place, hand, get.format(there.port))
        assert "no rule" in await out(place, hand, get.format(other.port)) or not other.heads
        direct = f"curl -sS --noproxy '*' http://127.0.0.1:{other.port}/"
        assert "onnect" in await out(place, hand, direct)
        assert not other.heads


async def test_a_sandbox_within_it_can_be_made_only_by_a_kind_that_is_to(tmp_path: Path) -> None:
    command = "unshare -Ur true && echo made"
    async with places(tmp_path) as place:
        assert "made" not in await out(place, await a_hand(place, tmp_path), command)
    async with places(tmp_path, hands=kind(namespaces=True)) as place:
        hand = await a_hand(place, tmp_path)
        assert "made" in await out(place, hand, command)
        mounting = await out(place, hand, "unshare -Urm mount -t tmpfs x /tmp; unshare -Urm true")
        assert "ermi" in mounting, "to mount is refused there too"


async def test_what_it_attaches_and_says_unasked_leaves_the_hand(tmp_path: Path) -> None:
    blobs = Kept()
    async with places(tmp_path, blobs=blobs) as place:
        hand = await a_hand(place, tmp_path)
        result = await place.run(hand, "attach")
        assert (result.content, result.attachments[0].name) == ("attached", "a.txt")
        assert list(blobs.blobs.values()) == [b"abc"]
        assert [event.kind for event in await heard(place)] == ["done"]


async def test_a_call_is_cancelled_and_one_that_does_not_end_is_lost_with_its_hand(
    tmp_path: Path,
) -> None:
    async with places(tmp_path) as place:
        hand = await a_hand(place, tmp_path)
        call = place.begin(place.request(hand, "wait"))
        assert (await call.output()).startswith(b"began")
        await place.service.cancel(
            pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
        )
        assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
        assert (await place.run(hand, "count")).content == "1"
        result = await place.run(hand, "lose")
        assert result.outcome == pb.OUTCOME_LOST
        assert "it is over" in result.content
        await place.release(hand)
    await nothing_orphaned(tmp_path / "state")


async def test_why_its_class_makes_no_hand_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    async with places(tmp_path) as place:
        with pytest.raises(CarpalError) as caught:
            await a_hand(place, tmp_path, broken=True)
        assert "it is broken" in caught.value.message
        with pytest.raises(CarpalError) as caught:
            await a_hand(place, tmp_path, unknown=1)
        assert caught.value.fields["field"] == "config.unknown"
    await nothing_orphaned(tmp_path / "state")


@pytest.mark.skipif("memory" not in cgroups.bases(), reason="no control group for memory")
async def test_its_own_memory_limit_holds_where_none_was_asked_for(tmp_path: Path) -> None:
    most = 256 * 1024 * 1024
    async with places(tmp_path, hands=kind(defaults={"memory_bytes": most})) as place:
        hand = await a_hand(place, tmp_path)
        result = await place.run(hand, "eat")
        assert result.outcome == pb.OUTCOME_LOST
        assert "out of memory: limit 256 MiB" in result.content
        other = await a_hand(place, tmp_path, limits={"memory_bytes": 2 * 1024**3})
        assert (await place.run(other, "eat")).content == str(1024**3)


async def test_a_daemon_that_was_killed_adopts_it_with_its_state_and_its_way_out(
    tmp_path: Path,
) -> None:
    hands = kind()
    async with host() as there:
        async with places(tmp_path, hands=hands, end=False) as place:
            hand = await a_hand(place, tmp_path, egress=[{"host": f"127.0.0.1:{there.port}"}])
            await place.run(hand, "count")
        async with places(tmp_path, hands=hands) as place:
            assert (await place.run(hand, "count")).content == "2"
            get = f"curl -sS --noproxy '' http://127.0.0.1:{there.port}/"
            assert "hi" in await out(place, hand, get)
            await place.release(hand)
    await nothing_orphaned(tmp_path / "state")


async def test_a_supervisor_that_is_killed_takes_all_along(tmp_path: Path) -> None:
    async with places(tmp_path) as place:
        hand = await a_hand(place, tmp_path)
        await out(place, hand, "setsid sleep 4321 >/dev/null 2>&1 &")
        call = place.begin(place.request(hand, "wait"))
        await call.output()
        os.kill(place.supervisor(hand), signal.SIGKILL)
        assert (await call.result()).outcome == pb.OUTCOME_LOST
        await place.release(hand)
    await nothing_orphaned(tmp_path / "state")


async def test_without_a_sandbox_there_is_no_such_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "problem", lambda: "bubblewrap is not installed; install it")
    async with places(tmp_path) as place:
        health = await place.service.probe(pb.ProbeRequest(type="it"))
        assert health.state == pb.PROBE_STATE_BROKEN
        assert "needs a sandbox" in health.reason
        with pytest.raises(CarpalError) as caught:
            await a_hand(place, tmp_path)
        assert caught.value.reason is Reason.PROVISION_FAILED
        assert "bubblewrap is not installed" in caught.value.message
