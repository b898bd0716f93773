"""Calling the model for a drive: intent before, the reply whole or not at all after."""

from collections.abc import Mapping

from brain.budget import Amounts, reservation
from brain.driver import Driver
from brain.effects import CallModel, Failed, Finish, Json, Replied
from brain.entries import New
from brain.model import Model, Reply
from brain.permissions import evaluate
from brain.request import canonical, digest_of
from brain.results import not_run
from brain.tools import meant
from brain.watch import WatchHub
from carpal.fault_points import point
from carpal.ids import new_id
from carpal.v1 import orchestrator_pb2 as pb

GIVEN = "given/"
"""How the policy of a request begins that no context policy can make again."""


class ModelCalls:
    """The model calls of one driven session."""

    def __init__(self, driver: Driver, hub: WatchHub, model: Model, harness: str) -> None:
        """`harness`: name and version, as `tool_loop/1`."""
        self._driver = driver
        self._hub = hub
        self._model = model
        self._harness = harness

    async def call(self, effect: CallModel) -> Replied | Failed | Finish:
        """Call it once; what came of it is in the log, and is given back.

        `Finish` when the budget does not allow it.
        """
        body = canonical(effect.request)
        reserve = reservation(effect.request, len(body))
        budget = self._driver.transcript.budget
        if limit := budget.reached(reserve):
            more = {"limit": limit, "limits": dict(budget.limits)}
            return Finish("budget_reached", settled=False, reason_more=more)
        request_id = new_id("sevt")
        start = await self._start(effect, body, reserve)
        await self._driver.append(New("span.model_request_start", start, id=request_id))
        self._tell(pb.WatchResponse(phase=pb.Phase(name="model", detail=str(start["model"]))))

        def delta(text: str, thinking: bool) -> None:
            moment = pb.TextDelta(model_request_id=request_id, text=text, thinking=thinking)
            if effect.purpose == "reply":
                self._tell(pb.WatchResponse(text=moment))

        self._driver.check_lease()
        call = self._model.call(effect.request, delta)
        answer = await self._driver.unless(lambda t: t.interrupted > effect.through, call)
        if answer is None:
            answer = Failed("interrupted", "a person interrupted", retryable=False)
        if isinstance(answer, Failed):
            await self._driver.append(_failed(request_id, answer))
            return answer
        if effect.purpose == "reply":
            events, blocks = self._reply(request_id, answer, effect.calls_prefix)
        else:
            kept = {"content": answer.blocks, "stop_reason": answer.stop_reason}
            events, blocks = [_ended(request_id, answer, {"reply": kept})], answer.blocks
        point("brain.intent.before_appended")
        await self._driver.append(*events)
        point("brain.intent.appended")
        return Replied(answer.stop_reason, blocks, answer.usage)

    async def _start(self, effect: CallModel, body: bytes, reserve: Amounts) -> Json:
        start: Json = {
            "model": effect.request["model"],
            "harness": self._harness,
            "policy": effect.policy,
            "through": effect.through,
            "request_sha256": digest_of(body),
            "reserved": reserve,
        }
        if effect.purpose != "reply":
            start["purpose"] = effect.purpose
        if effect.covers:
            start["covers"] = effect.covers
        if effect.policy.startswith(GIVEN):
            start["request_blob"] = await self._driver.keep(body)
        return start

    def _reply(self, request_id: str, reply: Reply, prefix: str) -> tuple[list[New], list[Json]]:
        """A reply's events, one group, so it is in the log whole or not at all; and its blocks."""
        events: list[New] = []
        blocks: list[Json] = []
        for block in reply.blocks:
            data: Json = {"model_request_start_id": request_id}
            if block["type"] == "tool_use":
                call_id = new_id("sevt")
                blocks.append({**block, "id": call_id})
                called = block["name"].removeprefix(prefix)
                hand, name = meant(self._driver.transcript, called)
                data |= {"name": name, "hand": hand, "input": block["input"]}
                agent = self._driver.transcript.agent
                data["evaluated_permission"] = evaluate(agent, called, hand)
                events.append(New("agent.tool_use", data, id=call_id))
                continue
            blocks.append(block)
            if block["type"] in ("thinking", "redacted_thinking"):
                events.append(New("agent.thinking", data | {"content": [block]}))
            elif block.get("text"):
                events.append(New("agent.message", data | {"content": [block]}))
        cut = reply.stop_reason == "max_tokens" and events and events[-1].type == "agent.tool_use"
        # A call cut off at the limit may read as a whole one that asks for something else.
        refused = [not_run(events[-1].id, "the reply was cut at max_tokens")] if cut else []
        return [*events, _ended(request_id, reply), *refused], blocks

    def _tell(self, moment: pb.WatchResponse) -> None:
        self._hub.tell(self._driver.session_id, moment)


def _failed(request_id: str, failed: Failed) -> New:
    error: Json = {"type": failed.kind, "message": failed.message, "retryable": failed.retryable}
    if failed.retry_after is not None:
        error["retry_after"] = failed.retry_after
    end = {"model_request_start_id": request_id, "is_error": True, "error": error}
    return New("span.model_request_end", end)


def _ended(request_id: str, reply: Reply, more: Mapping[str, Json] | None = None) -> New:
    end: Json = {
        "model_request_start_id": request_id,
        "is_error": False,
        "model_usage": reply.usage,
        "stop_reason": reply.stop_reason,
        **(more or {}),
    }
    return New("span.model_request_end", end)
