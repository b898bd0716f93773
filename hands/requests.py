"""Reading requests: what is missing or malformed is refused here, naming the field. Pure."""

import hashlib
from typing import Any

from google.protobuf.duration_pb2 import Duration

from carpal.errors import invalid, refuse
from carpal.ids import check_id
from carpal.json_in import no_number, read_object
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.contract import Call, Description
from hands.inside import schema, toolset

INPUT_MAX = 1024 * 1024
"""Bytes of a tool's input: an event of the log, where it comes from, holds no more."""
_MOST = {"memory_bytes": 2**50, "disk_bytes": 2**50, "processes": 2**22, "cpus": 2**13}
"""No machine has more; the kernel refuses some of what is above."""
_LONGEST = 30 * 24 * 3600.0
"""Seconds any duration here may have."""
CANCEL_GRACE = 2.0
"""Seconds between TERM and KILL, when the request leaves it unset."""


def driver(request: pb.Driver, workspace: str) -> pb.Driver:
    """The driver, of this daemon's workspace and no other."""
    check_id(request.session_id, "driver.session_id")
    if request.epoch < 1:
        raise invalid("driver.epoch", "must be the epoch of the session's lease, 1 or more")
    if request.workspace != workspace:
        raise refuse(
            Reason.POLICY_FORBIDS,
            f"this daemon belongs to workspace {workspace!r}, not {request.workspace!r}",
            action="place the hand on a daemon of its own workspace",
        )
    return request


def config(data: bytes) -> dict[str, Any]:
    """A provision's config; empty means {}. What is no number of JSON is refused by its field."""
    given = read_object(data or b"{}", "config")
    if field := no_number(given, "config"):
        raise invalid(field, "must not be NaN, infinite, or a number too large to be one")
    return given


def limits(request: pb.Limits) -> dict[str, float]:
    """The limits that are set, by name; each is a number that some hand could have."""
    found = {field.name: float(value) for field, value in request.ListFields()}
    for name, value in found.items():
        if not 0 < value <= _MOST[name]:  # nothing is true of NaN
            raise invalid(f"limits.{name}", f"{value:g} must be above 0 and at most {_MOST[name]}")
    return found


def provision_digest(request: pb.ProvisionRequest) -> bytes:
    """Tells a repeated request from another under the same id; a new epoch changes nothing."""
    content = pb.ProvisionRequest()
    content.CopyFrom(request)
    content.driver.epoch = 0
    return hashlib.sha256(content.SerializeToString(deterministic=True)).digest()


def seconds(request: Any, field: str, otherwise: float, least: float = 0.0) -> float:
    """A duration field in seconds, or `otherwise` when it is unset."""
    if not request.HasField(field):
        return otherwise
    value: Duration = getattr(request, field)
    if not least * 1e9 <= value.ToNanoseconds() <= _LONGEST * 1e9:
        raise invalid(field, f"must be {least:g} to {_LONGEST:g} seconds")
    return value.ToNanoseconds() / 1e9


def call(request: pb.ExecuteRequest, description: Description) -> Call:
    """The call, its input checked against the tool's schema before anything runs."""
    tool = next((tool for tool in description.tools if tool.name == request.name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in description.tools)
        raise refuse(
            Reason.TOOL_NOT_FOUND,
            f"a {description.type} hand has no tool {request.name!r}; it has {names}",
            field="name",
            tool=request.name,
        )
    if len(request.input) > INPUT_MAX:
        raise _bad_input("input", f"has more than {INPUT_MAX} bytes")
    given = read_object(request.input, "input", reason=Reason.INPUT_INVALID)
    problem = schema.check(tool.input_schema, given)
    if problem is None and tool.name in toolset.TOOLS:
        # By its name alone it may be anyone's, and take what it likes.
        _, known = toolset.TOOLS[tool.name]
        problem = toolset.check_more(tool.name, given) if tool.input_schema == known else None
    if problem:
        raise _bad_input(problem.field, problem.text)
    limit = seconds(request, "time_limit", 0.0)
    return Call(request.call_id, tool.name, given, limit)


def _bad_input(field: str, text: str) -> Exception:
    return refuse(Reason.INPUT_INVALID, f"{field}: {text}", field=field)
