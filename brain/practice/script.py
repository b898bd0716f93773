"""Reading scripts: YAML files that say what the practice model answers, turn by turn.

The reference is docs/reference/practice-model.md. A file that does not fit
is refused in one line that names the file, the place in it and what to do.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from brain.practice.answer import (
    Answer,
    Cut,
    Delay,
    Failure,
    Script,
    StopDetails,
    ToolCall,
    Usage,
)
from carpal.errors import CarpalError, refuse
from carpal.status import Reason

_STRUCTS: dict[str, type[msgspec.Struct]] = {
    "": Script,
    "turns": Answer,
    "tools": ToolCall,
    "usage": Usage,
    "delay": Delay,
    "error": Failure,
    "cut": Cut,
    "stop_details": StopDetails,
}
"""What a mapping is, by the last name on its path; it knows the keys to suggest."""


def load_script(path: Path) -> Script:
    """The script in a file; CONFIG_INVALID says what is wrong and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _bad(path, (error.strerror or str(error)).lower(), "check --script") from None
    except UnicodeDecodeError:
        raise _bad(path, "not UTF-8 text", "save it as UTF-8") from None
    try:
        data = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader, made stricter below
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _bad(path, f"{line}{error.problem or 'not YAML'}", "correct the YAML") from None
    except yaml.YAMLError as error:
        raise _bad(path, f"not YAML: {' '.join(str(error).split())}", "correct the YAML") from None
    try:
        script = msgspec.convert(data, Script)
    except msgspec.ValidationError as error:
        raise _explain(path, str(error)) from None
    for index, answer in enumerate(script.turns):
        if problem := _nonsense(answer):
            raise _bad(path, f"turns[{index}]: {problem[0]}", problem[1])
    return script if script.name else msgspec.structs.replace(script, name=path.stem)


def _nonsense(answer: Answer) -> tuple[str, str] | None:
    """What no shape forbids and no model answers, and what to do about it."""
    says = answer.text or answer.thinking or answer.tools or answer.stop_reason
    if not says and not (answer.error and answer.error.times == "always"):
        return "says nothing", "give it text, thinking, tools or a stop_reason"
    if answer.stop_reason == "tool_use" and not answer.tools:
        return "stop_reason is tool_use without tools", "give it tools or another stop_reason"
    if answer.stop_sequence is not None and answer.stop_reason != "stop_sequence":
        return "stop_sequence is given", "set stop_reason: stop_sequence"
    if answer.stop_details is not None and answer.stop_reason != "refusal":
        return "stop_details are given", "set stop_reason: refusal"
    return None


class _Loader(yaml.SafeLoader):
    """Safe YAML without its traps: a key given twice is an error, a date is text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute
        first: [(tag, rule) for tag, rule in rules if tag != "tag:yaml.org,2002:timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                problem = "a key must be text"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            if key_node.value in seen:
                problem = f"the key {key_node.value!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


def _explain(path: Path, text: str) -> CarpalError:
    found = re.match(r"(.*?)(?: - at `\$\.?(.*)`)?\Z", text, re.DOTALL)
    problem, place = (found[1], found[2] or "") if found else (text, "")
    site = f"{place}: " if place else ""
    names = [name for name in re.split(r"[.\[\]\d]+", place) if name]
    struct = _STRUCTS.get(names[-1] if names else "")
    keys = ", ".join(sorted(field.name for field in msgspec.structs.fields(struct or Script)))
    if unknown := re.match(r"Object contains unknown field `(.*)`", problem):
        return _bad(path, f"{site}unknown key {unknown[1]!r}", f"use one of: {keys}")
    if missing := re.match(r"Object missing required field `(.*)`", problem):
        return _bad(path, f"{site}{missing[1]!r} is missing", "add it")
    if problem.startswith("Expected `str") and "got `str`" not in problem:
        return _bad(path, f"{site}{_lower(problem)}", "put the value in quotes")
    return _bad(path, f"{site}{_lower(problem)}", "correct the value")


def _lower(problem: str) -> str:
    return problem[:1].lower() + problem[1:]


def _bad(path: Path, problem: str, action: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, f"{path}: {problem}", action=action)
