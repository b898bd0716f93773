"""A page's accessibility snapshot, cut to what was asked for; and what in it fits some words. Pure.

It comes as indented lines, `- role "name" [ref=e3] [cursor=pointer]: text`, two spaces for each
level. It is page text: it may hold anything, and only its shape is relied upon.
"""

import re

CHARACTERS_MAX = 50_000
DEPTH = 15
FOUND_MAX = 20
LINE_MAX = 4096
_REF = re.compile(r"\[ref=((?:f\d+)?e\d+)\]")
_ROLE = re.compile(r"\s*- ([a-z]+)")
_WORD = re.compile(r"\w+")
_INTERACTIVE = frozenset(
    {
        *("button", "checkbox", "combobox", "link", "listbox", "menuitem", "menuitemcheckbox"),
        *("menuitemradio", "option", "radio", "searchbox", "slider", "spinbutton", "switch"),
        *("tab", "textbox", "treeitem"),
    }
)
_MEANS = {
    "field": {"textbox", "searchbox", "combobox", "spinbutton"},
    "input": {"textbox", "searchbox", "combobox", "spinbutton"},
    "box": {"textbox", "searchbox", "checkbox"},
    "bar": {"textbox", "searchbox"},
    "search": {"searchbox"},
    "dropdown": {"combobox", "listbox"},
    "select": {"combobox", "listbox"},
    "menu": {"menu", "menuitem"},
    "image": {"img"},
    "picture": {"img"},
    "title": {"heading"},
}
"""Roles that words of people's mean."""
_IDLE = frozenset({"a", "an", "and", "for", "in", "of", "on", "or", "that", "the", "to", "with"})


def ref_of(line: str) -> str:
    """The ref of a line; empty when it has none."""
    found = _REF.search(line)
    return found[1] if found else ""


def cut(text: str, *, interactive: bool = False, depth: int = DEPTH, ref: str = "") -> str | None:
    """The part that was asked for, with a line that says what was left out; None for no such ref.

    At most `CHARACTERS_MAX` characters.
    """
    lines = text.splitlines()
    if ref:
        lines = _below(lines, ref)
        if not lines:
            return None
    first = min((_level(line) for line in lines), default=0)
    deep = sum(_level(line) - first >= depth for line in lines)
    lines = [line[2 * first :][:LINE_MAX] for line in lines if _level(line) - first < depth]
    if interactive:
        lines = [line.strip() for line in lines if is_interactive(line)]
    notes = [f"[{deep} lines deeper than {depth} levels are left out]"] if deep else []
    kept: list[str] = []
    size = 0
    for line in lines:
        size += len(line) + 1
        if size > CHARACTERS_MAX - 200:
            more = len(lines) - len(kept)
            notes.append(f"[{more} more lines are left out: read a part by its ref, or less depth]")
            break
        kept.append(line)
    return "\n".join([*kept, *notes]) or "(empty)"


def is_interactive(line: str) -> bool:
    """It can be acted on."""
    role = _ROLE.match(line)
    if not ref_of(line):
        return False
    return (role is not None and role[1] in _INTERACTIVE) or "[cursor=pointer]" in line


def found(text: str, query: str) -> str:
    """The lines with a ref that fit the words of the query best, at most 20."""
    words = [word for word in _WORD.findall(query.lower()) if word not in _IDLE]
    scored = []
    for number, line in enumerate(text.splitlines()):
        if ref_of(line) and (score := _score(line, words)) > 0:
            scored.append((-score, number, line.strip()[:LINE_MAX].rstrip(":")))
    lines = [line for _, _, line in sorted(scored)[:FOUND_MAX]]
    if not lines:
        return f"nothing on the page fits {query[:200]!r}; read_page shows what there is"
    return "\n".join(lines)


def _score(line: str, words: list[str]) -> float:
    there = _WORD.findall(line.lower())
    role = _ROLE.match(line)
    score = 0.0
    for word in words:
        if word in there:
            score += 2
        elif any(each.startswith(word) or word.startswith(each) for each in there if len(each) > 3):
            score += 1
        if role and role[1] in _MEANS.get(word, ()):
            score += 1
    if score and is_interactive(line):
        score += 0.5
    return score


def _below(lines: list[str], ref: str) -> list[str]:
    for at, line in enumerate(lines):
        if ref_of(line) == ref:
            level = _level(line)
            rest = lines[at + 1 :]
            end = next((n for n, each in enumerate(rest) if _level(each) <= level), len(rest))
            return [line, *rest[:end]]
    return []


def _level(line: str) -> int:
    return (len(line) - len(line.lstrip(" "))) // 2
