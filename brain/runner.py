"""The runner: performs a harness's effects for one session it drives.

Intent is appended before, outcome after. The harness decides from the
transcript, synchronously, so what it decided was true of the head it saw;
that head is what is reported as processed.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from brain import harness
from brain.daemons.fleet import Fleet
from brain.effect_check import as_appended
from brain.effects import (
    CallModel,
    Effect,
    Emit,
    Execute,
    Finish,
    Json,
    Provision,
    ReadEvents,
    Sleep,
)
from brain.fault import at_fault
from brain.hands.calls import Calls
from brain.hands.placement import Placement
from brain.hands.provision import PATIENCE
from brain.hands.saves import Saves
from brain.mcp.grants import Door
from brain.mcp.session_servers import SessionServers
from brain.model_calls import ModelCalls
from brain.models.model import Model
from brain.restraint import Restraint
from brain.session.driver import Driver
from brain.session.entries import COMPACTED, Entry, New
from brain.session.transcript import Transcript
from brain.session.watch import WatchHub
from brain.tools.offered import LISTS_TOOLS, context_tools, unknown_names, unlisted
from carpal.agent import logged_agent
from carpal.errors import CarpalError
from carpal.fault_points import point
from carpal.layers import Layer, layer_of
from carpal.mistake import Mistake
from carpal.v1 import orchestrator_pb2 as pb

log = logging.getLogger(__name__)

T = TypeVar("T")

_CLAIM = 5.0
"""Seconds that the end of a drive waits for hands that nobody claimed before."""


@dataclass(frozen=True)
class Done:
    """A drive's end: what was processed."""

    processed: int


class Runner:
    """Drives one session until its harness finishes."""

    def __init__(
        self,
        driver: Driver,
        fleet: Fleet,
        hub: WatchHub,
        model: Model,
        vault: Door | None = None,
    ) -> None:
        """Without a `vault` no MCP server is reached."""
        self._driver = driver
        self._fleet = fleet
        self._hub = hub
        self._model = model
        self._servers = SessionServers(driver, vault)
        self._calls = Calls(driver, fleet, hub, self._servers)
        self._underway = asyncio.Event()
        """The first thing that was waited for goes on."""
        self._saves = Saves(driver, fleet)
        self._slept = 0
        """The log's head when a wait of the harness ended last."""

    async def run(self) -> Done:
        """From takeover to idle."""
        transcript = self._driver.transcript
        self._driver.started_at = self._slept = transcript.head
        await self._tell_passed_over()
        if not transcript.has_work():
            # Woken, maybe, for a hand that came back with something to tell.
            await self._calls.hear_all()
        if not transcript.has_work():
            await self._saves.settle()
        if not transcript.has_work():
            return Done(transcript.head)
        try:
            logged_agent(transcript.agent, transcript.hand_specs)
        except Mistake as mistake:
            return await self._without_agent(mistake)
        async with self._servers, asyncio.TaskGroup() as group:
            beside = [
                group.create_task(self._look_after()),
                group.create_task(self._servers.keep()),
            ]
            done = await self._loop(transcript)
            for task in beside:
                task.cancel()
        return done

    async def _look_after(self) -> None:
        """Claim hands, once that delays nobody: the first word of the model waits for none of them.

        So from its answer on, or from the first effect that asks for none. A call claims its hand
        itself, if it comes before that.
        """
        if not self._driver.transcript.open_calls():
            await self._underway.wait()
        await self._calls.look_after()

    async def _loop(self, transcript: Transcript) -> Done:
        name = transcript.agent.get("harness") or harness.DEFAULT
        kind = harness.load(name)
        self._driver.fold.ours &= harness.is_ours(kind)
        opening = [] if transcript.running else [New("session.status_running", {})]
        if transcript.harness != (name, kind.version):
            opening.append(New("context.harness", {"name": name, "version": kind.version}))
        learned = await self._unless_interrupted(self._learn_tools(transcript))
        tools, to_make = learned or ([], [])
        steps = harness.Steps(name, kind, transcript)
        models = ModelCalls(
            self._driver,
            self._hub,
            self._model,
            f"{name}/{kind.version}",
            answering=self._underway.set,
        )
        restraint = Restraint(time.monotonic())
        try:
            # That the turn begins is one group with its first request, where nothing comes
            # between: one wait less for the disk before the model is asked.
            self._driver.hold(*opening, *tools)
            news = tools or to_make or transcript.saves
            if news or not steps.at_once or transcript.models.of_last_turn():
                await self._driver.append_held()
            async with asyncio.TaskGroup() as group:
                for each in to_make:
                    group.create_task(self._calls.provision(each, called=False))
            if names := unknown_names(transcript):
                await self._driver.append(_no_tools(names))
            await self._saves.settle()
            effect = await self._consented() or await steps.next()
            while not isinstance(effect, Finish):
                ran = isinstance(effect, Execute) and _open(transcript, effect)
                result = await self._perform(effect, models)
                if isinstance(result, Finish):
                    effect = result
                    break
                now = time.monotonic()
                if beyond := restraint.beyond(effect, result, ran=ran, now=now):
                    raise at_fault(name, beyond)
                await self._saves.settle()
                effect = await steps.next(result)
            # What comes while it is let go was considered by nobody.
            head = transcript.head
        finally:
            await steps.close()
        await self._claimed()
        return await self._finish(transcript, effect, head)

    async def _consented(self) -> Finish | None:
        """The end of the drive when servers' tools are not known before their user consents.

        The model would be asked as if there were none.
        """
        transcript = self._driver.transcript
        if transcript.open_calls() or not transcript.wants_model():
            return None
        if not transcript.without_tools():
            return None
        await self._driver.append_held()
        return _for_a_person(transcript)

    async def _claimed(self) -> None:
        """Have claimed hands in a drive that had no reason to, before it ends; not for ever."""
        if self._underway.is_set():
            return
        self._underway.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLAIM):
                await self._calls.claimed.wait()

    async def _finish(self, transcript: Transcript, effect: Finish, head: int) -> Done:
        processed = head if effect.through is None else effect.through
        await self._tell_passed_over()
        # Those that came while the harness decided count as processed.
        await self._saves.settle()
        reason = {"type": effect.stop_reason, **effect.reason_more}
        spent = transcript.budget.spent
        idle: Json = {"stop_reason": reason, "spent": dict(spent)}
        idle["through" if effect.settled else "seen"] = processed
        if effect.details is not None:
            idle["stop_details"] = effect.details
        point("brain.turn.before_finished")
        await self._driver.append(New("session.status_idle", idle))
        point("brain.turn.finished")
        self._tell("idle", effect.stop_reason)
        return Done(processed)

    async def _without_agent(self, mistake: Mistake) -> Done:
        """The log's agent is none: that is said, and what waits is given up."""
        transcript = self._driver.transcript
        said = {
            "type": "agent_invalid_error",
            "message": f"the session's agent: {mistake}",
            "retry_status": {"type": "exhausted"},
            "layer": str(Layer.HARNESS),
        }
        await self._driver.append(New("session.error", {"error": said}))
        return await self._finish(transcript, Finish("retries_exhausted"), transcript.head)

    async def _tell_passed_over(self) -> None:
        """Events for what was appended to no effect, each told once."""
        transcript = self._driver.transcript
        news = [(e, "malformed_event_error", _MALFORMED) for e in transcript.malformed]
        news += [(e, "confirmation_moot_error", why) for e, why in transcript.moot]
        told = [_passed_over(*each) for each in news if each[0].position > transcript.told]
        if told:
            await self._driver.append(*told)

    async def _execute(self, call_ids: tuple[str, ...]) -> Finish | None:
        """Settle calls; the end of the drive when all that is left of them waits for a person."""
        transcript = self._driver.transcript
        calls = [transcript.calls[call_id] for call_id in call_ids]
        while open_calls := [call for call in calls if call.result is None]:
            if all(map(transcript.waits, open_calls)):
                return _for_a_person(transcript)
            await self._calls.settle(tuple(call.call_id for call in open_calls))
        return None

    async def _perform(self, effect: Effect, models: ModelCalls) -> object:
        self._driver.check_lease()
        if not isinstance(effect, CallModel):
            await self._driver.append_held()
            self._underway.set()
        match effect:
            case CallModel():
                return await models.call(effect)
            case Provision():
                await self._calls.provision(effect.hand)
                return None
            case Execute():
                self._tell("execute", "")
                return await self._execute(effect.call_ids)
            case ReadEvents():
                return await self._driver.read(
                    after=effect.after,
                    before=effect.before,
                    newest_first=effect.newest_first,
                    limit=effect.limit,
                    types=effect.types,
                )
            case Emit():
                return await self._emit(effect)
            case Sleep():
                await self._sleep(effect.seconds)
                return None
            case Finish():
                raise RuntimeError("a harness goes no further than Finish")

    async def _sleep(self, seconds: float) -> None:
        transcript = self._driver.transcript
        # The model has not seen what came since it was asked: that is no time to wait.
        since = max(transcript.asked_at(), self._slept)
        await self._driver.unless(lambda t: t.changed > since, asyncio.sleep(seconds))
        self._slept = transcript.head

    async def _emit(self, effect: Emit) -> int:
        if effect.type != COMPACTED:
            return await self._driver.append(New(effect.type, as_appended(effect)))
        data = effect.data
        if state := await self._driver.checkpoint(data["through"]):
            data = {**data, "state": state}
        point("brain.window.before_cut")
        position = await self._driver.append(New(effect.type, data))
        point("brain.window.cut")
        return position

    async def _learn_tools(self, transcript: Transcript) -> tuple[list[New], list[str]]:
        """Events for what the named hands' types offer now, where that is news.

        And the hands that have tools of their own, and of which none has said yet which.
        """
        alike: dict[str, list[str]] = {}
        for name, spec in transcript.hand_specs.items():
            what = [spec["type"], spec.get("placement"), name in transcript.tools]
            alike.setdefault(json.dumps(what, sort_keys=True), []).append(name)
        offers = (self._offer(transcript, names) for names in alike.values())
        told, of_servers = await asyncio.gather(asyncio.gather(*offers), self._servers.learn())
        news = {name: event for each in told for name, event in each.items()}
        named = [(name, news[name]) for name in transcript.hand_specs if name in news]
        events = [event for _, event in named if event is not None]
        events += of_servers
        return events, [name for name, event in named if event is None]

    async def _offer(self, transcript: Transcript, names: list[str]) -> dict[str, New | None]:
        """The events for what one type offers now, by hand; where it is news, of hands alike.

        None for a hand that is to say itself.
        """
        # What an earlier driver learned will do while the daemon finds its way back.
        known = names[0] in transcript.tools
        place = Placement(self._fleet, self._driver.workspace, transcript.hand_specs[names[0]])
        try:
            info = await place.offer(0.0 if known else PATIENCE)
            if LISTS_TOOLS in info.capabilities:
                return dict.fromkeys(unlisted(transcript, info.type, names))
            tools = {name: context_tools(name, info) for name in names}
        except CarpalError as error:
            return {} if known else {name: _unavailable(name, error) for name in names}
        news = {name: told for name, told in tools.items() if told != transcript.tools.get(name)}
        return {name: New("context.tools", told) for name, told in news.items()}

    async def _unless_interrupted(self, work: Awaitable[T]) -> T | None:
        """Do the work; None when a person interrupts from now on."""
        since = self._driver.transcript.interrupted
        return await self._driver.unless(lambda t: t.interrupted > since, work)

    def _tell(self, phase: str, detail: str) -> None:
        moment = pb.WatchResponse(phase=pb.Phase(name=phase, detail=detail))
        self._hub.tell(self._driver.session_id, moment)


def _open(transcript: Transcript, effect: Execute) -> bool:
    return any(transcript.calls[each].result is None for each in effect.call_ids)


def _unavailable(name: str, error: CarpalError) -> New:
    said = {
        "type": "hand_unavailable_error",
        "message": f"hand {name!r}: {error}",
        "retry_status": {"type": "retrying"},
        "layer": str(layer_of(error.reason, Layer.DAEMON)),
        "cause": str(error.reason),
    }
    return New("session.error", {"error": said, "hand": name})


def _no_tools(names: list[str]) -> New:
    what = ", ".join(repr(name) for name in names[:_NAMES_MAX])
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    said = {
        "type": "tool_unknown_error",
        "message": f"the agent's permissions or offer name {what}{more}, and no hand has a tool of "
        "that name: correct the agent, for such a name protects nothing",
        "retry_status": {"type": "retrying"},
        "layer": str(Layer.HARNESS),
    }
    return New("session.error", {"error": said, "no_tools": names})


_NAMES_MAX = 20
"""Names that an event's message says."""
_MALFORMED = "it is not what its type says"


def _for_a_person(transcript: Transcript) -> Finish:
    ids = transcript.waits_for()
    return Finish("requires_action", settled=False, reason_more={"event_ids": ids})


def _passed_over(entry: Entry, kind: str, why: str) -> New:
    said = {
        "type": kind,
        "message": f"event {entry.position} ({entry.type}) is passed over: {why}",
        "retry_status": {"type": "terminal"},
        "layer": str(Layer.HARNESS),
    }
    return New("session.error", {"error": said, "passed_over": entry.position})
