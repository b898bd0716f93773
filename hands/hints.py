"""Type hints as JSON Schema, of the parts that `hands/inside/schema.py` checks."""

import inspect
import json
import types
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from hands.inside.schema import check

Schema = dict[str, Any]

_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_KNOWN = "str, int, float, bool, Literal, list[T], dict[str, T], a TypedDict"
_DEPTH = 12
"""Of hints in hints: a TypedDict may hold itself."""


class Signature(NamedTuple):
    """What a method takes."""

    schema: Schema
    """Of its input."""
    context: tuple[str, ...]
    """Parameters that are the call's context."""


def signature(method: Callable[..., Any], where: str) -> Signature:
    """Of a method's parameters but its first. Raises TypeError, which names the parameter."""
    try:
        hints = get_type_hints(method, include_extras=True)
    except Exception as error:  # a name that is nowhere, or whatever a hint does when it is asked
        raise TypeError(f"{where}: a type hint is not understood: {error}") from error
    properties: Schema = {}
    required: list[str] = []
    context: list[str] = []
    parameters = list(inspect.signature(method).parameters.values())[1:]
    for each in parameters:
        named = f"{where}: parameter {each.name!r}"
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise TypeError(f"{named}: must be one that can be given by its name")
        if each.name not in hints:
            raise TypeError(f"{named}: has no type hint; give it one of {_KNOWN}")
        hint = hints[each.name]
        if getattr(hint, "__carpal_context__", False):
            context.append(each.name)
            continue
        has_default = each.default is not each.empty
        inner, optional = _without_none(hint, named)
        if optional and each.default is not None:
            raise TypeError(f"{named}: may be None, so its default must be None")
        properties[each.name] = part = of(inner, named)
        if not has_default:
            required.append(each.name)
        elif each.default is not None or not optional:
            _check_default(part, each.default, named)
            part["default"] = each.default
    return Signature(_object(properties, required), tuple(context))


def of(hint: Any, where: str, depth: int = 0) -> Schema:
    """The schema of a hint. Raises TypeError, which says `where`."""
    if depth > _DEPTH:
        raise TypeError(f"{where}: is nested too deeply")
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = of(arguments[0], where, depth)
        words = [each for each in arguments[1:] if isinstance(each, str)]
        return {**schema, "description": " ".join(words)} if words else schema
    if getattr(hint, "__carpal_blob__", False):
        return {"type": "string", "format": "blob"}
    if isinstance(hint, type) and hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is Literal:
        return _literal(arguments, where)
    if origin is list and arguments:
        return {"type": "array", "items": of(arguments[0], where, depth + 1)}
    if origin is dict:
        if arguments[0] is not str:
            raise TypeError(f"{where}: the keys of a JSON object are str")
        values = of(arguments[1], where, depth + 1)
        return {"type": "object", "additionalProperties": values}
    if is_typeddict(hint):
        return _typed_dict(hint, where, depth)
    raise TypeError(f"{where}: no JSON is {_name(hint)}; use {_KNOWN}")


def _literal(values: tuple[Any, ...], where: str) -> Schema:
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {str, int}:
        raise TypeError(f"{where}: the values of a Literal must all be str, or all int")
    return {"type": _PLAIN[kinds.pop()], "enum": list(values)}


def _typed_dict(hint: Any, where: str, depth: int) -> Schema:
    try:
        fields = get_type_hints(hint, include_extras=True)
    except NameError as error:
        raise TypeError(f"{where}: a type hint is not understood: {error}") from error
    properties = {}
    for name, each in fields.items():
        plain = get_args(each)[0] if get_origin(each) in (Required, NotRequired) else each
        properties[name] = of(plain, f"{where}, field {name!r}", depth + 1)
    return _object(properties, sorted(hint.__required_keys__))


def _object(properties: Schema, required: list[str]) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _without_none(hint: Any, where: str) -> tuple[Any, bool]:
    """`T | None` as T, and whether it was that."""
    if get_origin(hint) is Annotated:
        inner, optional = _without_none(get_args(hint)[0], where)
        return Annotated[(inner, *get_args(hint)[1:])], optional
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    others = [each for each in get_args(hint) if each is not type(None)]
    if len(others) != 1 or len(others) == len(get_args(hint)):
        raise TypeError(f"{where}: is one of several types ({hint}); only T | None may be")
    return others[0], True


def _check_default(schema: Schema, default: Any, where: str) -> None:
    try:
        value = json.loads(json.dumps(default))
    except (TypeError, ValueError):
        raise TypeError(f"{where}: its default {default!r} is no JSON") from None
    if problem := check(schema, value, "it"):
        raise TypeError(f"{where}: its default {default!r} does not fit: {problem.text}")


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
