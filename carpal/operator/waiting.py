"""What of a session waits for a person: the events of its newest turn → calls, consents. Pure.

Those that wait are all of the model's newest reply: it is not asked again
before each of its calls has a result.
"""

import json
from dataclasses import dataclass
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.operator.events import data_of, printable
from carpal.sources import is_of_role
from carpal.status import Reason
from carpal.v1 import types_pb2

TYPES = (
    "span.model_request_start",
    "agent.tool_use",
    "agent.tool_result",
    "session.consent_required",
    "user.consent",
    "user.tool_confirmation",
    "user.interrupt",
)
"""Event types that say so."""
CONSENT = "(consent)"
"""Stands for a tool's name where a consent is waited for: no tool has it."""
_SHOWN = 64 * 1024
"""Characters of an input; a person must see what they allow."""


@dataclass(frozen=True)
class Asked:
    """A call that a person must allow; or `consent`, that a user must give.

    Of a consent, the id is that of the event that asks for it, `hand` the MCP server's name, and
    `input` has `url`, `user` and `vault_id`.
    """

    call_id: str
    hand: str
    name: str
    input: Any

    @property
    def is_consent(self) -> bool:
        """Whether it is one."""
        return self.name == CONSENT

    def row(self) -> dict[str, Any]:
        """As JSON shows it."""
        return {"call": self.call_id, "hand": self.hand, "name": self.name, "input": self.input}

    def text(self) -> str:
        """Tool and whole input, in one line."""
        if self.is_consent:
            told = self.input
            return printable(f"{self.hand}: consent of the user {told['user']} to {told['url']}")
        said = json.dumps(self.input, ensure_ascii=False)
        more = f" … and {len(said) - _SHOWN} characters more" if len(said) > _SHOWN else ""
        return printable(f"{self.hand}: {self.name} {said[:_SHOWN]}{more}")


def waits(data: dict[str, Any]) -> bool:
    """Whether a call, by the data of its `agent.tool_use`, waits for a person."""
    return data.get("evaluated_permission") not in ("allow", "deny")


def counts(event: types_pb2.Event, data: dict[str, Any]) -> bool:
    """Whether a confirmation is a person's word."""
    return is_of_role(event.source, "operator") and data.get("result") in ("allow", "deny")


class Calls:
    """The fold of a log, or of its end from a model request on."""

    def __init__(self) -> None:
        self._asked: dict[str, Asked] = {}
        self._over: dict[str, str] = {}
        """Why each call that waits no more does not."""

    @property
    def waiting(self) -> list[Asked]:
        """Calls that nobody decided, oldest first."""
        return [asked for call_id, asked in self._asked.items() if call_id not in self._over]

    def take(self, event: types_pb2.Event) -> None:
        """Look at the next event."""
        data = data_of(event)
        match event.type:
            case "agent.tool_use" if waits(data):
                name, hand = str(data.get("name", "?")), str(data.get("hand", "?"))
                self._asked[event.id] = Asked(event.id, hand, name, data.get("input"))
            case "session.consent_required":
                told = {key: str(data.get(key, "")) for key in ("url", "user", "vault_id")}
                server = str(data.get("mcp_server_name", "?"))
                self._asked[event.id] = Asked(event.id, server, CONSENT, told)
            case "user.consent" if is_of_role(event.source, "operator"):
                self._end(data.get("consent_id"), f"was decided at position {event.position}")
            case "agent.tool_result":
                self._end(data.get("tool_use_id"), "has its result")
            case "user.tool_confirmation" if counts(event, data):
                word = "allowed" if data["result"] == "allow" else "denied"
                why = f"was {word} at position {event.position}"
                self._end(data.get("tool_use_id"), why)
            case "user.interrupt":
                for asked in self.waiting:
                    self._over[asked.call_id] = f"was interrupted at position {event.position}"

    def named(self, call_ids: tuple[str, ...], session_id: str) -> list[Asked]:
        """The calls of these ids, or all that wait; refuses one that does not.

        CALL_NOT_FOUND for one that is none, or when nothing waits; CALL_DECIDED.
        """
        for call_id in call_ids:
            if call_id not in self._asked:
                raise self._unknown(f"no call {call_id!r} waits for a person", session_id)
            if why := self._over.get(call_id):
                raise refuse(Reason.CALL_DECIDED, f"the call {call_id!r} {why}")
        if not call_ids and not self.waiting:
            raise self._unknown("no call waits for a person", session_id)
        return [asked for asked in self.waiting if not call_ids or asked.call_id in call_ids]

    def _unknown(self, what: str, session_id: str) -> CarpalError:
        how = f"look with `carpal session show {session_id}`"
        return refuse(Reason.CALL_NOT_FOUND, f"{what} in {session_id}", action=how)

    def _end(self, call_id: object, why: str) -> None:
        if isinstance(call_id, str):
            self._over.setdefault(call_id, why)
