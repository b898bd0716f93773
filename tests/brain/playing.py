"""A harness played over a log without a network: effects become events, as the runner has it."""

from collections.abc import Callable, Iterable
from typing import Any

from brain.effects import CallModel, Emit, Execute, Failed, Finish, Replied, Sleep
from brain.harnesses.tool_loop import tool_loop
from brain.session.entries import Entry
from tests.brain.context.chats import check_fit
from tests.brain.logs import Log

Json = dict[str, Any]
Answer = Replied | Failed
Mind = Callable[[CallModel, "Player"], Answer]
"""What the model says to a request."""


class Died(BaseException):
    """The brain did, right before an append."""


class Player:
    """Drives one log."""

    def __init__(self, log: Log, mind: Mind, *, dies_at: int = 0) -> None:
        """`dies_at`: the position that is never appended."""
        self.log = log
        self.mind = mind
        self.dies_at = dies_at
        self.asked: list[CallModel] = []
        self.finished: Finish | None = None
        self.slept: list[float] = []
        self.before_end: Callable[[CallModel], None] = lambda effect: None
        """What happens while the model writes."""

    def run(self) -> "Player":
        """To the harness's end."""
        harness = tool_loop(self.log.transcript)
        result: Any = None
        for _ in range(10_000):
            effect = harness.send(result)
            result = None
            match effect:
                case CallModel():
                    result = self._call(effect)
                case Execute():
                    for call_id in effect.call_ids:
                        call = self.log.transcript.calls[call_id]
                        self._result(call_id, str(call.input.get("command", "")))
                case Emit():
                    self._add(effect.type, effect.data)
                case Sleep():
                    self.slept.append(effect.seconds)
                case Finish():
                    self.finished = effect
                    through = self.log.transcript.head if effect.through is None else effect.through
                    reason = {"type": effect.stop_reason}
                    data = {"stop_reason": reason, "through": through}
                    self._add("session.status_idle", data)
                    return self
        raise AssertionError("it comes to no end")

    def _call(self, effect: CallModel) -> Answer:
        check_fit(effect.request)
        self.asked.append(effect)
        start: Json = {"through": effect.through, "policy": effect.policy}
        if effect.purpose != "reply":
            start |= {"purpose": effect.purpose, "covers": effect.covers}
        request = self._add("span.model_request_start", start)
        self.before_end(effect)
        answer = self.mind(effect, self)
        if self.log.transcript.interrupted > effect.through:
            answer = Failed("interrupted", "a person interrupted", retryable=False)
        end: Json = {"model_request_start_id": request, "is_error": isinstance(answer, Failed)}
        if isinstance(answer, Failed):
            error = {"type": answer.kind, "message": answer.message, "retryable": answer.retryable}
            self._add("span.model_request_end", end | {"error": error})
            return answer
        end |= {"stop_reason": answer.stop_reason, "model_usage": answer.usage}
        if effect.purpose != "reply":
            kept = {"content": answer.blocks, "stop_reason": answer.stop_reason}
            self._add("span.model_request_end", end | {"reply": kept})
            return answer
        group: list[tuple[str, Json]] = []
        for block in answer.blocks:
            data: Json = {"model_request_start_id": request}
            if block["type"] == "tool_use":
                data |= {"name": "bash", "hand": "shell", "input": block["input"]}
                group.append(("agent.tool_use", data))
            elif block["type"] == "thinking":
                group.append(("agent.thinking", data | {"content": [block]}))
            else:
                group.append(("agent.message", data | {"content": [block]}))
        self._group([*group, ("span.model_request_end", end)])
        return answer

    def _result(self, call_id: str, text: str) -> None:
        self._check(1)
        self.log.result(call_id, text)

    def _add(self, kind: str, data: Json) -> str:
        self._check(1)
        return self.log.add(kind, data)

    def _group(self, events: list[tuple[str, Json]]) -> None:
        self._check(len(events))
        for kind, data in events:
            self.log.add(kind, data)

    def _check(self, count: int) -> None:
        head = self.log.transcript.head
        if head < self.dies_at <= head + count:
            raise Died


def log_of(entries: Iterable[Entry], inherited: int = 0) -> Log:
    """A log of recorded events, folded from its start."""
    log = Log.__new__(Log)
    log.entries = []
    log.transcript = type(Log().transcript)(inherited)
    for entry in entries:
        log.entries.append(entry)
        log.transcript.apply(entry)
    return log


def says(text: str, **usage: int) -> Replied:
    """A reply of one text."""
    return Replied("end_turn", [{"type": "text", "text": text}], usage)


def runs(*commands: str, thinks: str = "") -> Replied:
    """A reply of calls."""
    thinking = [{"type": "thinking", "thinking": thinks, "signature": "s"}] if thinks else []
    calls = [{"type": "tool_use", "id": c, "input": {"command": c}} for c in commands]
    return Replied("tool_use", [*thinking, *calls])
