"""A hand type that someone serves on a unix socket, in whatever language has gRPC.

The server implements the service of `hand.proto`, of which Describe, Provision, Execute, Cancel and
Release are enough. The daemon brings the rest: dialling, identity, the journal, order, replays, the
spool, time limits and the orphan deadline. A call_id is told to it once. Only a server with the
capability `replay` is told one again: after a restart of the daemon, to attach to the call.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from carpal.client import from_rpc, held
from carpal.errors import invalid
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin import common, socket_said
from hands.builtin.kept_units import KeptUnits
from hands.builtin.socket_hand import SocketHand
from hands.builtin.socket_server import ANSWER, Server, driver, words
from hands.contract import (
    LISTS_TOOLS,
    Description,
    HandLost,
    Health,
    NotBegun,
    Order,
    Provisioned,
    ProvisionFailed,
    Result,
    Tool,
    Unit,
)
from hands.inside.schema import check
from hands.plugins import told

_START = 5.0
"""Seconds for a server to be there, at the daemon's start: both may be starting."""
_PROVISION = 300.0
_RESET = 90.0
"""Seconds after which a server's reset is cancelled, when the daemon did not do so before."""
_PROGRESS_MAX = 1000
_LISTED_MAX = 10_000


class SocketType:
    """The hands of one server."""

    def __init__(
        self, name: str, path: Path, *, daemon: bool = True, exactly: bool = False
    ) -> None:
        """`name` is the type's, `path` the socket's.

        Without `daemon` no daemon has it, but a command that is over after one call. `exactly` has
        the server call the type so too: else a server's only type has whatever name it is given.
        """
        self._name = name
        self._then = "; start its server, then restart the daemon" if daemon else ""
        self._server = Server(path)
        self._told = told.broken(name, "it was not asked what it is yet")
        self._claims: frozenset[str] = frozenset()
        self._units = KeptUnits(self._ask_for_units)
        self.mend = "mend that first"
        """What to do, at its server, so that it can be used."""
        self.absent = ""
        """Which types the server has, where this is none of them."""
        self._exactly = exactly

    @property
    def socket(self) -> Path:
        """Where its server is."""
        return self._server.path

    async def prepare(self) -> None:
        """Ask it what it is; wait a moment for one that is starting."""
        request = pb.DescribeRequest()
        try:
            said = await self._server.stub.Describe(request, timeout=_START, wait_for_ready=True)
            self._told, self._claims = socket_said.described(
                self._name, said.types, exactly=self._exactly
            )
        except grpc.RpcError as error:
            self.mend = "start your server first"
            self._told = told.broken(self._name, f"{self._server.reason(error)}{self._then}")
        except ValueError as error:
            self.absent = str(error) if isinstance(error, socket_said.NotThere) else ""
            self._told = told.broken(self._name, str(error))
        if "units" in self._claims:
            await self._units.open()

    def describe(self) -> Description:
        """What it said at the daemon's start; of one that said nothing of use, why."""
        return self._told.description

    async def close(self) -> None:
        """Hang up."""
        try:
            await self._units.close()
        finally:
            await self._server.close()

    def units(self) -> Sequence[Unit]:
        """Those that it named last."""
        return self._units.named()

    async def reset(self, unit_id: str) -> None:
        """Have the server reset one. Raises RuntimeError, in the server's words."""
        request = pb.ResetUnitRequest(type=self._name, unit_id=unit_id)
        await self._server.dialled()
        try:
            await self._server.stub.ResetUnit(request, timeout=_RESET)
        except grpc.RpcError as error:
            raise RuntimeError(self._server.why(error)) from None

    async def _ask_for_units(self) -> Sequence[Unit]:
        await self._server.dialled()
        try:
            said = await self._server.stub.Describe(pb.DescribeRequest(), timeout=ANSWER)
        except grpc.RpcError as error:
            raise ValueError(self._server.why(error)) from None
        return socket_said.units(self._name, said.types)

    async def probe(self) -> Health:
        """What its server says now. One that has no Probe is ready when it answers."""
        if self._told.broken:
            return Health(ready=False, broken=True, reason=self._told.unready)
        if problem := self._units.problem:
            why = f"which units it has is not known: {problem}"
            return Health(ready=False, broken=True, reason=why)
        stub = self._server.stub
        await self._server.dialled()
        try:
            said = await stub.Probe(pb.ProbeRequest(type=self._name), timeout=ANSWER)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                return Health(ready=False, broken=True, reason=self._server.why(error))
            return Health(ready=True, not_enforceable=sorted(common.LEAST))
        reason = said.reason[:_PROGRESS_MAX]
        if said.state == pb.PROBE_STATE_READY:
            return Health(True, not_enforceable=sorted(set(said.not_enforceable) & {*common.LEAST}))
        return Health(False, broken=said.state != pb.PROBE_STATE_STARTING, reason=reason)

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Have the server make it."""
        if self._told.broken:
            raise NotBegun(f"{self._name} cannot be used: {self._told.unready}")
        if self._server.down:
            why = f"{self._name}: nobody serves at {self._server.path}"
            raise NotBegun(why, f"{self._server.start}, on its machine")
        if problem := check(self._told.description.config_schema, dict(order.config), "config"):
            raise invalid(problem.field, problem.text)
        if order.limits:
            health = await self.probe()
            if not health.ready:
                raise ProvisionFailed(f"{self._name}: {health.reason}")
            kept = {*common.LEAST} - {*health.not_enforceable}
            common.check_limits(order, kept, "its server does not say that it keeps it")
        request = pb.ProvisionRequest(
            driver=driver(order.hand_id),
            hand_id=order.hand_id,
            type=self._name,
            config=json.dumps(order.config).encode(),
            unit_id=order.unit,
        )
        for name, value in order.limits.items():
            setattr(request.limits, name, value if name == "cpus" else int(value))
        request.orphan_deadline.FromNanoseconds(int(order.orphan_deadline * 1e9))
        hand = SocketHand(self._server, order.hand_id, order.folder, order.orphan_deadline)
        hand.replays = "replay" in self._claims
        hand.speaks = "events" in self._claims
        try:
            made = await self._make(request, progress)
            tools, hand.limits = self._own_tools(made)
        except BaseException:
            with suppress(HandLost):
                await hand.release()
            raise
        state = {"deadline": order.orphan_deadline, "limits": dict(hand.limits)}
        return Provisioned(hand, state, made.note, tuple(made.not_enforced[:99]), tools)

    async def _make(
        self, request: pb.ProvisionRequest, progress: Callable[[str], None]
    ) -> pb.ProvisionResult:
        await self._server.dialled()
        try:
            # What it sends after the result is not waited for.
            with held(self._server.stub.Provision(request, timeout=_PROVISION)) as making:
                async for step in making:
                    if step.HasField("result"):
                        return step.result
                    progress(step.progress.message[:_PROGRESS_MAX])
                    await asyncio.sleep(0)  # a flood of it is one hand's turn, not all turns
        except grpc.aio.AioRpcError as error:
            refused = from_rpc(error, f"the hand server at {self._server.path}")
            if refused.reason in {Reason.INVALID_FIELD, Reason.LIMIT_NOT_ENFORCEABLE}:
                raise refused from None
            raise ProvisionFailed(f"{self._name}: {words(refused)}") from None
        raise ProvisionFailed(f"{self._name}: its Provision ended without a result")

    def _own_tools(self, made: pb.ProvisionResult) -> tuple[list[Tool], Mapping[str, float]]:
        """What a hand of a type that lists them has. Raises ProvisionFailed."""
        if LISTS_TOOLS not in self._claims:
            return [], self._told.limits
        try:
            return socket_said.own_tools(made.tools)
        except ValueError as error:
            raise ProvisionFailed(f"{self._name}: the hand's tools: {error}") from None

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> SocketHand:
        """The hand again, from a server that keeps calls whose watcher left."""
        if "replay" not in self._claims:
            raise HandLost("its server has not the capability `replay`, so calls end with a daemon")
        await self._server.dialled()
        try:
            listed = await self._server.stub.ListHands(pb.ListHandsRequest(), timeout=ANSWER)
        except grpc.RpcError as error:
            raise HandLost(self._server.why(error)) from None
        for each in listed.hands:
            if each.hand_id == hand_id and not each.lost:
                held = [*each.open_call_ids, *each.unacknowledged_call_ids][:_LISTED_MAX]
                hand = SocketHand(self._server, hand_id, folder, state["deadline"], frozenset(held))
                hand.replays, hand.speaks = True, "events" in self._claims
                # What an earlier daemon wrote down has none.
                hand.limits = state.get("limits", self._told.limits)
                return hand
        raise HandLost("its server does not have it any more")

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Have the server end it."""
        await self._server.dialled()
        await SocketHand(self._server, hand_id, folder, 0.0).release()
        return 0

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """A server that is gone has said all it says."""
        return {}
