"""Tools that a hand has by itself: what the model is told when another hand of its name differs.

Pure. Of a type that lists tools for each hand, `hand.provisioned` has them: that is what the model
is offered from then on, until a hand of that name is made anew. What is otherwise then is said in
the same event.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from brain.offers import unfit
from brain.servers import unfit_tool

Json = dict[str, Any]

_KINDS = {
    "gone": "gone are",
    "new": "new are",
    "changed": "another input schema have",
    "described": "described otherwise are",
}
_NAMES_MAX = 50
"""Names of a kind that the model is told; it is offered all of them."""


def fit(told: Json) -> list[Json]:
    """Of what a hand or an MCP server offers, what the model can be told of."""
    problem = unfit_tool if told.get("mcp_server_name") else unfit
    return [tool for tool in told["tools"] if not problem(tool)]


def changes(before: Sequence[Json], now: Sequence[Json]) -> dict[str, list[str]]:
    """Names of tools by what is otherwise about them; without what is not there."""
    old, new = ({tool["name"]: tool for tool in tools} for tools in (before, now))
    both = [name for name in new if name in old]
    other = [name for name in both if new[name]["input_schema"] != old[name]["input_schema"]]
    found = {
        "gone": [name for name in old if name not in new],
        "new": [name for name in new if name not in old],
        "changed": other,
        "described": [
            name
            for name in both
            if name not in other and new[name]["description"] != old[name]["description"]
        ],
    }
    return {kind: names for kind, names in found.items() if names}


def outdated(changed: Mapping[str, Any]) -> list[str]:
    """Of what `changes` says, the tools that a call made before them does not mean."""
    return [*changed.get("gone", ()), *changed.get("changed", ())]


def told_changes(name: str, changed: Mapping[str, Any]) -> list[Json]:
    """The content of a `hand.provisioned` that says so, for the model."""
    said = "; ".join(
        f"{words} {_names(changed[kind])}" for kind, words in _KINDS.items() if changed.get(kind)
    )
    text = f"[The hand {name!r} was made anew, and its tools are not those it had before: {said}.]"
    return [{"type": "text", "text": text}]


def told_failure(name: str, why: str) -> list[Json]:
    """The content of a `hand.provision_failed` of which no call tells, for the model."""
    text = f"[The hand {name!r} could not be made, so its tools are not known: {why}]"
    return [{"type": "text", "text": text}]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(map(str, names[:_NAMES_MAX])) + more
