"""Claude Code as the loop, its model and its tools ours.

Claude Code runs as a process beside this brain and does what it does: it keeps
the conversation, asks the model, calls tools. But the model it asks is our
endpoint, and the tools it calls are the session's hands, so each question
becomes a `CallModel` and each call an `Execute`, with intent and outcome in the
log. The process holds nothing that the log does not: it may be killed at any
time, and the next one is told the conversation from the log. So its window is
ours as well: the agent's context policy cuts it, and Claude Code's own
compaction is off.
"""

import asyncio
import logging
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from brain.context import fit
from brain.context.request import next_reply
from brain.context.settings import settings
from brain.context.tokens import estimate
from brain.context.window import next_size
from brain.effects import (
    AsyncHarness,
    CallModel,
    Effect,
    Emit,
    Failed,
    Finish,
    HarnessType,
    Purpose,
    Replied,
    Sleep,
)
from brain.harnesses.claude_code import history
from brain.harnesses.claude_code.endpoint import Ask, Ended, in_words
from brain.harnesses.claude_code.wire import (
    GO_ON,
    PREFIX,
    Json,
    error_of,
    is_reply,
    message_of,
    request_of,
    restored,
)
from brain.harnesses.tool_loop import due
from brain.session import model_kinds
from brain.session.entries import Entry
from brain.session.transcript import Transcript
from brain.tools.offered import offered
from carpal import extras
from carpal.errors import refuse
from carpal.layers import Layer
from carpal.status import Reason

if TYPE_CHECKING:
    from brain.harnesses.claude_code.claude import Claude

log = logging.getLogger(__name__)

POLICY = "given/1"
"""Claude Code makes the request, and no context policy can make it again."""
FALLS_MAX = 3
"""How often in a row it may fall before the turn ends."""
ASIDES_MAX = 8
"""Questions of its own that a process may ask before a reply, or between two."""
_FIRST_WAIT = 0.5
_ASKED_ANEW = (model_kinds.INTERRUPTED, model_kinds.CONTEXT)
"""Failures after which the same question makes no sense: the next is made from the log."""
_LACKS = "its request lacks "
_ASIDES = (
    f"it asked {ASIDES_MAX} questions of its own, and none that goes on with the conversation; "
    "this version may ask in another way than is known here"
)


async def claude_code(transcript: Transcript) -> AsyncHarness:
    """Drive a session with Claude Code."""
    at_work = AtWork(transcript)
    falls = 0
    try:
        while True:
            if first := due(transcript):
                for effect in first:
                    yield effect
                continue
            ask = await at_work.asked()
            if isinstance(ask, Ended):
                # The log has all; what fell is a process, and another one is told.
                await at_work.stop()
                falls = FALLS_MAX if ask.for_good else falls + 1
                for effect in _fallen(ask.why, falls):
                    yield effect
                continue
            if at_work.note:
                yield Emit("context.conversation_retold", {"reason": at_work.note})
                at_work.note = ""
            if at_work.interrupted():
                # It would not be asked, and charged all the same: what is due comes first.
                continue
            call = at_work.call(ask)
            result = yield call
            if call.purpose == "aside":
                _answer(ask, result)
            elif isinstance(result, Replied) and result.blocks:
                # Not after an aside: one that asks its title at each start, and falls, has an end.
                falls = 0
                _answer(ask, result)
                at_work.replied(result)
            elif isinstance(result, Failed) and result.kind in _ASKED_ANEW:
                await at_work.stop()
            else:
                # What is due follows from the log; then the same question is asked again.
                at_work.open = ask
    finally:
        await at_work.stop()


def _fallen(why: str, falls: int) -> Iterable[Effect]:
    """What to do after a process fell, for the so-manieth time in a row."""
    again = falls < FALLS_MAX
    status = {"type": "retrying" if again else "exhausted"}
    said = {"type": "unknown_error", "message": f"Claude Code: {why}", "retry_status": status}
    said["layer"] = str(Layer.HARNESS)
    yield Emit("session.error", {"error": said})
    if not again:
        yield Finish("retries_exhausted")
    yield Sleep(_FIRST_WAIT * 2.0**falls)


class AtWork:
    """The process that is at work, if one is, and how much of the log it was told."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._claude: Claude | None = None
        self._as_text = False
        self._resumed = False
        self._offered: list[Json] = []
        """The tools it was given: it is told once, and another process of others."""
        self._window = transcript.window
        self._asked = 0
        """How many questions this process asked."""
        self._asides = 0
        """How many of its own it asked since it was started, or replied."""
        self._waits = False
        """Whether it has its reply, and waits to hear what is new."""
        self._due: list[Json] = []
        """What must stand in the next request."""
        self.told = 0
        """Position up to which it was told everything."""
        self.open: Ask | None = None
        """A question that was not answered yet."""
        self.note = ""
        """Why the conversation was told as text, until that is in the log."""

    async def asked(self) -> Ask | Ended:
        """The next question, after it was told what is new."""
        while True:
            try:
                if self._claude is not None and self._told_otherwise():
                    await self.stop()
                if self.open is not None:
                    ask, self.open = self.open, None
                    return ask
                if self._claude is None:
                    await self._start()
                elif self._waits:
                    await self._tell(self._claude)
                came = await self._next()
            except OSError as error:
                log.warning("claude code fell", extra={"why": str(error)})
                came = Ended(in_words(error))
            if isinstance(came, Ask):
                if not self._outgrown(came):
                    return came
                await self.stop()
                continue
            if not self._unread(came):
                return came
            await self.stop()
            self._as_text = True
            self.note = f"Claude Code did not go on from its session file: {came.why}"

    async def _next(self) -> Ask | Ended:
        """What it asks, if that is of what it was told."""
        assert self._claude is not None
        came = await self._claude.next()
        if isinstance(came, Ended):
            return came
        request = self.request(came)
        if self.is_reply(request):
            if lost := history.missing(request, self._due):
                return Ended(_LACKS + lost)
            self._due, self._resumed = [], False
        elif self._asides == ASIDES_MAX:
            return Ended(_ASIDES, for_good=True)
        else:
            self._asides += 1
        return came

    def interrupted(self) -> bool:
        """Whether a person interrupted after what it was told last."""
        return self._transcript.interrupted > self.told

    def _told_otherwise(self) -> bool:
        """Whether it is to be told anew: what it was told, or how it was started, is not so now.

        After an interrupt, a cut of the window or other tools; and where it asked already and
        its question is asked again, after whatever came meanwhile.
        """
        if self.interrupted():
            return True
        if self.open is not None and self._new():
            return True
        then = (self._window, self._offered)
        return then != (self._transcript.window, offered(self._transcript))

    def _new(self) -> list[Entry]:
        """What came since it was told."""
        return [entry for entry in self._transcript.inputs if entry.position > self.told]

    def _outgrown(self, ask: Ask) -> bool:
        """Whether its conversation is too long, and the context policy's is a good deal shorter."""
        self._asked += 1
        chosen = settings(self._transcript.agent)
        size = estimate(ask.body)
        if self._asked == 1 or size <= chosen.at:
            return False
        return next_size(self._transcript, chosen) < size * 3 // 4

    def _unread(self, ended: Ended) -> bool:
        """Whether it ended because it could not make out its session file."""
        if not self._resumed or self._claude is None:
            return False
        return self._claude.refused or ended.why.startswith(_LACKS)

    async def _start(self) -> None:
        claude = await _load()
        call = next_reply(self._transcript)
        request = call.request
        self._offered = offered(self._transcript)
        self._window = self._transcript.window
        self._claude = claude(
            request["model"],
            self._transcript.agent.get("system") or "",
            request["max_tokens"],
            self._offered,
        )
        messages = history.as_known(request["messages"])
        begin = history.as_text(messages) if self._as_text else history.opening(messages)
        said = [block for block in begin.prompt if block.get("text") != GO_ON]
        self._due = [*begin.entries, {"role": "user", "content": said}]
        self._resumed = bool(begin.entries)
        self.told, self._asked, self._asides, self._waits = call.through, 0, 0, False
        await self._claude.start(begin)

    async def _tell(self, claude: "Claude") -> None:
        """The results it waits for, and before them what people said meanwhile.

        In this order: what stands before a result on its standard input is read before it, so
        it is in the request that answers the result.
        """
        new = self._new()
        results = [fit.result(e.data) for e in new if e.type == "agent.tool_result"]
        said = [e.data["content"] for e in new if e.type != "agent.tool_result"]
        texts = [block for content in said for block in fit.said(content)]
        self.told = self._transcript.head
        if texts:
            await claude.tell(texts)
        for block in results:
            claude.hands.settled(block)
        self._due = [{"role": "user", "content": [*results, *texts]}]
        self._waits = False

    def call(self, ask: Ask) -> CallModel:
        """The model call that a question is; the log says which model answers."""
        models, agent = self._transcript.models, self._transcript.agent
        choice = models.choice(agent)
        request = {**self.request(ask), "model": choice.model}
        purpose: Purpose = "reply" if self.is_reply(request) else "aside"
        if purpose == "reply" and (thinking := agent.get("thinking")):
            request["thinking"] = thinking
        return CallModel(
            request,
            POLICY,
            self.told,
            purpose=purpose,
            calls_prefix=PREFIX,
            provider=choice.provider,
        )

    def request(self, ask: Ask) -> Json:
        """What is sent on of a question."""
        assert self._claude is not None
        request = self._claude.pictures.shown(request_of(ask.body))
        return restored(request, self._claude.hands.results())

    def is_reply(self, request: Json) -> bool:
        """Whether a question is for the conversation's next reply."""
        assert self._claude is not None
        system = self._transcript.agent.get("system") or ""
        return is_reply(request, system, self._claude.hands.names)

    def replied(self, result: Replied) -> None:
        """It has a reply: it will ask for the results of the calls in it."""
        assert self._claude is not None
        self._asides, self._waits = 0, True
        for block in result.blocks:
            if block["type"] == "tool_use":
                self._claude.hands.called(block["id"], block["name"], block["input"])

    async def stop(self) -> None:
        """No process is at work."""
        claude, self._claude = self._claude, None
        self.open = None
        if claude is not None:
            await claude.stop()


async def _load() -> "type[Claude]":
    """Claude Code's side, which is loaded when it is first used. EXTRA_MISSING without it."""
    try:
        # Half a second, and this brain drives others meanwhile.
        module = await asyncio.to_thread(import_module, "brain.harnesses.claude_code.claude")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "brain":
            raise
        raise refuse(
            Reason.EXTRA_MISSING,
            f"the harness claude_code needs the package {error.name!r}, which this brain lacks",
            action=f"where brains run, {extras.how('claude-code')}",
        ) from None
    loaded: type[Claude] = module.Claude
    return loaded


def _answer(ask: Ask, result: Replied | Failed) -> None:
    if isinstance(result, Failed):
        kind = "invalid_request_error"
        ask.reply(error_of(kind, f"{result.kind}: {result.message}"))
        return
    model = ask.body["model"]
    name = f"msg_{id(ask):x}"
    ask.reply(message_of(name, model, result.blocks, result.stop_reason, result.usage))


HARNESS = HarnessType("1", claude_code)
"""The entry point `claude_code`."""
