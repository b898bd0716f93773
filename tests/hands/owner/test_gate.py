"""The owner has the last word: at the one gate, over real hands."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.browser import BrowserType
from hands.builtin.process import ProcessType
from hands.builtin.socket import SocketType
from hands.contract import Call
from hands.owner.gate import Person
from tests.hands.hand_server import Least, serving
from tests.hands.owner.owner import Owner, Taken
from tests.hands.place import PATIENCE
from tests.hands.test_service import provision, refused


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


async def test_what_a_save_took_along_is_in_the_audit_once_however_often_it_is_asked_for(
    owner: Owner,
) -> None:
    async with owner.place(blobs=Taken()) as place:
        hand_id = await place.hand()
        save = pb.SaveRequest(driver=place.driver(), hand_id=hand_id, save_id="s1")
        for _ in range(2):
            told = [step async for step in place.service.save(save)][-1].saved
    (saved,) = owner.told("saved")
    assert (saved["hand"], saved["save"], saved["bytes"]) == (hand_id, "s1", told.size)
    assert saved["sha256"] == told.digest.hex()


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


def test_who_may_watch_may_not_control_and_who_may_hold_calls_may_not_watch(owner: Owner) -> None:
    for text, kind, take in (
        ('people = ["view"]', "control", True),
        ('people = ["shell", "control"]', "view", False),
        ('people = ["shell", "control"]', "control", True),
    ):
        owner.says(text)
        with pytest.raises(CarpalError) as caught:
            owner.gate.enter(person(kind, take=take))
        forbidden(caught.value, "people", owner)
    owner.says('people = ["view", "control"]')
    owner.gate.enter(person("view"))
    owner.gate.enter(person("control", take=True))


def test_who_takes_control_needs_the_owners_word_for_that_too(owner: Owner) -> None:
    owner.says('people = ["shell"]')
    with pytest.raises(CarpalError) as caught:
        owner.gate.enter(person("shell", take=True))
    forbidden(caught.value, "people", owner)
    owner.says('people = ["shell", "control"]')
    owner.gate.enter(person("shell", take=True))


async def test_a_browser_hand_is_refused_by_an_owner_whose_namespaces_do_not_name_it(
    owner: Owner,
) -> None:
    owner.says('namespaces = ["mcp"]')
    async with owner.place(more={"browser": BrowserType()}) as place:
        with pytest.raises(CarpalError, match="a browser hand, in which sandboxes") as caught:
            await place.hand(type="browser")
        assert caught.value.fields["rule"] == "namespaces"
