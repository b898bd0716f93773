"""The members of `browser_toolset_20260801` as one recorded table, and schemas in its form.

`toolset.json` says of each member its input, its kind of result, what acknowledges it, and whether
the API offers it unless told otherwise. It was recorded from the anthropic package 2.14.0: the
inputs from `types/beta/beta_browser_*_input.py`, the rest from `_data/browser_toolset_members.py`;
the `bounds` are ours: they narrow an input to what its description says, or to what can be meant.
"""

import json
from pathlib import Path
from typing import Any

TABLE: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("toolset.json").read_text())
_BOUNDS = frozenset({"minimum", "maximum", "minItems", "maxItems", "minLength"})
_KNOWN = _BOUNDS | {"type", "properties", "required", "items", "enum", "const", "anyOf", "$ref"}
_SAYS = frozenset({"title", "description", "default", "additionalProperties", "$defs"})


def form(schema: dict[str, Any], defs: dict[str, Any] | None = None) -> Any:
    """A schema without words and bounds: a type's name, values, a list, or fields by name.

    A field that may be left out ends with `?`. Objects of which one is given are one, with the
    fields of all, for a schema that models without the toolset read says it so.
    """
    defs = {**(defs or {}), **schema.get("$defs", {})}
    assert schema.keys() <= _KNOWN | _SAYS, schema
    if "$ref" in schema:
        return form(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        given = [each for each in schema["anyOf"] if each.get("type") != "null"]
        forms = [form(each, defs) for each in given]
        if len(forms) > 1 and all(isinstance(each, dict) for each in forms):
            return _one_of(forms)
        return forms[0] if len(forms) == 1 else forms
    if "const" in schema or "enum" in schema:
        return {"values": schema.get("enum") or [schema["const"]]}
    if schema.get("type") == "object":
        needed = schema.get("required", [])
        return {
            name if name in needed else f"{name}?": form(each, defs)
            for name, each in sorted(schema["properties"].items())
        }
    if schema.get("type") == "array":
        return {"items": form(schema["items"], defs)}
    return schema.get("type", "any")


def _one_of(forms: list[dict[str, Any]]) -> dict[str, Any]:
    kinds = [value for each in forms for value in each["type"]["values"]]
    all_fields = {name: shape for each in forms for name, shape in each.items()}
    del all_fields["type"]
    return {"type": {"values": kinds}, **{f"{name}?": all_fields[name] for name in all_fields}}


def bounds(schema: dict[str, Any], at: str = "") -> dict[str, Any]:
    """Those of a schema, by the path of the field; every object takes no more than its fields."""
    found = {name: schema[name] for name in sorted(_BOUNDS & schema.keys())}
    told = {at: found} if found else {}
    if schema.get("type") == "object":
        assert schema["additionalProperties"] is False, at
    for name, each in schema.get("properties", {}).items():
        told |= bounds(each, f"{at}.{name}".strip("."))
    if "items" in schema:
        told |= bounds(schema["items"], f"{at}[]")
    return told
