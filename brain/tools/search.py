"""Which deferred tools fit some words. Pure.

A word counts for more the fewer tools have it, and in a tool's name for more
than in its description, above all where there is little else in the name. Ties
keep the order in which the tools were told.
"""

import math
import re
from collections.abc import Mapping, Sequence

from brain.session.entries import Json

_IN_NAME = 3.0
_BEGINS = 0.5
"""Of a word that one in the text begins with, as `event` of `events`."""
_LITTLE = frozenset(
    {"a", "an", "and", "by", "for", "from", "in", "into", "of", "on", "the", "to", "with"}
)
"""Words that say nothing of a tool."""
_WORD = re.compile(r"[a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SHOWN = 300
"""Characters of a description in an answer; the model is given the whole when it is loaded."""


def best(tools: Mapping[str, Json], words: str, limit: int) -> list[str]:
    """Names of the tools that fit the words best, the best first; none that has none of them.

    `tools`: by name as the model is told it, each with `description`.
    """
    wanted = [word for word in dict.fromkeys(_words(words)) if word not in _LITTLE]
    texts = {name: (_words(name), _words(str(t["description"]))) for name, t in tools.items()}
    hits = {
        name: [_score(word, inside, said) for word in wanted]
        for name, (inside, said) in texts.items()
    }
    rare = [
        math.log(1 + len(tools) / (1 + sum(row[n] > 0 for row in hits.values())))
        for n in range(len(wanted))
    ]
    scores = {
        name: sum(h * r for h, r in zip(row, rare, strict=True)) for name, row in hits.items()
    }
    ranked = sorted((name for name in tools if scores[name] > 0), key=lambda name: -scores[name])
    return ranked[:limit]


def told(tools: Mapping[str, Json], names: Sequence[str], missing: Sequence[str]) -> str:
    """The answer for tools that were found, and names that are no tool's."""
    lines = [f"{name}: {_short(str(tools[name]['description']))}" for name in names]
    if missing:
        lines.append(f"[no tool is named {', '.join(missing)}]")
    if names:
        lines.append("[loaded: they can be called from your next reply on]")
    elif not missing:
        lines.append("[no tool fits these words; try others, fewer, or a hand's name]")
    return "\n".join(lines)


def _score(word: str, name: list[str], said: list[str]) -> float:
    in_name = _hit(word, name)
    return in_name * (_IN_NAME + 1 / len(name)) if in_name else _hit(word, said)


def _hit(word: str, inside: list[str]) -> float:
    if word in inside:
        return 1.0
    near = len(word) > 2 and any(
        each.startswith(word) or (len(each) > 2 and word.startswith(each)) for each in inside
    )
    return _BEGINS if near else 0.0


def _words(text: str) -> list[str]:
    return _WORD.findall(_HUMP.sub(" ", text).lower())


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
