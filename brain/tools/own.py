"""The brain's own tools: what the model is told of them, and what it may ask. Pure.

They are the tools of the reserved hand `brain`. They read the session's own log
and nothing else, so asking one again is harmless, and no input names a session.
"""

from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from brain.session.transcript import Transcript
from carpal.agent import OWN_HAND
from carpal.agent_context import DEFAULT_POLICY
from carpal.agent_mistakes import converted
from carpal.errors import CarpalError, refuse
from carpal.mistake import Mistake
from carpal.status import Reason

Json = dict[str, Any]
T = TypeVar("T", bound=Struct)

PREFIX = f"{OWN_HAND}__"
"""Before their names, as the model is told them."""
SEARCH, READ, TOOL_SEARCH = "session_search", "session_read", "tool_search"
SHOWS_ALL = "whole"
"""The context policy that leaves nothing of the log to be looked up."""
WORDS_MAX = 1000
READ_BYTES = 32 * 1024
"""Of the text of one answer."""

Position = Annotated[int, Meta(ge=0, le=2**63 - 1)]
From = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Words = Annotated[str, Meta(max_length=WORDS_MAX)]


class Search(Struct, forbid_unknown_fields=True):
    """What `session_search` takes."""

    words: Words = ""
    type: Annotated[str, Meta(max_length=256)] = ""
    tool: Annotated[str, Meta(max_length=256)] = ""
    before: From | UnsetType = UNSET
    after: Position = 0
    limit: Annotated[int, Meta(ge=1, le=50)] = 20


class Read(Struct, forbid_unknown_fields=True):
    """What `session_read` takes: at most one of `around`, `after` and `before`."""

    around: Position | UnsetType = UNSET
    after: Position | UnsetType = UNSET
    before: From | UnsetType = UNSET
    count: Annotated[int, Meta(ge=1, le=100)] = 10
    offset: Annotated[int, Meta(ge=0, le=2**31)] = 0

    def __post_init__(self) -> None:
        """ValueError for what no type forbids."""
        anchors = (self.around, self.after, self.before)
        if sum(anchor is not UNSET for anchor in anchors) > 1:
            raise ValueError("around, after and before exclude each other: give one")
        if self.offset and (self.around is UNSET or self.count != 1):
            raise ValueError("offset goes with around and count 1")


class ToolSearch(Struct, forbid_unknown_fields=True):
    """What `tool_search` takes: words, or names, or both."""

    words: Words = ""
    names: Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=50)] = []
    limit: Annotated[int, Meta(ge=1, le=20)] = 5


def asked(given: object, kind: type[T]) -> T:
    """A call's input, read. INPUT_INVALID names the field and says what it must be."""
    try:
        if not isinstance(given, dict):
            raise Mistake("must be an object", key="input")
        return converted(given, kind)
    except Mistake as mistake:
        raise bad_input(mistake.key or "input", mistake.problem) from None


def bad_input(field: str, problem: str) -> CarpalError:
    """The refusal of an input, as the model is told it."""
    return refuse(Reason.INPUT_INVALID, f"{field}: {problem}", field=field)


def reads_log(agent: Json) -> bool:
    """Whether an agent may search and read its session's log."""
    said = (agent.get("tools") or {}).get("session_log")
    if isinstance(said, bool):
        return said
    policy = (agent.get("context") or {}).get("policy", DEFAULT_POLICY)
    return bool(policy != SHOWS_ALL)


def log_tools(transcript: Transcript) -> list[Json]:
    """The tools that read the log, as the Messages API takes them, if the agent has them."""
    return [_SEARCH_TOOL, _READ_TOOL] if reads_log(transcript.agent) else []


def search_tool(hands: list[str]) -> Json:
    """The tool that searches the tools of these hands."""
    return {
        "name": PREFIX + TOOL_SEARCH,
        "description": (
            f"Find and load tools. Not all tools are listed: hands {', '.join(hands)} have more. "
            "Say in a few words what you want to do, or the exact names of tools; those found are "
            "loaded, and can be called from your next reply on."
        ),
        "input_schema": _schema(
            words=_text("What the tool should do, such as `create calendar event`."),
            names={"type": "array", "items": {"type": "string"}, "description": "Exact names."},
            limit=_number("At most how many to load for the words; 5 unless given.", 1, 20),
        ),
    }


def _schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str, least: int, most: int | Literal[""] = "") -> Json:
    told: Json = {"type": "integer", "description": description, "minimum": least}
    return told | ({"maximum": most} if most else {})


_SEARCH_TOOL: Json = {
    "name": PREFIX + SEARCH,
    "description": (
        "Search this session's own log: all that was said and done, also what you no longer see. "
        f"Gives positions and short excerpts, newest first; read on with {PREFIX}{READ}."
    ),
    "input_schema": _schema(
        words=_text("Words that must all occur, in any case."),
        type=_text("Only events of a type, such as `user.message`, or of a family: `agent.*`."),
        tool=_text("Only calls of this tool and their results."),
        before=_number("Only positions below this one.", 1),
        after=_number("Only positions above this one.", 0),
        limit=_number("At most how many; 20 unless given.", 1, 50),
    ),
}
_READ_TOOL: Json = {
    "name": PREFIX + READ,
    "description": (
        "Read events of this session's own log as they are, oldest first: around, after or before "
        "a position; the newest when none is given. One answer has at most "
        f"{READ_BYTES // 1024} KiB, and says how to go on."
    ),
    "input_schema": _schema(
        around=_number("The event at this position, and those on both sides.", 1),
        after=_number("Events above this position.", 0),
        before=_number("Events below this position.", 1),
        count=_number("At most how many events; 10 unless given.", 1, 100),
        offset=_number("With `around` and count 1: from this character of the event on.", 0),
    ),
}
