"""The agent and the hands a session is created with: flags and a TOML file → data. Pure.

The file's keys, all optional:

    name = "fixer"                 # shown, nothing else
    model = "claude-sonnet-5-5"
    system = "You fix bugs."
    harness = "tool_loop"
    max_tokens = 8192              # per model request

    [hands.shell]                  # the first one is the default hand
    type = "process"               # the only key a hand must have
    config = {}                    # what the hand type documents
    resources = [["git:https://example.com/r.git#main", "r"]]    # what is mounted: source, path
    limits = { memory_bytes = 1073741824, processes = 256, cpus = 1.5, disk_bytes = 536870912 }
    orphan_deadline = 600          # seconds without a brain until it ends itself
    placement = { pool = "gpu", daemon = "box-1", labels = { os = "linux" } }
"""

import json
import tomllib
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from carpal import mounts
from carpal.errors import CarpalError, invalid, refuse
from carpal.ids import check_name
from carpal.status import Reason

DEFAULT_MODEL = "claude-sonnet-5-5"
DEFAULT_HANDS = ("shell=process",)
MAX_TOKENS = 8192


class Placement(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where a hand may be; everything given must match."""

    pool: str = ""
    daemon: str = ""
    labels: dict[str, str] = {}


class Limits(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a hand may take; one that cannot be kept where it is placed refuses the hand."""

    memory_bytes: Annotated[int, msgspec.Meta(gt=0)] | msgspec.UnsetType = msgspec.UNSET
    disk_bytes: Annotated[int, msgspec.Meta(gt=0)] | msgspec.UnsetType = msgspec.UNSET
    processes: Annotated[int, msgspec.Meta(gt=0)] | msgspec.UnsetType = msgspec.UNSET
    cpus: Annotated[float, msgspec.Meta(gt=0, le=65536)] | msgspec.UnsetType = msgspec.UNSET


class HandPlan(msgspec.Struct, forbid_unknown_fields=True):
    """One named hand, provisioned at its first use."""

    type: str
    config: dict[str, Any] = {}
    resources: list[tuple[str, str]] | msgspec.UnsetType = msgspec.UNSET
    """Source and path of each mount."""
    limits: Limits | msgspec.UnsetType = msgspec.UNSET
    placement: Placement = msgspec.field(default_factory=Placement)
    orphan_deadline: Annotated[float, msgspec.Meta(ge=1, le=30 * 24 * 3600)] | msgspec.UnsetType = (
        msgspec.UNSET
    )


class AgentFile(msgspec.Struct, forbid_unknown_fields=True):
    """What an agent file may say."""

    name: str = "agent"
    model: str = DEFAULT_MODEL
    system: str = ""
    harness: str = "tool_loop"
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] = MAX_TOKENS
    hands: dict[str, HandPlan] = {}


def read_agent(text: str, source: str) -> AgentFile:
    """An agent file's text; CONFIG_INVALID names `source` and the key."""
    try:
        return msgspec.convert(tomllib.loads(text), AgentFile)
    except tomllib.TOMLDecodeError as error:
        raise _bad(source, f"not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise _bad(source, _explain(_named(str(error), text))) from None


def with_flags(agent: AgentFile, model: str | None, hands: tuple[str, ...]) -> AgentFile:
    """The agent after `--model` and each `--hand NAME=TYPE`, which replaces one of that name."""
    plans = dict(agent.hands)
    for flag in hands or (() if plans else DEFAULT_HANDS):
        name, equals, kind = flag.partition("=")
        if not equals or not kind:
            raise invalid("--hand", f"{flag!r} is not NAME=TYPE, such as shell=process")
        check_name(name, "--hand")
        check_name(kind, "--hand")
        plans[name] = HandPlan(type=kind)
    for name, plan in plans.items():
        check_name(name, "[hands]")
        check_name(plan.type, f"[hands.{name}] type")
        for index, (source, path) in enumerate(plan.resources or ()):
            mounts.parse(source, path, f"[hands.{name}] resources[{index}]")
    return msgspec.structs.replace(agent, model=model or agent.model, hands=plans)


def with_mounts(agent: AgentFile, mounted: Sequence[tuple[str, str, str]]) -> AgentFile:
    """The agent after each `--mount`: the name of a hand, empty for the default one, source, path.

    INVALID_FIELD for a hand that there is not.
    """
    plans = dict(agent.hands)
    for name, source, path in mounted:
        hand = name or next(iter(plans))
        if hand not in plans:
            there = ", ".join(plans)
            raise invalid("--mount", f"there is no hand {hand!r}; there is {there}")
        mounts.parse(source, path, "--mount")
        resources = [*(plans[hand].resources or ()), (source, path)]
        plans[hand] = msgspec.structs.replace(plans[hand], resources=resources)
    return msgspec.structs.replace(agent, hands=plans)


def session_data(agent: AgentFile) -> bytes:
    """Data of the session's first event, `session.updated`: {agent, hands}."""
    body: dict[str, Any] = msgspec.to_builtins(agent)
    hands = body.pop("hands")
    return json.dumps({"agent": body, "hands": hands}, ensure_ascii=False).encode()


def message_data(text: str) -> bytes:
    """Data of a `user.message` that is one text."""
    content = [{"type": "text", "text": text}]
    return json.dumps({"content": content}, ensure_ascii=False).encode()


def _named(problem: str, text: str) -> str:
    """msgspec's sentence with the hand in it, which it leaves out of any table."""
    for name, given in tomllib.loads(text).get("hands", {}).items() if "[...]" in problem else ():
        try:
            msgspec.convert(given, HandPlan)
        except msgspec.ValidationError:
            return problem.replace("[...]", f".{name}", 1)
    return problem


def _explain(problem: str) -> str:
    """msgspec's sentence in our words: the key first."""
    what, _, where = problem.partition(" - at ")
    path = where.strip("`").removeprefix("$").strip(".")
    if "unknown field" in what:
        return f"unknown key {what.split('`')[1]!r}" + (f" in {path}" if path else "")
    if "missing required field" in what:
        return f"{path}: {what.split('`')[1]!r} is missing"
    return f"{path}: {what[:1].lower()}{what[1:]}"


def _bad(source: str, problem: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, f"{source}: {problem}", action="correct the agent file")
