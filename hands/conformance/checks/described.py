"""What a type says of itself, and that its calls are held to it."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Failed, Skipped, equal, must, refused
from hands.conformance import schemas as schemas_taken
from hands.conformance.bench import Bench, number
from hands.conformance.claude import KNOWN, OF_CAPABILITY
from hands.conformance.group import CONTRACT, Group

contract = Group(CONTRACT)

_KINDS = ("string", "integer", "number", "boolean", "array", "object")
_WRONG: Mapping[str, Any] = {"string": 7}
"""Of another type than asked for; text is, of all but text."""


_TAKEN = "Change that in Describe: a daemon offers no type of which it takes something for wrong."
_SCHEMA = 'Make each schema the bytes of a JSON Schema whose `type` is "object".'
_TYPE = "Give the type a description of at most 32 KiB: the model reads it."
_LIMIT = "Give the tool's time_limit more than nothing and at most a day, or leave it out."
_WHOLE = f"Keep them below {256 * 1024} bytes: a daemon offers no type that says more."
_TOOL = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_TOOLS_MAX = 128
_TEXT_MAX = 32 * 1024
_WHOLE_MAX = 256 * 1024
_DAY = 24 * 3600
_NO_CONFIG = b'{"type": "object"}'


def _schema(tool: pb.ToolInfo) -> Mapping[str, Any]:
    return _object(tool.name, tool.input_schema)


def _object(name: str, data: bytes) -> Mapping[str, Any]:
    try:
        schema = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Failed(f"the schema of {name} is no JSON: {error}", _SCHEMA) from None
    must(isinstance(schema, dict), f"the schema of {name} is no object", _SCHEMA)
    equal(f"the type in the schema of {name}", schema.get("type"), "object", _SCHEMA)
    return dict(schema)


@contract("h22")
async def described_whole(bench: Bench) -> None:
    """Each tool has a name of its own, a description, and a JSON Schema of an object."""
    kind = bench.subject.type
    names = [tool.name for tool in kind.tools]
    where = "ProvisionResult" if "lists_tools" in bench.subject.capabilities else "Describe"
    must(bool(names), "there is no tool", f"List at least one tool in {where}.")
    twice = sorted({name for name in names if names.count(name) > 1})
    must(not twice, f"two tools are named {', '.join(twice)}", "Give each tool another name.")
    for tool in kind.tools:
        told = f"Give the tool {tool.name} a description: the model chooses by it."
        must(bool(tool.description), f"{tool.name} has no description", told)
        _schema(tool)
    if kind.config_schema:
        _object("the config", kind.config_schema)
    if "claim" not in bench.subject.capabilities:
        check_taken(kind)


def check_taken(kind: pb.HandTypeInfo) -> None:
    """A daemon that has its socket takes it: else it offers no such type, and says why."""
    must(len(kind.tools) <= _TOOLS_MAX, f"there are more than {_TOOLS_MAX} tools", _TAKEN)
    must(0 < len(kind.description.encode()) <= _TEXT_MAX, "the type has no description", _TYPE)
    schemas = {"the config": _object("the config", kind.config_schema or _NO_CONFIG)}
    for tool in kind.tools:
        named = _TOOL.fullmatch(tool.name) is not None
        must(named, f"the name {tool.name!r} is not 1 to 128 of a-z, A-Z, 0-9, '_', '-'", _TAKEN)
        size = len(tool.description.encode())
        must(size <= _TEXT_MAX, f"the description of {tool.name} has {size} bytes", _TAKEN)
        if tool.HasField("time_limit"):
            seconds = tool.time_limit.ToNanoseconds() / 1e9
            must(0 < seconds <= _DAY, f"the time limit of {tool.name} is {seconds:g} s", _LIMIT)
        schemas[tool.name] = _schema(tool)
    for name, schema in schemas.items():
        problem = schemas_taken.problem(schema)
        must(not problem, f"no daemon takes the schema of {name}: {problem}", _TAKEN)
    whole = sum(
        len(tool.description.encode()) + len(json.dumps(schemas[tool.name])) for tool in kind.tools
    )
    must(whole <= _WHOLE_MAX, f"its tools have {whole} bytes of descriptions and schemas", _WHOLE)


@contract("h22")
async def as_claude_knows_them(bench: Bench) -> None:
    """A tool whose name Claude knows takes the fields that Claude knows, and no others."""
    for tool in bench.subject.type.tools:
        if tool.name not in KNOWN:
            continue
        schema, known = _schema(tool), KNOWN[tool.name]
        found = {name: part.get("type") for name, part in schema.get("properties", {}).items()}
        equal(f"the fields of {tool.name}", found, dict(known.types))
        required = frozenset(schema.get("required", ()))
        equal(f"what {tool.name} requires", required, known.required)


@contract("h22")
async def tools_of_capabilities(bench: Bench) -> None:
    """A type has the tools of each capability that it claims."""
    names = {tool.name for tool in bench.subject.type.tools}
    for capability, tools in OF_CAPABILITY.items():
        if capability in bench.subject.capabilities:
            equal(f"missing of {capability}", sorted(tools - names), [])


@contract("h22", daemons=True)
async def unknown_tool(bench: Bench) -> None:
    """A tool that the type has not is refused, by its name."""
    hand = await bench.hand()
    with refused(Reason.TOOL_NOT_FOUND, says="no_such_tool"):
        await hand.run("no_such_tool", {})


@contract("h22", daemons=True)
async def input_refused_by_field(bench: Bench) -> None:
    """Input that does not fit a tool's schema is refused, and the refusal names the field."""
    hand = await bench.hand()
    tried = 0
    for tool in bench.subject.type.tools:
        for field, given in _misfits(_schema(tool)):
            tried += 1
            with refused(Reason.INPUT_INVALID, field=field):
                await hand.run(tool.name, given)
    must(tried > 0, "no schema says what would not fit")


def _misfits(schema: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Inputs with one thing wrong each, and the field that it is."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = schema.get("required", ())
    fitting = {name: _fitting(properties[name]) for name in required}
    for name in required:
        yield name, {key: value for key, value in fitting.items() if key != name}
    for name, part in properties.items():
        if not isinstance(part, dict) or "$ref" in part:
            continue  # words that the daemon does not know
        if part.get("type") in _KINDS:
            yield name, {**fitting, name: _WRONG.get(part["type"], "text")}
        if "enum" in part:
            yield name, {**fitting, name: "none of them"}
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        yield "no_such_field", {**fitting, "no_such_field": 1}


def _fitting(part: Any) -> Any:
    """What fits a part of a schema, as far as it says what does."""
    part = part if isinstance(part, dict) else {}
    if "enum" in part:
        return part["enum"][0]
    match part.get("type"):
        case "string":
            return "true".ljust(int(part.get("minLength", 0)), "e")
        case "integer" | "number":
            return max(1, part.get("minimum", 1))
        case "boolean":
            return False
        case "array":
            return [_fitting(part.get("items"))] * max(1, int(part.get("minItems", 0)))
        case "object":
            properties = part.get("properties", {})
            return {name: _fitting(properties.get(name)) for name in part.get("required", ())}
    return "true"


@contract("h22", daemons=True)
async def input_no_object(bench: Bench) -> None:
    """Input that is no JSON object is refused."""
    hand = await bench.hand()
    name, _ = bench.plain_call()
    for data in (b"", b"nonsense", b"[1]", b"\xff", b'"text"', b"[" * 50_000):
        with refused(Reason.INPUT_INVALID):
            await hand.run(name, data)


@contract("h22", needs=("shell",))
async def refused_runs_nothing(bench: Bench) -> None:
    """What is refused did not run, and its hand stays usable."""
    hand = await bench.hand()
    given = {"command": "echo ran > ran", "timeout_ms": "soon"}
    with refused(Reason.INPUT_INVALID, field="timeout_ms"):
        await hand.run("bash", given)
    answer = await hand.sh("[ ! -e ran ] && echo nothing")
    equal("what is there", answer.text, "nothing\n")


@contract()
async def probed(bench: Bench) -> None:
    """Probe says ready; and of what is not, why."""
    health = bench.subject.health
    if health is None:
        raise Skipped("the server offers no Probe")
    if health.state != pb.PROBE_STATE_READY:
        must(bool(health.reason), "it is not ready, and does not say why")
    equal("the state", pb.ProbeState.Name(health.state), "PROBE_STATE_READY")


@contract(daemons=True)
async def unknown_type(bench: Bench) -> None:
    """A type that the server has not is refused."""
    request = bench.order()
    request.type = f"none-{number()}"
    with refused(Reason.HAND_TYPE_NOT_FOUND):
        await bench.provision(request)
