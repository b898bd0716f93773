"""Calling the model for a drive: intent before, the reply whole or not at all after."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from brain.budget import Amounts, reservation
from brain.context.differing import differing
from brain.context.request import digest_of
from brain.effects import CallModel, Failed, Finish, Json, Replied
from brain.models import features, media
from brain.models.model import Model, Reply
from brain.session import model_kinds as kinds
from brain.session.driver import Driver
from brain.session.entries import New
from brain.session.model_standing import Choice
from brain.session.results import not_run
from brain.session.watch import WatchHub
from brain.text import canonical
from brain.tools import toolsets
from brain.tools.offered import is_server, no_tool, permitted
from carpal import layers
from carpal.fault_points import point
from carpal.ids import new_id
from carpal.layers import Layer
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb

_REASON_MAX = 500
"""Characters of a service's message that an event about a part of the request keeps."""
_CUT = {"max_tokens": "max_tokens", "model_context_window_exceeded": "the context window's end"}
"""Stop reasons of a reply that was not at its end → what cut it."""
_STOP = ("stop_sequence", "stop_details")
_INTERRUPTED = Failed("interrupted", "a person interrupted", retryable=False)
GIVEN = "given/"
"""How the policy of a request begins that no context policy can make again."""


class ModelCalls:
    """The model calls of one driven session."""

    def __init__(
        self,
        driver: Driver,
        hub: WatchHub,
        model: Model,
        harness: str,
        *,
        answering: Callable[[], None] = lambda: None,
    ) -> None:
        """`harness`: name and version, as `tool_loop/1`.

        `answering` is told whenever the model begins to answer, at the latest once it has.
        """
        self._driver = driver
        self._hub = hub
        self._model = model
        self._harness = harness
        self._answering = answering
        self._before: tuple[str, Json] | None = None
        """Of the last reply that no policy makes again: its start's id, and its request."""

    async def call(self, effect: CallModel) -> Replied | Failed | Finish:
        """Call it once; what came of it is in the log, and is given back.

        `Finish` when the budget does not allow it. A call that was decided before a person
        interrupted is not made: it has failed, and leaves nothing in the log.
        """
        if self._driver.transcript.interrupted > effect.through:
            # It was decided before: nothing is asked, so nothing is to be in the log, or paid for.
            return _INTERRUPTED
        lacks = self._lacks(effect)
        known = self._model.lacking(effect.request, effect.provider)
        if news := [each for each in known if each not in lacks]:
            return await self._told_lacking(effect, news)
        given = effect.policy.startswith(GIVEN)
        if given:
            refused = self._driver.transcript.models.refused
            request = media.without(features.without(effect.request, lacks), refused)
            effect = replace(effect, request=request)
        contents = await self._contents(effect)
        if isinstance(contents, Failed):
            return await self.call(effect) if given and contents.media else contents
        body = canonical(effect.request)
        reserve = reservation(effect.request, len(body))
        budget = self._driver.transcript.budget
        if limit := budget.reached(reserve):
            more = {"limit": limit, "limits": dict(budget.limits)}
            return Finish("budget_reached", settled=False, reason_more=more)
        request_id = new_id("sevt")
        start = await self._start(effect, body, reserve)
        point("brain.request.before_started")
        started = await self._driver.append_unseen(
            New("span.model_request_start", start, id=request_id)
        )
        if given and effect.purpose == "reply":
            self._before = request_id, effect.request
        point("brain.request.started")
        self._tell(pb.WatchResponse(phase=pb.Phase(name="model", detail=str(start["model"]))))

        def delta(text: str, thinking: bool) -> None:
            self._answering()
            moment = pb.TextDelta(model_request_id=request_id, text=text, thinking=thinking)
            if effect.purpose == "reply":
                self._tell(pb.WatchResponse(text=moment))

        self._driver.check_lease()
        call = self._model.call(effect.request, delta, effect.provider, contents)
        answer = await self._driver.unless(lambda t: t.interrupted > effect.through, call)
        self._answering()
        await self._driver.until(lambda t: t.head >= started)
        if answer is None:
            answer = _INTERRUPTED
        if isinstance(answer, Failed):
            learned = self._learned(effect, answer)
            await self._driver.append(_failed(request_id, answer), *learned)
            # No policy makes it anew, so it is made again here; each time there is less of it.
            return await self.call(effect) if given and learned else answer
        if effect.purpose == "reply":
            events, blocks = self._reply(request_id, answer, effect.calls_prefix)
        else:
            kept = {"content": answer.blocks, "stop_reason": answer.stop_reason}
            events, blocks = [_ended(request_id, answer, {"reply": kept})], answer.blocks
        point("brain.intent.before_appended")
        await self._driver.append(*events)
        point("brain.intent.appended")
        return Replied(answer.stop_reason, blocks, answer.usage)

    async def _contents(self, effect: CallModel) -> dict[str, bytes] | Failed:
        """The bytes of the pictures that a request names, by their blobs.

        Of those that are not there, it is said in the log, and the request is to be made anew.
        """
        wanted = media.blobs(effect.request)
        if not wanted:
            return {}
        read = (self._driver.content(name, b["source"]["size"]) for name, b in wanted.items())
        found = await self._driver.unless(
            lambda t: t.interrupted > effect.through, asyncio.gather(*read)
        )
        if found is None:
            return _INTERRUPTED
        contents = dict(zip(wanted, found, strict=True))
        gone = [media.source_digest(wanted[name]) for name, data in contents.items() if not data]
        if not gone:
            return {name: data for name, data in contents.items() if data}
        await self._driver.append(
            New("context.media_refused", {"sha256": gone, "reason": media.GONE})
        )
        return Failed(kinds.MEDIA, media.GONE, retryable=True, media=tuple(gone))

    async def _start(self, effect: CallModel, body: bytes, reserve: Amounts) -> Json:
        start: Json = {
            "model": effect.request["model"],
            "provider": self._model.provider(effect.provider),
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
            start |= await self._kept(effect, body)
        return start

    async def _kept(self, effect: CallModel, body: bytes) -> Json:
        """Where a request that no policy makes again is kept: of a long turn what is new in it."""
        if self._before is not None and effect.purpose == "reply":
            before_id, before = self._before
            if (found := differing(effect.request, before)) is not None:
                differs, shared = found
                base = {"model_request_start_id": before_id, "messages": shared}
                blob = await self._driver.keep(canonical(differs))
                return {"request_blob": blob, "request_base": base}
        return {"request_blob": await self._driver.keep(body)}

    def _lacks(self, effect: CallModel) -> set[str]:
        """What the log says is not to be asked of a model."""
        choice = Choice(effect.request["model"], effect.provider)
        return self._driver.transcript.models.lacks(choice)

    async def _told_lacking(
        self, effect: CallModel, features: list[str]
    ) -> Replied | Failed | Finish:
        """Say what the provider is known to lack, before it is asked: the request is made anew."""
        why = f"provider {self._model.provider(effect.provider)!r} does not have it"
        await self._driver.append(*(_missing(effect, each, why) for each in features))
        if effect.policy.startswith(GIVEN):
            return await self.call(effect)
        return Failed(kinds.FEATURE, f"{', '.join(features)}: {why}", retryable=True)

    def _learned(self, effect: CallModel, failed: Failed) -> list[New]:
        """What a refusal says of the request, where that is news."""
        models = self._driver.transcript.models
        if failed.feature and failed.feature not in self._lacks(effect):
            model = effect.request["model"]
            return [_missing(effect, failed.feature, failed.message, model)]
        if news := [each for each in failed.media if each not in models.refused]:
            reason = failed.message[:_REASON_MAX]
            return [New("context.media_refused", {"sha256": news, "reason": reason})]
        return []

    def _reply(self, request_id: str, reply: Reply, prefix: str) -> tuple[list[New], list[Json]]:
        """A reply's events, one group, so it is in the log whole or not at all; and its blocks."""
        events: list[New] = []
        blocks: list[Json] = []
        refused: list[New] = []
        for block in reply.blocks:
            data: Json = {"model_request_start_id": request_id}
            if block["type"] == "tool_use":
                call_id = new_id("sevt")
                blocks.append({**block, "id": call_id})
                called = toolsets.called(self._driver.transcript, block).removeprefix(prefix)
                hand, name, permission = permitted(self._driver.transcript, called)
                data |= {"name": name, "hand": hand, "input": block["input"]}
                data["evaluated_permission"] = permission
                if is_server(self._driver.transcript, hand):
                    data["mcp_server_name"] = hand
                events.append(New("agent.tool_use", data, id=call_id))
                missing = no_tool(self._driver.transcript, called)
                if wrong := _why_not_run(reply, block):
                    refused.append(not_run(call_id, *wrong))
                elif missing:
                    refused.append(not_run(call_id, *missing))
                continue
            blocks.append(block)
            if block["type"] in ("thinking", "redacted_thinking"):
                events.append(New("agent.thinking", data | {"content": [block]}))
            elif block["type"] != "text" or block["text"]:
                events.append(New("agent.message", data | {"content": [block]}))
        return [*events, _ended(request_id, reply), *refused], blocks

    def _tell(self, moment: pb.WatchResponse) -> None:
        self._hub.tell(self._driver.session_id, moment)


def _why_not_run(reply: Reply, block: Json) -> tuple[str, str] | None:
    """Why a call of a reply is not run, and the cause; None when it is."""
    if reply.stop_reason == "refusal":
        return "the model refused to go on", layers.REPLY_CUT
    if reply.stop_reason in _CUT and block is reply.blocks[-1]:
        # A call cut off at the limit may read as a whole one that asks for something else.
        return f"the reply was cut at {_CUT[reply.stop_reason]}", layers.REPLY_CUT
    if "invalid_input" in block:
        return f"its input is no JSON object: {block['invalid_input']}", Reason.INPUT_INVALID
    return None


def _missing(effect: CallModel, feature: str, why: str, model: str = "") -> New:
    """A feature that a provider, or one of its models, does not have."""
    said = {"provider": effect.provider, "feature": feature, "reason": why[:_REASON_MAX]}
    return New("context.feature_missing", said | ({"model": model} if model else {}))


def _failed(request_id: str, failed: Failed) -> New:
    error: Json = {"type": failed.kind, "message": failed.message, "retryable": failed.retryable}
    if failed.kind != kinds.INTERRUPTED:  # a person did that
        error["layer"] = failed.layer or str(Layer.MODEL)
    if failed.status is not None:
        error["status"] = failed.status
    if failed.retry_after is not None:
        error["retry_after"] = failed.retry_after
    end: Json = {"model_request_start_id": request_id, "is_error": True, "error": error}
    if failed.usage is not None:
        end["model_usage"] = failed.usage
    return New("span.model_request_end", end)


def _ended(request_id: str, reply: Reply, more: Mapping[str, Json] | None = None) -> New:
    end: Json = {
        "model_request_start_id": request_id,
        "is_error": False,
        "model_usage": reply.usage,
        "stop_reason": reply.stop_reason,
        **{name: reply.stop[name] for name in _STOP if name in reply.stop},
        **(more or {}),
    }
    return New("span.model_request_end", end)
