"""Data into typed structures, and what does not fit told by its key, in words of our own. Pure."""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from carpal.mistake import Mistake

T = TypeVar("T", bound=msgspec.Struct)
Json = dict[str, Any]

_SENTENCE = re.compile(r"(?P<what>.*?)(?: - at (?P<where>`.*`))?\Z", re.DOTALL)
_KEY_OF = re.compile(r"`key` in `\$\.?(?P<path>.*)`\Z", re.DOTALL)
_EXPECTED = re.compile(
    r"Expected `(?P<kind>[^`]*)`(?P<bound> [<>]=? .*)?(?:, got `(?P<got>[^`]*)`)?\Z"
)
_KINDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}


def converted(data: Json, kind: type[T], *, unsaid: tuple[str, ...] = ()) -> T:
    """`data` as a `kind`, or Mistake. `unsaid`: keys that no message offers: nobody writes them."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise _mistake(str(error), data, kind, unsaid) from None


def _mistake(
    sentence: str, data: Json, kind: type[msgspec.Struct], unsaid: tuple[str, ...]
) -> Mistake:
    found = _SENTENCE.match(sentence)
    assert found is not None  # it takes any text
    what, where = found["what"], found["where"] or ""
    sentence_path = _KEY_OF.match(where)
    path = sentence_path["path"] if sentence_path else where.strip("`").removeprefix("$").strip(".")
    path = _with_names(path, sentence, data, kind)
    if sentence_path:
        bad = _bad_key(path, sentence, data, kind)
        return Mistake("is no name that may stand here", key=f"{path}.{bad}" if bad else path)
    if unknown := re.match(r"Object contains unknown field `(.*)`\Z", what, re.DOTALL):
        fields = _fields(path, kind, () if path else unsaid)
        key = f"{path}.{unknown[1]}" if path else unknown[1]
        return Mistake(f"is no key; there is {fields}" if fields else "is no key", key=key)
    if missing := re.match(r"Object missing required field `(.*)`\Z", what):
        return Mistake("is missing", key=f"{path}.{missing[1]}" if path else missing[1])
    return Mistake(_problem(what, _at(data, path), _words(path, kind)), key=path)


def _problem(what: str, given: Any, words: str) -> str:
    """What is wrong with a value that may be one of some words, in our words."""
    if given is None:
        return "is empty: give it a value, or leave the key out"
    if words:
        return f"must be {words}, and is {_said(given)}"
    if "matching regex" in what:
        return f"{given!r} is no name that may stand here"
    if length := re.match(r"Expected `(str|array|object)` of length (.*)\Z", what):
        of = {"str": "characters", "array": "entries", "object": "keys"}[length[1]]
        return f"must have {length[2]} {of}"
    if (expected := _EXPECTED.match(what)) is None:
        return f"{what[:1].lower()}{what[1:]}"
    kinds = [_KINDS.get(each.strip(), each.strip()) for each in expected["kind"].split("|")]
    wanted = " or ".join(dict.fromkeys(kinds)) + (expected["bound"] or "")
    if expected["got"] and "str" in expected["kind"] and not isinstance(given, dict | list):
        return f"must be {wanted}, and is {_said(given)}: put it in quotes"
    return f"must be {wanted}, and is {_said(given)}"


def _said(given: Any) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, dict | list):
        return "a mapping" if isinstance(given, dict) else "a list"
    text = repr(given)
    return text if len(text) <= 60 else text[:59] + "…"


def _with_names(path: str, sentence: str, data: Json, kind: type[msgspec.Struct]) -> str:
    """msgspec's path, with the names of what it calls `[...]`: an entry of a mapping."""
    while (before := path.partition("[...]"))[1]:
        around = before[0].strip(".")
        there = _at(data, around)
        names = list(there) if isinstance(there, dict) else []
        name = next((n for n in names if _says(sentence, _only(data, around, n), kind)), "?")
        path = f"{around}.{name}{before[2]}"
    return path


def _bad_key(path: str, sentence: str, data: Json, kind: type[msgspec.Struct]) -> str:
    there = _at(data, path)
    names = list(there) if isinstance(there, dict) else []
    return next((n for n in names if _says(sentence, _only(data, path, n), kind)), "")


def _says(sentence: str, data: Json, kind: type[msgspec.Struct]) -> bool:
    """Whether msgspec says the same of this data."""
    try:
        msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        return str(error) == sentence
    return False


def _only(data: Json, path: str, name: str) -> Json:
    """The data, of whose mapping at a path one entry is left."""
    names = list(_names(path))
    copy = top = dict(data)
    for step in names[:-1]:
        copy[step] = dict(copy[step])
        copy = copy[step]
    copy[names[-1]] = {name: copy[names[-1]][name]}
    return top


def _at(data: Any, path: str) -> Any:
    for step in _names(path):
        try:
            data = data[int(step)] if isinstance(data, list) else data[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return "?"
    return data


def _names(path: str) -> Iterator[str]:
    return (name for name in re.split(r"[.\[\]]+", path) if name)


def _fields(path: str, kind: type[msgspec.Struct], unsaid: tuple[str, ...]) -> str:
    """The keys that may stand in the mapping at a path."""
    found = _types_at(path, kind)
    structs = [each for each in found if isinstance(each, inspect.StructType)]
    names = [field.encode_name for each in structs for field in each.fields]
    return ", ".join(name for name in names if name not in unsaid)


def _words(path: str, kind: type[msgspec.Struct]) -> str:
    """The words that a value at a path may be."""
    found = _types_at(path, kind)
    literals = [each for each in found if isinstance(each, inspect.LiteralType)]
    return " or ".join(str(word) for each in literals for word in sorted(each.values, key=str))


def _types_at(path: str, kind: type[msgspec.Struct]) -> list[inspect.Type]:
    """What may stand at a path."""
    types = [inspect.type_info(kind)]
    for step in _names(path):
        types = [inner for each in types for inner in _inside(each, step)]
    return types


def _inside(info: inspect.Type, step: str) -> list[inspect.Type]:
    match info:
        case inspect.StructType(fields=fields):
            found = [field.type for field in fields if field.encode_name == step]
        case inspect.DictType(value_type=value):
            found = [value]
        case _:
            found = []
    return [
        t for each in found for t in (each.types if isinstance(each, inspect.UnionType) else [each])
    ]
