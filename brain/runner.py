"""The runner: performs a harness's effects for one session it drives.

Intent is appended before, outcome after. The harness decides from the
transcript, synchronously, so what it decided was true of the head it saw;
that head is what is reported as processed.
"""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

from brain.calls import Calls
from brain.driver import Driver
from brain.effects import (
    CallModel,
    Effect,
    Emit,
    Execute,
    Failed,
    Finish,
    HarnessFactory,
    Replied,
    Result,
    Sleep,
)
from brain.fleet import Fleet
from brain.model import Model, Reply, request_digest
from brain.placement import Placement, Spec
from brain.provision import PATIENCE
from brain.results import not_run
from brain.saves import Saves
from brain.tools import context_tools, meant
from brain.transcript import Entry, New, Transcript
from brain.watch import WatchHub
from carpal.errors import CarpalError, refuse
from carpal.fault_points import point
from carpal.ids import new_id
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

DEFAULT_HARNESS = "tool_loop"
T = TypeVar("T")


@dataclass(frozen=True)
class Done:
    """A drive's end: what was processed."""

    processed: int


class Runner:
    """Drives one session until its harness finishes."""

    def __init__(self, driver: Driver, fleet: Fleet, hub: WatchHub, model: Model) -> None:
        self._driver = driver
        self._fleet = fleet
        self._hub = hub
        self._model = model
        self._calls = Calls(driver, fleet, hub)
        self._saves = Saves(driver, fleet)

    async def run(self) -> Done:
        """From takeover to idle."""
        transcript = self._driver.transcript
        self._driver.started_at = transcript.head
        if not transcript.has_work():
            # Woken, maybe, for a hand that came back with something to tell.
            await self._calls.hear_all()
        if not transcript.has_work():
            await self._saves.settle()
        if not transcript.has_work():
            return Done(transcript.head)
        if not transcript.agent.get("model"):
            raise refuse(
                Reason.CONFIG_INVALID,
                "the log names no agent with a model",
                action="create the session with `session.updated` {agent, hands}, as `carpal run`",
            )
        async with asyncio.TaskGroup() as group:
            claiming = group.create_task(self._calls.look_after())
            done = await self._loop(transcript)
            claiming.cancel()
        return done

    async def _loop(self, transcript: Transcript) -> Done:
        opening = [] if transcript.running else [New("session.status_running", {})]
        opening += [_passed_over(e) for e in transcript.malformed if e.position > transcript.told]
        opening += await self._unless_interrupted(self._learn_tools(transcript)) or []
        if opening:
            await self._driver.append(*opening)
        harness = load_harness(transcript.agent.get("harness") or DEFAULT_HARNESS)(transcript)
        # Right before the harness decides: none is left open at the head it sees.
        await self._saves.settle()
        effect: Effect = next(harness)
        while not isinstance(effect, Finish):
            result = await self._perform(effect)
            await self._saves.settle()
            effect = harness.send(result)
        processed = transcript.head if effect.through is None else effect.through
        idle = {"stop_reason": {"type": effect.stop_reason}, "through": processed}
        if effect.details is not None:
            idle["stop_details"] = effect.details
        await self._driver.append(New("session.status_idle", idle))
        self._tell("idle", effect.stop_reason)
        return Done(processed)

    async def _perform(self, effect: Effect) -> Result:
        self._driver.check_lease()
        match effect:
            case CallModel():
                return await self._call_model(effect)
            case Execute():
                self._tell("execute", "")
                await self._calls.settle(effect.call_ids)
                return None
            case Emit():
                return await self._driver.append(New(effect.type, effect.data))
            case Sleep():
                await self._unless_interrupted(asyncio.sleep(effect.seconds))
                return None
            case Finish():
                raise RuntimeError("a harness went on after Finish")

    async def _call_model(self, effect: CallModel) -> Replied | Failed:
        parameters = effect.parameters()
        request_id = new_id("sevt")
        start = {
            "model": effect.model,
            "policy": effect.policy,
            "through": effect.through,
            "request_sha256": request_digest(parameters),
        }
        await self._driver.append(New("span.model_request_start", start, id=request_id))
        self._tell("model", effect.model)

        def delta(text: str, thinking: bool) -> None:
            moment = pb.TextDelta(model_request_id=request_id, text=text, thinking=thinking)
            self._hub.tell(self._driver.session_id, pb.WatchResponse(text=moment))

        self._driver.check_lease()
        call = self._model.call(parameters, delta)
        answer = await self._driver.unless(lambda t: t.interrupted > effect.through, call)
        if answer is None:
            answer = Failed("interrupted", "a person interrupted", retryable=False)
        if isinstance(answer, Failed):
            error = {"type": answer.kind, "message": answer.message}
            end = {"model_request_start_id": request_id, "is_error": True, "error": error}
            await self._driver.append(New("span.model_request_end", end))
            return answer
        point("brain.intent.before_appended")
        await self._driver.append(*self._reply_events(request_id, answer))
        point("brain.intent.appended")
        return Replied(answer.stop_reason)

    def _reply_events(self, request_id: str, reply: Reply) -> list[New]:
        """A reply's events: one group, so it is in the log whole or not at all."""
        events: list[New] = []
        for block in reply.blocks:
            data: dict[str, object] = {"model_request_start_id": request_id}
            if block["type"] == "tool_use":
                hand, name = meant(self._driver.transcript, block["name"])
                data |= {"name": name, "hand": hand, "input": block["input"]}
                data["evaluated_permission"] = "allow"
                events.append(New("agent.tool_use", data, id=new_id("sevt")))
            elif block["type"] in ("thinking", "redacted_thinking"):
                events.append(New("agent.thinking", data | {"content": [block]}))
            elif block.get("text"):
                events.append(New("agent.message", data | {"content": [block]}))
        end = {
            "model_request_start_id": request_id,
            "is_error": False,
            "model_usage": reply.usage,
            "stop_reason": reply.stop_reason,
        }
        cut = reply.stop_reason == "max_tokens" and events and events[-1].type == "agent.tool_use"
        # A call cut off at the limit may read as a whole one that asks for something else.
        refused = [not_run(events[-1].id, "the reply was cut at max_tokens")] if cut else []
        return [*events, New("span.model_request_end", end), *refused]

    async def _learn_tools(self, transcript: Transcript) -> list[New]:
        """Events for what the named hands' types offer now, where that is news."""
        asked = (self._offer(transcript, *named) for named in transcript.hand_specs.items())
        return [event for event in await asyncio.gather(*asked) if event is not None]

    async def _offer(self, transcript: Transcript, name: str, spec: Spec) -> New | None:
        """The event for what one hand's type offers now; None when that is no news."""
        # What an earlier driver learned will do while the daemon finds its way back.
        known = transcript.tools.get(name)
        place = Placement(self._fleet, self._driver.workspace, spec)
        try:
            tools = context_tools(name, await place.offer(0.0 if known else PATIENCE))
        except CarpalError as error:
            if known:
                return None
            said = {
                "type": "hand_unavailable_error",
                "message": f"hand {name!r}: {error}",
                "retry_status": {"type": "retrying"},
            }
            return New("session.error", {"error": said})
        return New("context.tools", tools) if tools != known else None

    async def _unless_interrupted(self, work: Awaitable[T]) -> T | None:
        """Do the work; None when a person interrupts from now on."""
        since = self._driver.transcript.interrupted
        return await self._driver.unless(lambda t: t.interrupted > since, work)

    def _tell(self, phase: str, detail: str) -> None:
        moment = pb.WatchResponse(phase=pb.Phase(name=phase, detail=detail))
        self._hub.tell(self._driver.session_id, moment)


def _passed_over(entry: Entry) -> New:
    message = f"event {entry.position} ({entry.type}) is not what its type says and is passed over"
    status = {"type": "terminal"}
    said = {"type": "malformed_event_error", "message": message, "retry_status": status}
    return New("session.error", {"error": said})


@cache
def load_harness(name: str) -> HarnessFactory:
    """The harness an agent names, by entry point `carpal.harnesses`."""
    # Cached: reading the entry points of every installed package takes 5 ms.
    for entry in entry_points(group="carpal.harnesses"):
        if entry.name == name:
            factory: HarnessFactory = entry.load()
            return factory
    known = ", ".join(sorted(entry.name for entry in entry_points(group="carpal.harnesses")))
    raise refuse(
        Reason.CONFIG_INVALID,
        f"the agent names the harness {name!r}, which is not installed here",
        action=f"use one of: {known}",
    )
