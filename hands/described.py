"""A class of `hands/api.py` as the description of a hand type: what a class says of itself."""

import inspect
import math
import re
from collections.abc import Callable
from typing import Any, get_type_hints

from hands.hints import Schema, Signature, signature

CAPABILITIES = frozenset({"files", "mounts", "save", "shell", "visual"})
"""What such a type may say that it can."""
SCREEN = ("view", "control")
"""Methods of a hand with a screen; one of the name that is a tool is a tool."""
LONGEST = 24 * 3600.0
"""Seconds that a tool's own time limit may be."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_NOTHING: Signature = Signature(
    {"type": "object", "properties": {}, "required": [], "additionalProperties": False}, ()
)


def described(kind: type[Any]) -> Schema:
    """What the daemon will say of the type. Raises TypeError, which names what is wrong.

    `description`, `capabilities`, `config_schema`; `tools`, each `name`, `description`,
    `input_schema`, `time_limit`.
    """
    if not (isinstance(kind, type) and getattr(kind, "__carpal_hand_type__", False)):
        raise TypeError(f"{kind!r} is no class derived from hands.api.HandType")
    found = tools(kind)
    if not found:
        raise TypeError(f"{kind.__name__} has no tool; put @tool() before a method")
    claimed = list(kind.capabilities)
    for each in claimed:
        if each not in CAPABILITIES:
            known = ", ".join(sorted(CAPABILITIES))
            raise TypeError(f"{kind.__name__}.capabilities: {each!r} is none of {known}")
    return {
        "description": _words(kind, kind.__name__, "what a hand of it is"),
        "tools": [_tool(kind, name, method) for name, method in found.items()],
        "config_schema": _config(kind),
        "capabilities": [*claimed, "events", *_methods(kind)],
    }


def tools(kind: type[Any]) -> dict[str, Callable[..., Any]]:
    """Its tools, in the order in which they are written."""
    found: dict[str, Callable[..., Any]] = {}
    for each in reversed(kind.__mro__):
        for name, method in vars(each).items():
            if hasattr(method, "__carpal_tool__"):
                found[name] = method
            else:
                found.pop(name, None)  # hidden by what is no tool
    return found


def provision(kind: type[Any]) -> Signature:
    """What its `provision` takes. Raises TypeError."""
    method = getattr(kind, "provision", None)
    return _NOTHING if method is None else signature(method, f"{kind.__name__}.provision")


def has_units(kind: type[Any]) -> bool:
    """Whether its hands have units. Raises TypeError when they can only be half of it."""
    if "units" in (found := tools(kind)) or not hasattr(kind, "units"):
        return False
    for name, given in (("units", ()), ("reset", ("id",))):
        method: Any = getattr(kind, name, None)
        ours = inspect.ismethod(method) and name not in found
        try:
            fits = ours and bool(inspect.signature(method).bind(*given))
        except TypeError:
            fits = False
        if not fits:
            raise TypeError(
                f"{kind.__name__}.{name}: a type with `units` has two methods that are @classmethod"
                " and no tools: units(cls) and reset(cls, unit_id)"
            )
    return True


def _methods(kind: type[Any]) -> list[str]:
    """Capabilities that it has by methods of that name."""
    found = ["units"] if has_units(kind) else []
    shown, controlled = ((hasattr(kind, each) and each not in tools(kind)) for each in SCREEN)
    if controlled and not shown:
        raise TypeError(f"{kind.__name__}.control: what is controlled is seen; write `view` too")
    return [*found, *(SCREEN[: shown + controlled])]


def _config(kind: type[Any]) -> Schema:
    schema = provision(kind).schema
    if has_units(kind) and "unit" in schema["properties"]:
        raise TypeError(
            f"{kind.__name__}.provision: parameter 'unit': of a type with units the daemon takes it"
            " out of the config; read context.unit"
        )
    return schema


def _tool(kind: type[Any], name: str, method: Any) -> Schema:
    where = f"{kind.__name__}.{name}"
    if not callable(method):
        raise TypeError(f"{where}: @tool() belongs directly before `def`")
    if not _NAME.fullmatch(name):
        raise TypeError(f"{where}: the name of a tool is 1 to 128 of a-z, A-Z, 0-9 and _")
    limit = method.__carpal_tool__
    if not isinstance(limit, int | float) or not (math.isfinite(limit) and 0 < limit <= LONGEST):
        raise TypeError(f"{where}: time_limit must be above 0 and at most {LONGEST:g} seconds")
    schema = signature(method, where).schema
    returns = get_type_hints(method).get("return", str)
    if returns not in (str, type(None), str | None):
        raise TypeError(f"{where}: returns {returns}; a tool returns str or None")
    return {
        "name": name,
        "description": _words(method, where, "what the tool does"),
        "input_schema": schema,
        "time_limit": float(limit),
    }


def _words(of: Any, where: str, what: str) -> str:
    text = inspect.cleandoc(of.__doc__ or "").strip()
    if not text:
        raise TypeError(f"{where}: has no docstring; say in it {what}")
    return text
