"""Units as the checks see them: a server behind a socket that resets them, and a daemon's."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from carpal.errors import CarpalError, refuse
from carpal.server import Context as ServerContext
from carpal.server import serve_locally
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import hand_pb2_grpc
from hands.conformance.changes import CHANGES
from hands.conformance.group import CONTRACT, Verdict
from hands.conformance.own import open_own
from hands.conformance.run import judge, verdicts
from hands.conformance.subject import WORKSPACE, subject_at
from hands.conformance.suite import CHECKS, chosen
from hands.service import HandService
from hands.serving import HandServicer
from tests.hands.bench_type import BenchType
from tests.hands.conformance.test_foreign import Stops, subject
from tests.hands.hand_server import Least, serving
from tests.hands.place import open_place
from tests.hands.plugins.found import installed
from tests.pace import SCALE

Reset = grpc.aio.ServicerContext[pb.ResetUnitRequest, pb.ResetUnitResponse]
UNITS = ("units",)


class Phones(Stops):
    """A server with so many phones, which refuses what a daemon would not do."""

    names: Sequence[str] = ("a", "b")

    def __init__(self) -> None:
        super().__init__()
        self.info.capabilities.append("units")
        self.info.units.extend(pb.UnitInfo(unit_id=each) for each in self.names)
        self.clean: set[str] = set()
        self.log: list[str] = []

    async def ResetUnit(self, request: pb.ResetUnitRequest, context: Reset) -> pb.ResetUnitResponse:
        if request.unit_id not in self.names:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no unit {request.unit_id}")
        self.log.append(f"reset {request.unit_id}")
        self.clean.add(request.unit_id)
        return pb.ResetUnitResponse()

    async def Provision(
        self, request: pb.ProvisionRequest, context: Any
    ) -> AsyncIterator[pb.ProvisionResponse]:
        if request.unit_id not in self.clean:
            await context.abort(grpc.StatusCode.INTERNAL, f"{request.unit_id!r} was not reset")
        self.clean.remove(request.unit_id)
        async for step in super().Provision(request, context):
            yield step


class OnePhone(Phones):
    names = ("a",)


class NoPhone(Phones):
    names = ()


class TwiceNamed(Phones):
    names = ("a", "a")


class ResetsNone(Phones):
    ResetUnit = Least.ResetUnit


class ResetsOnce(Phones):
    async def ResetUnit(self, request: pb.ResetUnitRequest, context: Reset) -> pb.ResetUnitResponse:
        if f"reset {request.unit_id}" in self.log:
            await context.abort(grpc.StatusCode.INTERNAL, "it was reset already")
        return await super().ResetUnit(request, context)


class ResetsAnything(Phones):
    async def ResetUnit(self, request: pb.ResetUnitRequest, context: Reset) -> pb.ResetUnitResponse:
        return pb.ResetUnitResponse()


async def found(kind: type[Phones], at: Path, *capabilities: str) -> dict[str, Verdict]:
    names = {check.sentence: check.name for check in CHECKS}
    async with serving(at / "hand.sock", kind()):
        about = await subject(at / "hand.sock")
        async with asyncio.timeout(60 * SCALE):
            made = [one async for one in verdicts(chosen(capabilities), about, SCALE)]
    return {names[one.check]: one for one in made}


@pytest.mark.parametrize("kind", [Phones, OnePhone])
async def test_a_server_with_units_passes_each_of_its_hands_on_one_that_was_reset(
    kind: type[Phones], tmp_path: Path
) -> None:
    made = await found(kind, tmp_path, CONTRACT, *UNITS)
    assert [one for one in made.values() if one.verdict == "fail"] == []
    passed = {name for name, one in made.items() if one.verdict == "pass"}
    assert passed >= {"units_named", "unit_reset", "unknown_unit", "ready_in_time", "ended"}
    sees = {name for name, one in made.items() if one.detail.startswith("a daemon sees to it")}
    assert sees >= {"unit_alone", "unit_freed", "unit_kept", "labels_refused"}


async def test_the_checks_reset_a_unit_before_its_hand_and_after_it(tmp_path: Path) -> None:
    (check,) = [one for one in CHECKS if one.name == "ended"]
    server = OnePhone()
    async with serving(tmp_path / "hand.sock", server):
        assert (await judge(check, await subject(tmp_path / "hand.sock"), SCALE)).verdict == "pass"
    assert server.log == ["reset a", "reset a"]


@pytest.mark.parametrize(
    ("kind", "name", "says", "change"),
    [
        (NoPhone, "units_named", "Describe names no unit", "Name in Describe each unit"),
        (TwiceNamed, "units_named", "two units are named a", CHANGES["units_named"]),
        (ResetsNone, "unit_reset", "ResetUnit of a: not built", "Serve ResetUnit, or take"),
        (ResetsNone, "unknown_unit", "ResetUnit not built", "Serve ResetUnit, or take"),
        (ResetsOnce, "unit_reset", "it was reset already", "Have ResetUnit bring a unit"),
        (ResetsAnything, "unknown_unit", "as if the unit had", CHANGES["unknown_unit"]),
    ],
)
async def test_a_server_whose_units_are_wrong_is_told_what_to_change(
    kind: type[Phones], name: str, says: str, change: str, tmp_path: Path
) -> None:
    one = (await found(kind, tmp_path, *UNITS))[name]
    assert (one.verdict, says in one.detail) == ("fail", True), one
    assert one.change.startswith(change)


async def test_where_there_is_no_unit_what_needs_a_hand_is_skipped_and_says_why(
    tmp_path: Path,
) -> None:
    made = await found(NoPhone, tmp_path, CONTRACT)
    assert made["ended"].verdict == "skipped"
    assert "needs 1 units at once, and the type has none to use" in made["ended"].detail


# A daemon's.


class Daemons(HandServicer):
    """A daemon's own service: nothing is wrong with it."""


class HoldsNothing(HandServicer):
    async def Describe(
        self, request: pb.DescribeRequest, context: ServerContext
    ) -> pb.DescribeResponse:
        described = await super().Describe(request, context)
        for kind in described.types:
            for unit in kind.units:
                unit.holder = ""
        return described


class IsNeverFull(HandServicer):
    async def Provision(
        self, request: pb.ProvisionRequest, context: ServerContext
    ) -> AsyncIterator[pb.ProvisionResponse]:
        try:
            async for step in super().Provision(request, context):
                yield step
        except CarpalError as error:
            if error.reason is not Reason.AT_CAPACITY:
                raise
            yield pb.ProvisionResponse(result=pb.ProvisionResult(note="here"))


class TakesAnyLabel(HandServicer):
    async def Provision(
        self, request: pb.ProvisionRequest, context: ServerContext
    ) -> AsyncIterator[pb.ProvisionResponse]:
        if b"none-" in request.config:
            raise refuse(Reason.PROVISION_FAILED, "it broke")
        async for step in super().Provision(request, context):
            yield step


@contextlib.asynccontextmanager
async def daemon(kind: type[HandServicer], folder: Path) -> AsyncIterator[Path]:
    socket = folder / "socket"
    more = {"bench": BenchType(folder / "bench")}
    async with open_place(folder / "state", more=more) as place:
        servicer = kind(HandService(place.inventory, "d", "check"))
        async with serve_locally(
            socket, lambda server: hand_pb2_grpc.add_HandServicer_to_server(servicer, server)
        ):
            yield socket


async def found_of(kind: type[HandServicer], folder: Path) -> dict[str, Verdict]:
    names = {check.sentence: check.name for check in CHECKS}
    async with daemon(kind, folder) as socket:
        about = await subject_at(socket, "bench", {})
        async with asyncio.timeout(60 * SCALE):
            made = [one async for one in verdicts(chosen(UNITS), about, SCALE)]
    return {names[one.check]: one for one in made}


async def test_a_daemon_has_units_for_one_hand_each_and_none_to_reset_from_outside(
    tmp_path: Path,
) -> None:
    made = await found_of(Daemons, tmp_path)
    assert {name for name, one in made.items() if one.verdict == "pass"} == {
        *("units_named", "unit_alone", "unit_freed", "labels_refused")
    }
    assert made["unknown_unit"].detail.startswith("a daemon resets units by itself")
    assert "needs --type" in made["unit_kept"].detail


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (HoldsNothing, "unit_alone", "the hands that hold them"),
        (HoldsNothing, "unit_freed", "no unit whose holder is the hand"),
        (IsNeverFull, "unit_alone", "was not refused, where AT_CAPACITY was due"),
        (TakesAnyLabel, "labels_refused", "where INVALID_FIELD was due"),
    ],
)
async def test_a_daemon_that_gives_units_wrongly_is_caught(
    kind: type[HandServicer], name: str, says: str, tmp_path: Path
) -> None:
    one = (await found_of(kind, tmp_path))[name]
    assert (one.verdict, says in one.detail) == ("fail", True), one
    assert one.change


SLOW_TO_RESET = """
import time
from hands.api import HandType, Unit, tool

class Phone(HandType):
    'A phone.'

    @classmethod
    def units(cls):
        return [Unit('a')]

    @classmethod
    def reset(cls, unit_id: str) -> None:
        time.sleep(1)

    @tool()
    def say(self) -> str:
        'Says so.'
        return 'said'
"""
PROJECT = """
[project]
name = "phone"
version = "0"
[project.entry-points."carpal.hand_types"]
phone = "phone:Phone"
"""


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_a_unit_that_a_killed_server_resets_at_its_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "phone"
    folder.mkdir()
    (folder / "phone.py").write_text(SLOW_TO_RESET)
    (folder / "pyproject.toml").write_text(PROJECT)
    paths = installed(folder, tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((paths, os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setattr(sys, "path", [*paths.split(os.pathsep), *sys.path])
    async with open_own("phone", WORKSPACE) as own:
        about = await subject_at(own.socket, "phone", {}, own, ("say", {}))
        for name in ("unit_kept", "killed_while_provisioning"):
            (check,) = [one for one in CHECKS if one.name == name]
            verdict = await judge(check, about, 2 * SCALE)
            assert (verdict.verdict, verdict.detail) == ("pass", ""), name
