"""Events for tests, as the log would hold them."""

import json
from typing import Any

from carpal.v1 import types_pb2

BRAIN = "spiffe://carpal.internal/brain/brain-1"
OTHER_BRAIN = "spiffe://carpal.internal/brain/brain-2"
OPERATOR = "spiffe://carpal.internal/operator/ann"


def text(*texts: str) -> dict[str, Any]:
    """Content of text blocks."""
    return {"content": [{"type": "text", "text": each} for each in texts]}


class Log:
    """Makes events with the next position and, by default, a tenth of a second later."""

    def __init__(self) -> None:
        self.events: list[types_pb2.Event] = []
        self._milliseconds = 1_800_000_000_000

    def add(
        self,
        kind: str,
        data: dict[str, Any] | None = None,
        *,
        source: str = BRAIN,
        after: float = 0.1,
        event_id: str = "",
    ) -> types_pb2.Event:
        """The next event, `after` seconds after the one before."""
        if self.events:
            self._milliseconds += int(after * 1000)
        position = len(self.events) + 1
        event = types_pb2.Event(
            id=event_id or f"sevt_{position}",
            position=position,
            type=kind,
            source=source,
            data=json.dumps(data or {}).encode(),
        )
        event.time.FromMilliseconds(self._milliseconds)
        self.events.append(event)
        return event


def finished_turn(brain: str = BRAIN) -> Log:
    """A session that ran one command and ended its turn."""
    log = Log()
    agent = {"name": "fixer", "model": "claude-sonnet-5-5"}
    log.add(
        "session.updated",
        {"agent": agent, "hands": {"shell": {"type": "process"}}},
        source=OPERATOR,
    )
    log.add("user.message", text("fix it"), source=OPERATOR)
    log.add("session.status_running", source=brain)
    log.add("span.model_request_start", {"model": "m", "through": 3}, event_id="sevt_ask")
    log.add("agent.message", text("I will run it.") | {"model_request_start_id": "sevt_ask"})
    log.add(
        "agent.tool_use",
        {"name": "bash", "input": {"command": "make test"}, "hand": "shell"},
        event_id="sevt_call",
    )
    log.add(
        "span.model_request_end",
        {
            "model_request_start_id": "sevt_ask",
            "is_error": False,
            "model_usage": {"input_tokens": 10, "output_tokens": 4},
            "stop_reason": "tool_use",
        },
    )
    log.add(
        "hand.provision_requested",
        {"hand_id": "hand_1", "name": "shell", "type": "process", "daemon": "box"},
    )
    log.add("hand.provisioned", {"hand_id": "hand_1", "name": "shell", "daemon": "box"})
    log.add(
        "agent.tool_result",
        text("3 passed\nok\n")
        | {"tool_use_id": "sevt_call", "is_error": False, "outcome": "ok", "exit_code": 0},
        after=1.5,
    )
    log.add("session.status_idle", {"stop_reason": {"type": "end_turn"}})
    return log
