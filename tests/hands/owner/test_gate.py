"""The owner has the last word: at the one gate, over real hands."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from grpc_status import rpc_status

from carpal.errors import CarpalError, from_status, invalid, to_status
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import orchestrator_pb2
from hands.blobs import Blobs
from hands.builtin.process import ProcessType
from hands.builtin.socket import SocketType
from hands.contract import Call
from hands.link import dispatch
from hands.owner.audit import Audit
from hands.owner.audit_files import AuditFiles
from hands.owner.gate import Gate, Person
from hands.owner.policy_file import PolicyFile
from tests.hands.hand_server import Least, serving
from tests.hands.place import PATIENCE, Place, open_place
from tests.hands.test_service import provision, refused

KEY = "AKIAABCDEFGHIJKLMNOP"


class Owner:
    """A policy file, and what it leads to."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "policy.toml"
        self.folder = folder / "state"
        self.folder.mkdir()
        self.audit = Audit(self.folder)
        self.file.write_text("")
        self.gate = Gate(PolicyFile(self.file), self.audit)

    def says(self, text: str) -> None:
        """It is in force."""
        self.file.write_text(text)
        with suppress(CarpalError):
            self.gate.reload()

    def told(self, what: str = "") -> list[dict[str, Any]]:
        """The audit's records."""
        self.audit.flush()
        assert AuditFiles(self.folder).verify()[1] == []
        found = [json.loads(text) for _, text in AuditFiles(self.folder).lines()]
        return [each for each in found if not what or each["what"] == what]

    @asynccontextmanager
    async def place(self, **more: Any) -> AsyncIterator[Place]:
        """A daemon's service."""
        async with open_place(self.folder, gate=self.gate, **more) as place:
            yield place


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def forbidden(error: CarpalError, rule: str, owner: Owner) -> None:
    """It is a refusal of the owner's that says which, and the audit has it."""
    assert error.reason is Reason.POLICY_FORBIDS
    assert error.fields["rule"] == rule
    assert f"{rule} in {owner.file}" in error.message
    assert owner.told("refused")[-1]["rule"] == rule


@pytest.mark.parametrize(
    ("text", "more", "rule"),
    [
        ("types = []", {}, "types"),
        ('workspaces = ["another"]', {}, "workspaces"),
        ('folders = ["/srv"]', {"config": b'{"workspace": "/etc"}'}, "folders"),
        ('folders = ["/srv"]', {"config": b'{"cartridge": "/srv/../etc/x"}'}, "folders"),
        ('images = ["a/*"]', {"config": b'{"image": "b/c"}'}, "images"),
        ("hosts = []", {}, "hosts"),
        ("mounts = []", {"mounts": [pb.Mount(source_ref="text:x", mount_path="f")]}, "mounts"),
        ("[limits]\nprocesses = 5", {"limits": pb.Limits(processes=6)}, "limits.processes"),
    ],
)
async def test_a_hand_that_the_policy_forbids_is_not_made_and_the_refusal_names_rule_and_file(
    owner: Owner, text: str, more: dict[str, Any], rule: str
) -> None:
    owner.says(text)
    async with owner.place() as place:
        error = await refused(place.service.provision(provision(place, "h", **more)))
        forbidden(error, rule, owner)
        assert place.journal.hand("h") is None
        assert not owner.told("provision")


@pytest.mark.parametrize("path", ["/tmp/x\0y", "/tmp/\ud800"])
async def test_what_is_no_path_is_refused_as_that_and_the_audit_has_it(
    owner: Owner, path: str
) -> None:
    config = json.dumps({"workspace": path}).encode()
    async with owner.place() as place:
        error = await refused(place.service.provision(provision(place, "h", config=config)))
        assert error.reason is Reason.INVALID_FIELD
        owner.says('folders = ["/tmp"]')
        error = await refused(place.service.provision(provision(place, "h2", config=config)))
        forbidden(error, "folders", owner)
    assert [each["hand"] for each in owner.told("refused")] == ["h", "h2"]


async def test_a_link_in_an_allowed_folder_leads_nowhere_else(owner: Owner, tmp_path: Path) -> None:
    (tmp_path / "free").mkdir()
    (tmp_path / "free/away").symlink_to("/etc")
    owner.says(f'folders = ["{tmp_path}/free"]')
    config = json.dumps({"workspace": f"{tmp_path}/free/away"}).encode()
    async with owner.place() as place:
        error = await refused(place.service.provision(provision(place, "h", config=config)))
        forbidden(error, "folders", owner)


async def test_a_call_of_a_tool_that_the_policy_forbids_is_refused_and_does_not_run(
    owner: Owner,
) -> None:
    owner.says('tools = ["process/bash"]\n[limits]\ncall_seconds = 5')
    async with owner.place() as place:
        hand_id = await place.hand()
        with pytest.raises(CarpalError) as caught:
            await place.run(hand_id, "write", file_path="f", content="x")
        forbidden(caught.value, "tools", owner)
        with pytest.raises(CarpalError) as caught:
            await place.sh(hand_id, "touch f", timeout_ms=6000)
        forbidden(caught.value, "limits.call_seconds", owner)
        with pytest.raises(CarpalError) as caught:
            await place.sh(hand_id, "touch f", limit=6)
        forbidden(caught.value, "limits.call_seconds", owner)
        assert (await place.sh(hand_id, "ls")).content == "[no output]"


async def test_a_call_without_a_time_limit_has_the_owners(owner: Owner) -> None:
    owner.says("[limits]\ncall_seconds = 0.3")
    async with owner.place() as place:
        hand_id = await place.hand()
        assert (await place.sh(hand_id, "sleep 60")).outcome == pb.OUTCOME_TIMED_OUT


class Hours(Least):
    """A hand server that says how long a call was given, by two tools."""

    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.DescribeResponse:
        schema = b'{"type": "object"}'
        given = [
            pb.ToolInfo(name=name, description="t", input_schema=schema)
            for name in ("short", "long")
        ]
        given[0].time_limit.FromSeconds(30)
        given[1].time_limit.FromSeconds(900)
        info = pb.HandTypeInfo(type="hours", description="h", tools=given, config_schema=schema)
        return pb.DescribeResponse(types=[info])

    async def Execute(
        self, request: pb.ExecuteRequest, context: object
    ) -> AsyncIterator[pb.ExecuteResponse]:
        told = f"{request.time_limit.ToNanoseconds() / 1e9:g}"
        yield pb.ExecuteResponse(result=pb.Result(outcome=pb.OUTCOME_OK, content=told))


async def test_the_owners_time_is_a_ceiling_and_lengthens_no_call(
    owner: Owner, tmp_path: Path
) -> None:
    owner.says("[limits]\ncall_seconds = 600")
    at = tmp_path / "hand.sock"
    async with (
        serving(at, Hours()),
        owner.place(more={"hours": SocketType("hours", at)}) as place,
    ):
        hand_id = await place.hand(type="hours")
        assert (await place.run(hand_id, "short")).content == "30"
        assert (await place.run(hand_id, "long")).content == "600"
        assert (await place.run(hand_id, "short", limit=60)).content == "60"


@pytest.mark.parametrize(
    ("asked", "own", "ceiling", "seconds"),
    [(0, 120, 0, 120), (0, 120, 600, 120), (0, 900, 600, 600), (300, 120, 600, 300)],
)
def test_a_call_takes_what_it_asks_for_else_what_its_tool_does_and_never_more_than_the_owner_says(
    asked: float, own: float, ceiling: float, seconds: float
) -> None:
    assert Call("c", "t", {}, asked, ceiling).within(own) == seconds


async def test_it_holds_for_every_type_whoever_wrote_it(owner: Owner) -> None:
    owner.says('types = ["process"]')
    async with owner.place(more={"plug": ProcessType(sandbox="off")}) as place:
        error = await refused(place.service.provision(provision(place, "h", type="plug")))
        forbidden(error, "types", owner)
        owner.says('tools = ["process/*"]')
        hand_id = await place.hand(type="plug")
        with pytest.raises(CarpalError) as caught:
            await place.sh(hand_id, "true")
        forbidden(caught.value, "tools", owner)
        owner.says("hosts = []")
        error = await refused(place.service.provision(provision(place, "h", type="plug")))
        forbidden(error, "hosts", owner)
        owner.says('hosts = []\nopen_network = ["process", "plug"]')
        assert await place.hand(type="plug")


async def test_what_is_not_allowed_is_not_offered(owner: Owner) -> None:
    owner.says('tools = ["bash", "read"]')
    async with owner.place() as place:
        (kind,) = (await place.service.describe(pb.DescribeRequest())).types
        assert {tool.name for tool in kind.tools} == {"bash", "read"}
        assert {"write", "edit"} <= set(kind.forbidden_tools), "it is said that they are not"
        assert not {"bash", "read"} & set(kind.forbidden_tools)
        owner.says('types = ["container"]')
        assert not (await place.service.describe(pb.DescribeRequest())).types


async def test_a_policy_that_narrows_refuses_the_next_calls_of_hands_there_are_and_ends_none(
    owner: Owner,
) -> None:
    async with owner.place() as place:
        hand_id = await place.hand()
        request = place.request(hand_id, command="read line < go; echo done", limit=PATIENCE)
        await place.sh(hand_id, "mkfifo go")
        going = place.begin(request)
        await asyncio.sleep(0)
        owner.says("types = []")
        with pytest.raises(CarpalError) as caught:
            await place.sh(hand_id, "true")
        forbidden(caught.value, "types", owner)
        folder = place.inventory.folder_of(hand_id) / "workspace/go"
        await asyncio.to_thread(folder.write_text, "x\n")
        assert (await going.result()).content == "done\n"
        assert (await place.steps(request))[-1].result.content == "done\n"
        assert await place.release(hand_id)


async def test_a_policy_that_is_wrong_later_leaves_the_one_before_in_force_and_the_audit_says_so(
    owner: Owner,
) -> None:
    owner.says("types = []")
    owner.says("types = 3")
    async with owner.place() as place:
        error = await refused(place.service.provision(provision(place, "h")))
        forbidden(error, "types", owner)
    assert [each["what"] for each in owner.told()][:2] == ["policy", "policy_refused"]


async def test_a_policy_that_names_syslog_later_has_the_lines_sent_there_until_it_does_not(
    owner: Owner, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind(str(tmp_path / "log"))
        there.setblocking(False)
        owner.says(f'syslog = "{tmp_path}/log"')
        owner.audit.flush()
        assert b'"what":"policy"' in there.recv(10_000)
        owner.says("")
        owner.audit.flush()
        with pytest.raises(BlockingIOError):
            there.recv(10_000)


async def test_the_owners_number_of_hands_is_told_to_the_brain_and_kept(owner: Owner) -> None:
    owner.says("[limits]\nhands_max = 1")
    async with owner.place() as place:
        assert place.inventory.capacity.hands_max == 1
        await place.hand()
        error = await refused(place.service.provision(provision(place, "h2")))
        assert error.reason is Reason.AT_CAPACITY
        assert f"limits.hands_max in {owner.file}" in error.message
        owner.says("")
        assert place.inventory.capacity.hands_max == 8


async def test_a_limit_of_the_owners_that_cannot_be_kept_here_says_whose_it_is(
    owner: Owner,
) -> None:
    owner.says("[limits]\ndisk_bytes = 1000000000")
    async with owner.place() as place:
        error = await refused(place.service.provision(provision(place, "h")))
        assert error.reason is Reason.LIMIT_NOT_ENFORCEABLE
        assert f"limits.disk_bytes in {owner.file}" in error.message


async def test_patterns_are_redacted_from_results_and_output_before_they_leave(
    owner: Owner,
) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    async with owner.place() as place:
        hand_id = await place.hand()
        steps = await place.steps(place.request(hand_id, command=f"echo a {KEY} b"))
        assert b"".join(each.output.data for each in steps) == b"a " + b"*" * 20 + b" b\n"
        assert steps[-1].result.content == "a [redacted] b\n"
        read = await place.run(hand_id, "write", file_path=f"{KEY}.txt", content=f"x{KEY}y")
        assert [each.path for each in read.files] == ["[redacted].txt"]
        read = await place.run(hand_id, "read", file_path=f"{KEY}.txt")
        assert KEY not in read.content
        assert "x[redacted]y" in read.content


async def test_a_secret_that_comes_in_pieces_is_masked_from_any_offset(owner: Owner) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    async with owner.place() as place:
        hand_id = await place.hand()
        pieces = "; ".join(f"printf {KEY[at : at + 3]}; sleep 0.01" for at in range(0, 20, 3))
        command = f"printf 'say '; {pieces}; printf ' end'"
        request = place.request(hand_id, command=command)
        steps = await place.steps(request)
        whole = b"say " + b"*" * 20 + b" end"
        assert b"".join(each.output.data for each in steps) == whole
        for offset in range(len(whole) + 1):
            request.output_offset = offset
            again = await place.steps(request)
            assert b"".join(each.output.data for each in again) == whole[offset:]


async def test_a_flood_of_secrets_is_masked_whole_also_what_comes_from_the_disk(
    owner: Owner,
) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    async with owner.place() as place:
        hand_id = await place.hand()
        command = f"for i in {{1..20000}}; do echo {KEY}$i; done"
        request = place.request(hand_id, command=command)
        steps = await place.steps(request)
        data = b"".join(each.output.data for each in steps)
        assert len(data) > 300_000
        assert b"AKIA" not in data
        assert "AKIA" not in steps[-1].result.content
        request.output_offset = 200_003
        again = b"".join(each.output.data for each in await place.steps(request))
        assert again == data[200_003:]


class Telling(Least):
    """A hand server that says a key wherever it may say anything."""

    async def ResetUnit(
        self, request: pb.ResetUnitRequest, context: object
    ) -> pb.ResetUnitResponse:
        return pb.ResetUnitResponse()

    async def Probe(self, request: pb.ProbeRequest, context: object) -> pb.ProbeResponse:
        return pb.ProbeResponse(state=pb.PROBE_STATE_BROKEN, reason=f"no {KEY}")

    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.DescribeResponse:
        schema = json.dumps({"type": "object", "description": KEY}).encode()
        info = pb.HandTypeInfo(
            type="echo",
            description=f"It is {KEY}.",
            tools=[
                pb.ToolInfo(name=name, description=f"Says {KEY}.", input_schema=schema)
                for name in ("say", KEY)
            ],
            config_schema=schema,
            capabilities=["units", KEY],
            units=[
                pb.UnitInfo(unit_id="left", labels={KEY: f"at {KEY}"}),
                pb.UnitInfo(unit_id=KEY),
            ],
        )
        return pb.DescribeResponse(types=[info])

    async def Provision(
        self, request: pb.ProvisionRequest, context: Any
    ) -> AsyncIterator[pb.ProvisionResponse]:
        if request.hand_id == "bad":
            details = to_status(invalid(f"config.{KEY}", "is not known"))
            await context.abort_with_status(rpc_status.to_status(details))
        yield pb.ProvisionResponse(progress=pb.ProvisionProgress(message=KEY))
        told = pb.ProvisionResult(note=KEY, not_enforced=[f"{KEY} is open"])
        yield pb.ProvisionResponse(result=told)


async def test_no_word_of_a_hand_type_leaves_with_a_pattern_in_it(
    owner: Owner, tmp_path: Path
) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    at = tmp_path / "hand.sock"
    async with (
        serving(at, Telling()),
        owner.place(more={"echo": SocketType("echo", at)}) as place,
    ):
        health = await place.service.probe(pb.ProbeRequest(type="echo"))
        assert health.reason == "no [redacted]"
        unkept = pb.ProbeResponse(not_enforceable=[f"{KEY} is open"])
        assert list(owner.gate.health(unkept).not_enforceable) == ["[redacted] is open"]
        types = (await place.service.describe(pb.DescribeRequest())).types
        assert KEY not in str(types)
        (kind,) = (each for each in types if each.type == "echo")
        assert kind.description == "It is [redacted]."
        assert [tool.name for tool in kind.tools] == ["say"]
        assert kind.tools[0].description == "Says [redacted]."
        assert json.loads(kind.tools[0].input_schema) == {"type": "object"}
        assert json.loads(kind.config_schema) == {"type": "object"}
        (unit,) = kind.units
        assert dict(unit.labels) == {"[redacted]": "at [redacted]"}
        assert not kind.forbidden_tools
        steps = [each async for each in place.service.provision(provision(place, "h", type="echo"))]
        assert KEY not in str(steps)
        assert list(steps[-1].result.not_enforced) == ["[redacted] is open"]
        asked = orchestrator_pb2.Request(provision=provision(place, "bad", type="echo"))
        replies = [each async for each in dispatch.answer(place.service, asked)]
        assert from_status(replies[-1].status).reason is Reason.INVALID_FIELD
        assert KEY.encode() not in b"".join(each.SerializeToString() for each in replies)


async def test_a_pattern_that_came_later_holds_for_what_has_not_left(owner: Owner) -> None:
    async with owner.place() as place:
        hand_id = await place.hand()
        request = place.request(hand_id, command=f"echo {KEY}")
        assert (await place.steps(request))[-1].result.content == f"{KEY}\n"
        owner.says("redact = ['AKIA[A-Z0-9]{16}']")
        assert (await place.steps(request))[-1].result.content == "[redacted]\n"


class Taken(Blobs):
    """Blobs that went where the log is."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    async def _write(self, session_id: str, file: Any, info: Any, patience: Any) -> None:
        self.sent.append(file.read())


async def test_a_file_in_which_a_pattern_is_found_stays_on_the_machine(owner: Owner) -> None:
    owner.says("redact = ['AKIA[A-Z0-9]{16}']")
    blobs = Taken()
    async with owner.place(blobs=blobs) as place:
        hand_id = await place.hand(keep_files=True)
        result = await place.sh(hand_id, f"echo {KEY} > secret; echo fine > plain")
        assert {each.path: each.kept for each in result.files} == {"secret": False, "plain": True}
        assert blobs.sent == [b"fine\n"]
        save = pb.SaveRequest(driver=place.driver(), hand_id=hand_id, save_id="s1")
        error = await refused(place.service.save(save))
        assert error.reason is Reason.POLICY_FORBIDS
        assert error.fields["rule"] == "redact"
        await place.sh(hand_id, "rm secret")
        save.save_id = "s2"
        assert [step async for step in place.service.save(save)][-1].saved.size
        assert len(blobs.sent) == 2


async def test_every_hand_call_byte_count_and_refusal_is_in_the_audit_and_no_input_or_output(
    owner: Owner,
) -> None:
    async with owner.place() as place:
        hand_id = await place.hand()
        request = place.request(hand_id, command="echo canary-out # canary-in")
        await place.steps(request)
        with pytest.raises(CarpalError):
            await place.run(hand_id, "nothing")
        await place.release(hand_id)
    call, ended = owner.told("call")[0], owner.told("ended")[0]
    assert [each["what"] for each in owner.told()] == [
        *("provision", "provisioned", "call", "ended", "refused", "released")
    ]  # fmt: skip
    assert (call["hand"], call["call"], call["tool"]) == (hand_id, request.call_id, "bash")
    assert call["session"] == "s"
    assert call["input_bytes"] == len(request.input)
    assert (ended["outcome"], ended["output_bytes"]) == ("ok", 11)
    assert owner.told("refused")[0]["reason"] == "TOOL_NOT_FOUND"
    assert "canary" not in owner.audit.files.log.read_text()


async def test_a_call_is_in_the_audit_before_it_starts(owner: Owner) -> None:
    async with owner.place() as place:
        hand_id = await place.hand()
        log = owner.audit.files.log
        result = await place.sh(hand_id, f'grep -c \'"what":"call"\' {log}')
        assert result.content == "1\n"


async def test_when_the_audit_cannot_be_written_calls_are_refused_and_later_they_are_not(
    owner: Owner,
) -> None:
    async with owner.place() as place:
        hand_id = await place.hand()
        aside = owner.folder / "aside"
        owner.audit.files.log.rename(aside)
        owner.audit.files.log.mkdir()
        request = place.request(hand_id, command="touch ran")
        for ask in (place.steps(request), place.provision(provision(place, "h2"))):
            with pytest.raises(CarpalError) as caught:
                await ask
            assert caught.value.reason is Reason.AUDIT_NOT_WRITTEN
        assert place.journal.call(hand_id, request.call_id) is None
        assert place.journal.hand("h2") is None
        owner.audit.files.log.rmdir()
        aside.rename(owner.audit.files.log)
        assert (await place.sh(hand_id, "ls")).content == "[no output]"
        assert (await place.steps(request))[-1].result.outcome == pb.OUTCOME_OK
    (resumed,) = owner.told("resumed")
    assert resumed["refused"] == 2


def person(kind: str, *, take: bool = False) -> Person:
    """Who asks to enter."""
    return Person(
        operator="spiffe://t/operator/o",
        workspace="default",
        hand_type="process",
        kind=kind,
        take=take,
        hand_id="h",
        session_id="s",
        tunnel_id="t",
    )


def test_a_person_enters_only_where_the_policy_says_so_and_the_audit_has_it(owner: Owner) -> None:
    for text in ("", "people = []", 'people = ["copy"]'):
        owner.says(text)
        with pytest.raises(CarpalError) as caught:
            owner.gate.enter(person("shell"))
        forbidden(caught.value, "people", owner)
    owner.says('people = ["shell"]')
    owner.gate.enter(person("shell"))
    (entered,) = owner.told("entered")
    assert (entered["kind"], entered["operator"]) == ("shell", "spiffe://t/operator/o")
    assert (entered["hand"], entered["session"], entered["control"]) == ("h", "s", "no")


def test_who_takes_control_needs_the_owners_word_for_that_too(owner: Owner) -> None:
    owner.says('people = ["shell"]')
    with pytest.raises(CarpalError) as caught:
        owner.gate.enter(person("shell", take=True))
    forbidden(caught.value, "people", owner)
    owner.says('people = ["shell", "control"]')
    owner.gate.enter(person("shell", take=True))
