"""How a turn ends: events → stop reason, usage, what was said and done, exit code. Pure."""

from datetime import datetime
from typing import Any

from carpal.operator.events import data_of, missing_hand, object_in, text_in, time_of
from carpal.operator.overview import status_of
from carpal.v1 import types_pb2

DONE, FAILED, A_PERSON_MUST_ACT, BUDGET_REACHED = 0, 1, 10, 11

_EXIT_CODES = {
    "end_turn": DONE,
    "requires_action": A_PERSON_MUST_ACT,
    "budget_reached": BUDGET_REACHED,
}
_OVER = {"session.status_terminated": "terminated", "session.deleted": "deleted"}
"""Types after which nothing more comes, and the stop reason we give them."""


class Turn:
    """The session's work on one message, from the log alone.

    `message` is the message's position. An idle that follows it ends the turn
    only if the driver had seen the message: one that was appended in the same
    moment as the message still belongs to the turn before.
    """

    def __init__(self, message: int) -> None:
        self.stop_reason = ""
        self.usage: dict[str, int] = {}
        self.text = ""
        """What the agent said last."""
        self.tool_results: dict[str, int] = {}
        """How many calls ended, by outcome."""
        self.interrupted = False
        """A person interrupted it."""
        self.missing_hands: dict[str, str] = {}
        """Why each hand that could not be had could not, as far as that is so at the end."""
        self.events = 0
        self.position = 0
        """Of the last event taken."""
        self.last: int | None = None
        """Position at which the turn ends whatever is there, once that is known."""
        self._message = message
        self._seen = False
        self._first: datetime | None = None
        self._last: datetime | None = None

    @property
    def seconds(self) -> float:
        """From the first event taken to the last, on the store's clock."""
        if self._first is None or self._last is None:
            return 0.0
        return (self._last - self._first).total_seconds()

    @property
    def exit_code(self) -> int:
        """The command's: what is no known success is a failure, and so is a missing hand."""
        code = _EXIT_CODES.get(self.stop_reason, FAILED)
        return FAILED if code == DONE and self.missing_hands else code

    def take(self, event: types_pb2.Event) -> bool:
        """Count an event, in the order of the log; True when it ends the turn."""
        data = data_of(event)
        self.events += 1
        self.position = event.position
        self._last = time_of(event)
        self._first = self._first or self._last
        self._count(event, data)
        if event.position > self._message:
            self._seen = self._seen or self._shows_it_was_seen(event.type, data)
            if event.type in _OVER:
                self.stop_reason = _OVER[event.type]
                return True
            if event.type == "session.status_idle" and self._seen:
                self.stop_reason = str(object_in(data, "stop_reason").get("type") or "unknown")
                return True
        return self.last is not None and event.position >= self.last

    def resume(self, position: int) -> None:
        """The turn goes on: an idle ends it only once the driver had seen this position."""
        self.stop_reason = ""
        self._message, self._seen = position, False

    def report(self, session_id: str) -> dict[str, Any]:
        """The turn as `--json` shows it."""
        return {
            "session_id": session_id,
            "stop_reason": self.stop_reason or None,
            "events": self.events,
            "seconds": round(self.seconds, 3),
            "usage": self.usage,
            "interrupted": self.interrupted,
            "text": self.text,
            "tool_results": self.tool_results,
        }

    def _count(self, event: types_pb2.Event, data: dict[str, Any]) -> None:
        if missing := missing_hand(event, data):
            name, why = missing
            self.missing_hands[name] = why
        match event.type:
            case "span.model_request_end":
                self._add(object_in(data, "model_usage"))
            case "agent.message":
                self.text = text_in(data)
            case "agent.tool_result":
                outcome = str(data.get("outcome") or "unknown")
                self.tool_results[outcome] = self.tool_results.get(outcome, 0) + 1
            case "user.interrupt":
                self.interrupted = True
            case "hand.provisioned":
                self.missing_hands.pop(str(data.get("name")), None)
            case "context.tools":
                self.missing_hands.pop(str(data.get("hand")), None)

    def _shows_it_was_seen(self, kind: str, data: dict[str, Any]) -> bool:
        if kind in ("span.model_request_start", "session.status_idle"):
            through = data.get("through", data.get("seen"))
            return isinstance(through, int) and through >= self._message
        if kind == "session.error":
            status = object_in(object_in(data, "error"), "retry_status")
            return status.get("type") != "retrying"
        return kind == "session.status_running"

    def _add(self, usage: dict[str, Any]) -> None:
        for name, count in usage.items():
            if isinstance(count, int) and not isinstance(count, bool):
                self.usage[name] = self.usage.get(name, 0) + count


class EndOfTail:
    """Where a tail of a session ends: never with `follow`, at the head with False.

    With None, at the head if the session is idle; else where it is idle again.
    """

    def __init__(self, info: types_pb2.SessionInfo, follow: bool | None) -> None:
        busy = status_of(info) in ("running", "waiting")
        self._never = bool(follow)
        self._head = info.head.position
        self._turn = Turn(info.wake) if follow is None and busy else None

    def at(self, position: int) -> bool:
        """Whether nothing above a position is waited for."""
        return not self._never and self._turn is None and position >= self._head

    def take(self, event: types_pb2.Event) -> bool:
        """Look at the next event; True when it is the last."""
        if self._turn and self._turn.take(event):
            self._turn = None
        return self.at(event.position)
