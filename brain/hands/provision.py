"""Provisioning hands at their first use: intent in the log, then the hand.

`hand.provision_requested` names the daemon and the id before anything
exists, so a driver that dies in between leaves nothing unknown: the next one
asks the same daemon for the same id, which answers what it did.
"""

import asyncio
import json
import logging
import time
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from brain.daemons.fleet import Fleet
from brain.hands import hand_spec
from brain.hands.patience import Patience
from brain.hands.placement import Placement
from brain.hands.session_mounts import SessionMounts
from brain.offers import ID_MAX, forbidden_of, tools_of
from brain.session.driver import Driver
from brain.session.entries import Hand, New
from brain.session.own_tools import changes
from brain.session.watch import WatchHub
from brain.text import shorten
from carpal.backoff import Backoff
from carpal.errors import BadInput, CarpalError, Unreachable, refuse
from carpal.fault_points import point
from carpal.ids import new_id
from carpal.layers import Layer, layer_of
from carpal.status import Reason
from carpal.v1 import hand_pb2, orchestrator_pb2

log = logging.getLogger(__name__)

NOTE_MAX = 64 * 1024
"""Bytes of what a hand says of itself."""
PATIENCE = 30.0
"""Seconds to wait for a daemon that is out of reach before a hand counts as not to be had."""


def driver_of(driver: Driver) -> hand_pb2.Driver:
    """Who drives, for a hand."""
    return hand_pb2.Driver(
        session_id=driver.session_id, epoch=driver.lease.epoch, workspace=driver.workspace
    )


class Provisioner:
    """Makes the hands that one driven session names."""

    def __init__(self, driver: Driver, fleet: Fleet, hub: WatchHub) -> None:
        self._driver = driver
        self._fleet = fleet
        self._hub = hub
        self._sessions = SessionMounts(driver)
        self._one_at_a_time: dict[str, asyncio.Lock] = {}

    async def provision(self, name: str, *, called: bool = True) -> Hand:
        """The live hand of a name, made if need be; the refusal, also in the log, if not.

        `called`: a call waits for it, whose result says to the model why there is none. Else the
        event does.
        """
        async with self._one_at_a_time.setdefault(name, asyncio.Lock()):
            transcript = self._driver.transcript
            for hand in transcript.live_hands():
                if hand.name == name:
                    return hand
            hand_id = await self._request(name)
            hand = transcript.hands[hand_id]
            try:
                result = await self._make(hand)
                own = _own_tools(hand, result)
            except CarpalError as error:
                if error.reason is Reason.STALE_EPOCH:
                    await self._driver.check_refusal()
                data: dict[str, Any] = {
                    "hand_id": hand_id,
                    "name": name,
                    "reason": error.reason,
                    "message": str(error),
                    "layer": str(layer_of(error.reason, Layer.DAEMON)),
                }
                if not called:
                    data["tools_unknown"] = True
                await self._driver.append(New("hand.provision_failed", data))
                raise
            made = {
                "hand_id": hand_id,
                "name": name,
                "daemon": hand.daemon,
                "journal_id": result.journal_id,
                "boot_id": result.boot_id,
                "sequence": result.sequence,
                "note": shorten(result.note, NOTE_MAX),
                **self._listed(name, own, result.forbidden_tools),
            }
            point("brain.hand.before_provisioned")
            await self._driver.append(New("hand.provisioned", made))
            point("brain.hand.provisioned")
            return hand

    def _listed(
        self, name: str, tools: list[dict[str, Any]], forbidden_tools: Iterable[str]
    ) -> dict[str, Any]:
        """What the log says of tools that the hand has by itself, and what is new about them."""
        forbidden = forbidden_of(hand_pb2.HandTypeInfo(forbidden_tools=forbidden_tools))
        if not tools and not forbidden:
            return {}
        before = self._driver.transcript.tools.get(name)
        changed = changes(before["tools"], tools) if before is not None else {}
        return {
            "tools": tools,
            **({"forbidden": forbidden} if forbidden else {}),
            **({"tools_changed": changed} if changed else {}),
        }

    async def _request(self, name: str) -> str:
        """The id of a hand asked for in the log: an earlier driver's, or a new one."""
        transcript = self._driver.transcript
        if earlier := transcript.requested_hand(name):
            return earlier.hand_id
        spec = transcript.hand_specs[name]
        asked = hand_spec.asked(name, spec)
        place = Placement(
            self._fleet,
            self._driver.workspace,
            spec,
            lambda why: self._tell(f"{name}: waiting: {why}"),
        )
        daemon = await place.daemon(PATIENCE)
        data: dict[str, Any] = {
            "hand_id": new_id("hand"),
            "name": name,
            "type": spec["type"],
            "daemon": daemon,
            **asked,
            **await self._sessions.made(
                asked["resources"], lambda what: self._tell(f"{name}: {what}")
            ),
        }
        point("brain.hand.before_requested")
        await self._driver.append(New("hand.provision_requested", data))
        point("brain.hand.requested")
        hand_id: str = data["hand_id"]
        return hand_id

    async def _make(self, hand: Hand) -> hand_pb2.ProvisionResult:
        backoff = Backoff(0.1, 2.0)
        patience, told = Patience(PATIENCE), False
        while True:
            self._driver.check_lease()
            began = time.monotonic()
            try:
                return await self._ask(hand)
            except CarpalError as error:
                full = error.reason is Reason.AT_CAPACITY
                may_help = full or isinstance(error, Unreachable)
                if not may_help or patience.over(began, time.monotonic()):
                    raise
                if not told:  # else whoever watches sees half a minute of nothing
                    told = True
                    self._tell(f"{hand.name}: waiting: {error}")
                log.info("provision waits", extra={"hand": hand.hand_id, "error": str(error)})
                await self._fleet.directory.wait_change(backoff.next())

    async def _ask(self, hand: Hand) -> hand_pb2.ProvisionResult:
        request = hand_pb2.ProvisionRequest(
            driver=driver_of(self._driver),
            hand_id=hand.hand_id,
            type=hand.type,
            config=json.dumps(hand.config).encode(),
            mounts=[
                hand_pb2.Mount(source_ref=source, mount_path=path)
                for source, path in hand.resources
            ],
        )
        for limit, value in hand.limits.items():
            setattr(request.limits, limit, value)
        request.orphan_deadline.FromMilliseconds(int(hand.orphan_deadline * 1000))
        connection = await self._fleet.connection(hand.daemon, self._driver.workspace)
        result: hand_pb2.ProvisionResult | None = None
        async with aclosing(connection.call("provision", request)) as responses:
            async for response in responses:
                if response.HasField("result"):
                    result = response.result
                else:
                    self._tell(f"{hand.name}: {response.progress.message}")
        if result is None:
            raise refuse(
                Reason.LINK_VIOLATION, f"daemon {hand.daemon} ended provision without a result"
            )
        if max(len(result.journal_id), len(result.boot_id)) > ID_MAX:
            raise refuse(Reason.LINK_VIOLATION, f"daemon {hand.daemon} gave ids that are none")
        return result

    def _tell(self, detail: str) -> None:
        phase = orchestrator_pb2.Phase(name="provision", detail=detail)
        self._hub.tell(self._driver.session_id, orchestrator_pb2.WatchResponse(phase=phase))


def _own_tools(hand: Hand, result: hand_pb2.ProvisionResult) -> list[dict[str, Any]]:
    """The tools that a hand has by itself, as the log has them. LINK_VIOLATION for what are none.

    Its daemon has looked at them: the hand is of no use to it either.
    """
    try:
        return tools_of(hand_pb2.HandTypeInfo(type=hand.type, tools=result.tools))
    except BadInput as error:
        why = f"daemon {hand.daemon} gave tools that are none: {error.message}"
        raise refuse(Reason.LINK_VIOLATION, why) from error
