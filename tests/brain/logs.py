"""A log in the making, for pure tests: events at positions, as sessiond would give them."""

from dataclasses import replace
from typing import Any

from brain.session.entries import Entry
from brain.session.transcript import Transcript

AGENT = {"name": "a", "model": "m", "system": "be brief", "max_tokens": 100}
HANDS = {"shell": {"type": "process"}, "build": {"type": "process"}}
LOG_TOOLS = ["brain__session_search", "brain__session_read"]
"""What an agent is offered beside its hands' tools, unless it says otherwise."""


class Log:
    """Appends entries and keeps the transcript folded over them."""

    def __init__(self, inherited: int = 0) -> None:
        self.entries: list[Entry] = []
        self.transcript = Transcript(inherited)
        self.add("session.updated", {"agent": AGENT, "hands": HANDS})

    def add(
        self,
        kind: str,
        data: dict[str, Any] | None = None,
        *,
        must: bool = False,
        named: str = "",
        source: str = "",
    ) -> str:
        """Append one event, a person's by an operator and others by a brain; its id."""
        position = len(self.entries) + 1
        entry = Entry(position, named or f"e{position}", kind, data or {}, must, float(position))
        role = "operator/ada" if kind.startswith("user.") else "brain/b1"
        entry = replace(entry, source=source or f"spiffe://carpal.internal/{role}")
        self.entries.append(entry)
        self.transcript.apply(entry)
        return entry.id

    def say(self, text: str) -> str:
        """A person's message."""
        return self.add("user.message", {"content": [{"type": "text", "text": text}]})

    def ask(self) -> str:
        """Start of a model call that saw everything so far."""
        return self.add("span.model_request_start", {"through": self.transcript.head})

    def reply(
        self,
        request: str,
        *texts: str,
        calls: tuple[str, ...] = (),
        hand: str = "shell",
        stop: str = "end_turn",
    ) -> list[str]:
        """A reply: texts, then bash calls; the ids of the calls."""
        for text in texts:
            block = {"type": "text", "text": text}
            self.add("agent.message", {"content": [block], "model_request_start_id": request})
        made = [
            self.add(
                "agent.tool_use",
                {
                    "name": "bash",
                    "input": {"command": command},
                    "hand": hand,
                    "model_request_start_id": request,
                },
            )
            for command in calls
        ]
        self.add(
            "span.model_request_end",
            {"model_request_start_id": request, "is_error": False, "stop_reason": stop},
        )
        return made

    def fails(self, request: str, kind: str = "model_overloaded_error", **error: Any) -> str:
        """A model call that failed."""
        said = {"type": kind, "message": "why", "retryable": True, **error}
        ended = {"model_request_start_id": request, "is_error": True, "error": said}
        return self.add("span.model_request_end", ended)

    def result(self, call_id: str, text: str = "done", outcome: str = "ok", **more: Any) -> str:
        """A call's result."""
        return self.add(
            "agent.tool_result",
            {
                "tool_use_id": call_id,
                "content": [{"type": "text", "text": text}],
                "is_error": outcome != "ok",
                "outcome": outcome,
                **more,
            },
        )

    def request_hand(self, hand_id: str, name: str = "shell") -> None:
        """The wish for a hand."""
        self.add(
            "hand.provision_requested",
            {
                "hand_id": hand_id,
                "name": name,
                "type": "process",
                "daemon": "d1",
                "orphan_deadline": 600.0,
            },
        )

    def provision(self, hand_id: str, name: str = "shell", sequence: int = 1) -> None:
        """A hand, asked for and made."""
        self.request_hand(hand_id, name)
        self.add(
            "hand.provisioned",
            {
                "hand_id": hand_id,
                "name": name,
                "daemon": "d1",
                "journal_id": "j",
                "boot_id": "b",
                "sequence": sequence,
            },
        )
