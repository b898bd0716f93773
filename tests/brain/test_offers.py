"""What a daemon offers is held to what others can bear, and is no other session's trouble."""

import json
from typing import Any

import pytest

from brain.hands.placement import Placement
from brain.offers import TOOLS_MAX, TYPE_MAX, TYPES_MAX, check_hello, keep_good, tools_of
from brain.tools.offered import meant, offered
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from hands.contract import LISTS_TOOLS, Closing, Preparing
from hands.describe import type_info
from hands.types import installed
from tests.brain.logs import LOG_TOOLS, Log
from tests.brain.serving import brain, linked
from tests.brain.stage import Stage, daemon_row
from tests.sessiond.serving import Serving

OBJECT = b'{"type":"object"}'
Tool = hand_pb2.ToolInfo


def tool(name: str = "bash", description: str = "runs", schema: bytes = OBJECT) -> Tool:
    """One tool."""
    return Tool(name=name, description=description, input_schema=schema)


def info(*tools: Tool, named: str = "process") -> hand_pb2.HandTypeInfo:
    """A type of these tools."""
    return hand_pb2.HandTypeInfo(type=named, tools=tools or [tool()])


DEEP = b"[" * 50_000 + b"]" * 50_000
BAD: list[hand_pb2.HandTypeInfo] = [
    info(tool(schema=DEEP)),
    info(tool(schema=b'{"type":"object","properties":{"a":' + b'{"a":' * 40 + b"1" + b"}" * 42)),
    info(tool(description="d" * 1_900_000)),
    info(tool(name="")),
    info(tool(name="run it")),
    info(tool(name="x" * 129)),
    info(tool(schema=b"")),
    info(tool(schema=b"[]")),
    info(tool(schema=b"{}")),
    info(tool(schema=b'{"type":"object","properties":7}')),
    info(tool(schema=b'{"type":"object","properties":{"a":7}}')),
    info(tool(schema=b'{"type":"object","required":"a"}')),
    info(tool(schema=b'{"type":"object","anyOf":[]}')),
    info(tool(), tool()),
    info(*(tool(f"t{n}") for n in range(TOOLS_MAX + 1))),
    info(*(tool(f"t{n}", "d" * 30_000) for n in range(TYPE_MAX // 30_000 + 1))),
    info(named=""),
    info(named="a,b"),
    info(named="x" * 2_000_000),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_type_that_is_no_good_is_refused_in_a_few_words(bad: hand_pb2.HandTypeInfo) -> None:
    with pytest.raises(CarpalError) as caught:
        tools_of(bad)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert len(str(caught.value)) < 1000


async def test_what_the_hands_here_offer_is_good() -> None:
    for each in installed().values():
        if isinstance(each, Preparing):
            await each.prepare()  # a plugin is asked then what it is
        told = each.describe()
        if isinstance(each, Closing):
            await each.close()
        assert bool(tools_of(type_info(told))) is (LISTS_TOOLS not in told.capabilities), told


def test_a_hello_keeps_the_types_that_are_good() -> None:
    hello = pb.Hello(types=[BAD[0], info(named="good"), BAD[2]])
    assert len(keep_good(hello)) == 2
    assert [each.type for each in hello.types] == ["good"]
    hello = pb.Hello(types=[info(named=f"t{n}") for n in range(TYPES_MAX + 5)])
    assert len(keep_good(hello)) == 5
    assert len(hello.types) == TYPES_MAX


@pytest.mark.parametrize(
    "said",
    [
        {"version": "x" * 1000},
        {"boot_id": "x" * 1000},
        {"labels": {f"k{n}": "v" for n in range(1000)}},
        {"labels": {"k": "v" * 1000}},
    ],
)
def test_a_hello_that_no_lease_could_hold_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(CarpalError) as caught:
        check_hello(pb.Hello(**said))
    assert caught.value.reason is Reason.INVALID_FIELD


async def test_a_daemon_links_without_what_it_offers_that_is_no_good(sessions: Serving) -> None:
    async with brain(sessions) as one, linked(one, types=[BAD[0], info(named="good")]):
        assert one.fleet.daemon("d1", "default").types == ["good"]


async def test_a_session_is_told_of_a_daemon_whose_type_is_good_before_one_whose_is_not(
    driven: Stage,
) -> None:
    """The bad one is at another brain: an older one, which looked at nothing."""
    older = driven.fleet.directory.daemons["d0"] = daemon_row()
    older.lease.resource = "daemon/d0"
    place = Placement(driven.fleet, "default", {"type": "process"})
    bad, good = (hand_pb2.DescribeResponse(types=[each]) for each in (BAD[2], info()))
    driven.hands.script["describe"] = [[bad], [good]]
    assert tools_of(await place.offer(0.0))
    driven.fleet._described.clear()
    driven.hands.script["describe"] = [[bad], [bad]]
    with pytest.raises(CarpalError) as caught:
        await place.offer(0.0)
    assert caught.value.reason is Reason.INVALID_FIELD


def test_a_log_that_holds_what_is_no_good_offers_the_rest() -> None:
    log = Log()
    good = {"name": "bash", "description": "runs", "input_schema": json.loads(OBJECT)}
    tools = [good, good | {"name": "run it"}, good | {"input_schema": {}}, 7, good]
    log.add("context.tools", {"hand": "shell", "tools": tools})
    assert [each["name"] for each in offered(log.transcript)] == ["bash", *LOG_TOOLS]


def test_a_hand_of_any_name_has_tools_of_names_that_the_model_can_be_told() -> None:
    log = Log()
    hand = "my hand é" + "x" * 200
    log.add("session.updated", {"hands": {"shell": {"type": "process"}, hand: {"type": "process"}}})
    good = {"name": "bash", "description": "runs", "input_schema": json.loads(OBJECT)}
    log.add("context.tools", {"hand": hand, "tools": [good]})
    told, *_ = offered(log.transcript)
    assert len(told["name"]) <= 128
    assert told["name"].startswith("my_hand__")
    assert meant(log.transcript, told["name"]) == (hand, "bash")
