"""What a person gave the checks for one type, held against what that says of itself. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from carpal.errors import invalid
from hands.conformance.subject import Subject
from hands.inside import schema


def check(subject: Subject) -> None:
    """Raises INVALID_FIELD, which names the flag, for a call or a config that cannot be.

    The calls of a type whose hands list their tools themselves are for `check_calls`, later.
    """
    if "lists_tools" not in subject.capabilities:
        check_calls(subject)
    if "claim" not in subject.capabilities:  # else who serves it says so, by the field
        _fit(subject.type.config_schema, dict(subject.config), "config", "--hand-config")


def check_calls(subject: Subject) -> None:
    """Raises INVALID_FIELD, which names the flag, for a call that fits no tool.

    Of hands that should list their tools, and list none, a check says so.
    """
    if "lists_tools" in subject.capabilities and not subject.type.tools:
        return
    calls = {"--call": subject.plain, "--long": subject.long, "--says": subject.says}
    for flag, call in calls.items():
        if call is not None:
            _check_call(subject, flag, *call)


def _check_call(subject: Subject, flag: str, name: str, given: dict[str, Any]) -> None:
    for tool in subject.type.tools:
        if tool.name == name:
            _fit(tool.input_schema, given, "", f"{flag} {name}")
            return
    there = ", ".join(tool.name for tool in subject.type.tools) or "none"
    raise invalid(flag, f"{subject.type.type!r} has no tool {name!r}; it has {there}")


def _fit(data: bytes, given: dict[str, Any], field: str, flag: str) -> None:
    try:
        known = json.loads(data or b"{}")
        problem = schema.check(known, given, field) if isinstance(known, Mapping) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return  # the schema is none: a check says so
    if problem:
        raise invalid(flag, f"does not fit its schema: {problem.field} {problem.text}")
