"""Ways a session can stand, for tests of why it does: a log, a fleet, and what happens."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from carpal.operator.why import why
from carpal.operator.why_words import Finding
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import types_pb2
from tests.operator.log import BRAIN, OPERATOR, OTHER_BRAIN, Log
from tests.operator.log import text as said

BEGAN = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
NOW = BEGAN + timedelta(hours=1)
CANARY = "tell nobody: 4711 Main Street"
END = {"stop_reason": {"type": "end_turn"}, "through": 9}

Fleet = list[pb.DaemonInfo]


class Case:
    """A log, what sessiond says of the session, and a fleet."""

    def __init__(self) -> None:
        self.log = Log()
        self.info = types_pb2.SessionInfo(session_id="sesn_1")
        self.box = pb.DaemonInfo(daemon_id="box", state="connected", brain="brain-1")
        self.box.linked_since.FromDatetime(BEGAN - timedelta(hours=5))
        self.fleet: Fleet | None = [self.box]
        self.brains = 1
        self.log.add("user.message", said(CANARY), source=OPERATOR)
        self.log.add("session.status_running")

    def call(self, tool: str = "bash", call_id: str = "sevt_call", **data: Any) -> None:
        """The model calls a tool."""
        given = {"name": tool, "hand": "shell", "input": {"command": CANARY}, **data}
        self.log.add("agent.tool_use", given, event_id=call_id)

    def result(self, outcome: str, layer: str = "", cause: str = "", words: str = CANARY) -> None:
        """And that is what became of it."""
        failed = {k: v for k, v in (("layer", layer), ("cause", cause)) if v}
        self.log.add(
            "agent.tool_result",
            said(words) | {"tool_use_id": "sevt_call", "outcome": outcome, **failed},
        )

    def hand(self) -> None:
        """A hand is there."""
        self.log.add("hand.provision_requested", {"hand_id": "h", "name": "shell", "daemon": "box"})
        self.log.add("hand.provisioned", {"hand_id": "h", "name": "shell", "daemon": "box"})

    def driven(self) -> None:
        """A brain has the lease."""
        self.info.lease.holder, self.info.lease.epoch = BRAIN, 3
        self.info.lease.expires_in.FromSeconds(9)

    def found(self) -> list[Finding]:
        """What is found."""
        return why(self.info, self.log.events, self.fleet, self.brains, NOW)


def model_fails(case: Case, kind: str = "authentication_error", *, last: bool = True) -> None:
    case.log.add("span.model_request_start", {"model": CANARY})
    error = {"type": kind, "message": CANARY, "status": 401, "layer": "model"}
    case.log.add("span.model_request_end", {"is_error": True, "error": error})
    status = "exhausted" if last else "retrying"
    told = {"type": kind, "message": CANARY, "layer": "model", "retry_status": {"type": status}}
    case.log.add("session.error", {"error": told})
    if last:
        case.log.add("session.status_idle", {"stop_reason": {"type": "retries_exhausted"}})


def nobody_answers(case: Case) -> None:
    case.log.add("span.model_request_start", {"model": CANARY})
    said_so = f"APIConnectionError: {CANARY}"
    failed = {"type": "model_request_failed_error", "message": said_so, "layer": "model"}
    case.log.add("span.model_request_end", {"is_error": True, "error": failed})
    case.log.add("session.status_idle", {"stop_reason": {"type": "retries_exhausted"}})


def stopped_by_owner(outcome: str, layer: str, cause: str, words: str) -> Callable[[Case], None]:
    def do(case: Case) -> None:
        case.hand()
        case.call()
        case.result(outcome, layer, cause, words)
        if cause:
            gone = {"hand_id": "h", "name": "shell", "reason": words, "layer": layer}
            case.log.add("hand.lost", gone | {"cause": cause})
        case.log.add("session.status_idle", END)

    return do


def idle(stop: dict[str, Any]) -> Callable[[Case], None]:
    def do(case: Case) -> None:
        case.log.add("session.status_idle", stop)

    return do


def failed_call(outcome: str, layer: str, cause: str) -> Callable[[Case], None]:
    def do(case: Case) -> None:
        case.call()
        case.result(outcome, layer, cause)
        case.log.add("session.status_idle", END)

    return do


def hand_event(kind: str, **data: Any) -> Callable[[Case], None]:
    def do(case: Case) -> None:
        case.hand()
        case.log.add(kind, {"hand_id": "h", "name": "shell", "message": CANARY, **data})
        case.log.add("session.status_idle", END)

    return do


def error(kind: str, *, retry: str = "retrying", **more: Any) -> Callable[[Case], None]:
    def do(case: Case) -> None:
        status = {"type": retry}
        told = {"type": kind, "message": CANARY, "retry_status": status, **more}
        case.log.add("session.error", {"error": told, "hand": "shell"})
        case.log.add("session.status_idle", END)

    return do


def with_daemon(change: Callable[[Case], None]) -> Callable[[Case], None]:
    def do(case: Case) -> None:
        case.hand()
        case.driven()
        change(case)

    return do


def gone(case: Case) -> None:
    case.box.state = "gone"
    case.box.ClearField("linked_since")
    case.box.last_seen.FromDatetime(BEGAN + timedelta(minutes=5))
    case.box.links.add(why="LINK_SILENT").began.FromDatetime(BEGAN)


def was_down(case: Case) -> None:
    case.box.linked_since.FromDatetime(BEGAN + timedelta(minutes=9))
    past = case.box.links.add(brain="b", why="cut")
    past.began.FromDatetime(BEGAN - timedelta(hours=2))
    past.ended.FromDatetime(BEGAN + timedelta(minutes=4))


def quarantined(case: Case) -> None:
    case.box.state = case.box.quarantine = "quarantined"


def revoked(case: Case) -> None:
    gone(case)
    case.box.revoked = CANARY


def cloned(case: Case) -> None:
    case.box.quarantine = CANARY


def draining(case: Case) -> None:
    case.box.state = "draining"


def old(case: Case) -> None:
    case.box.supported_until.FromDatetime(BEGAN - timedelta(days=9))


def unknown(case: Case) -> None:
    case.fleet = []


def parked(case: Case) -> None:
    case.info.parked_reason = f"3 tries without progress; the last: {CANARY}"
    told = {"type": "unknown_error", "message": CANARY, "layer": "harness", "cause": "KeyError"}
    case.log.add("session.error", {"error": told, "attempts": 3})
    case.log.add("session.status_idle", {"stop_reason": {"type": "retries_exhausted"}})


def parked_with_progress(case: Case) -> None:
    case.info.parked_reason = f"20 tries in a row did not come to their end; the last: {CANARY}"
    told = {"type": "unknown_error", "message": CANARY, "layer": "harness", "cause": "driver_lost"}
    case.log.add("session.error", {"error": told, "attempts": 20, "progress": True})


def waiting(case: Case) -> None:
    case.info.wake = 2


def no_brain(case: Case) -> None:
    waiting(case)
    case.brains, case.fleet = 0, None


def no_answer(case: Case) -> None:
    case.hand()
    case.driven()
    case.fleet = None


def asked(case: Case) -> None:
    case.driven()
    case.log.add("span.model_request_start", {"model": CANARY})


def at_work(case: Case) -> None:
    case.driven()
    case.call()


def retrying(case: Case) -> None:
    case.driven()
    model_fails(case, "model_overloaded_error", last=False)
    model_fails(case, "model_overloaded_error", last=False)


def person(case: Case) -> None:
    case.call(evaluated_permission="ask")
    ids = {"type": "requires_action", "event_ids": ["sevt_call"]}
    case.log.add("session.status_idle", {"stop_reason": ids, "seen": 3})


def consent(case: Case) -> None:
    said = {"mcp_server_name": "tracker", "user": "alice", "url": CANARY}
    event = case.log.add("session.consent_required", said)
    ids = {"type": "requires_action", "event_ids": [event.id]}
    case.log.add("session.status_idle", {"stop_reason": ids, "seen": 3})


def interrupted(case: Case) -> None:
    case.log.add("user.interrupt", source=OPERATOR)
    case.log.add("session.status_idle", END)


def fallback(case: Case) -> None:
    case.log.add("context.fallback_model", {"from": CANARY, "to": CANARY})
    case.log.add("session.status_idle", END)


def taken_over(case: Case) -> None:
    case.log.add("agent.message", said(CANARY))
    case.log.add("agent.message", said(CANARY), source=OTHER_BRAIN)
    case.driven()


def enters(case: Case, *, control: bool = True) -> None:
    case.hand()
    case.call()
    entered = {"tunnel_id": "t", "hand_id": "h", "name": "shell", "by": OPERATOR, "kind": "shell"}
    case.log.add("hand.entered", entered | {"control": control, "because": CANARY})
    case.driven()


def forbidden(case: Case) -> None:
    told = {"hand": "shell", "type": "process", "tools": [], "forbidden": ["bash", "write"]}
    case.log.add("context.tools", told)
    case.log.add("session.status_idle", END)


SHELL = {"shell": {"type": "process", "placement": {"labels": {"os": "linux"}}, "config": CANARY}}


def no_daemon(case: Case, change: Callable[[Case], None] = quarantined) -> None:
    """The only daemon that fits is kept from it; the log says that it runs once tools are known."""
    case.log.events.pop()
    case.log.add("session.updated", {"hands": SHELL}, source=OPERATOR)
    case.box.types.append("process")
    case.box.labels["os"] = "linux"
    change(case)


def waits_for_one(case: Case, change: Callable[[Case], None] = quarantined) -> None:
    no_daemon(case, change)
    case.driven()


def call_waits(case: Case) -> None:
    no_daemon(case)
    case.log.add("context.tools", {"hand": "shell", "type": "process", "tools": []})
    case.log.add("span.model_request_start", {})
    case.call()
    case.log.add("span.model_request_end", {})
    case.driven()


def had_none(case: Case) -> None:
    no_daemon(case)
    error("hand_unavailable_error", layer="daemon", cause="DAEMON_NOT_FOUND")(case)


def had_none_for_a_call(case: Case) -> None:
    no_daemon(case)
    failed = {"hand_id": "h", "name": "shell", "layer": "daemon", "reason": "DAEMON_NOT_FOUND"}
    case.log.add("hand.provision_failed", failed)
    case.log.add("session.status_idle", END)


def archived(case: Case) -> None:
    case.info.archived.FromDatetime(BEGAN)


def never(case: Case) -> None:
    case.log.events.clear()
