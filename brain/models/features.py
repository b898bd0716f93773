"""What a provider lacks, and a request without it. Pure.

A feature is a name: one of those below, or the name of a parameter of the
Messages API. What is left out is in the log once a session and provider, and
the request is made from the log, so what was sent can be made again.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

Json = dict[str, Any]

KEPT = frozenset({"model", "messages", "max_tokens", "system", "tools"})
"""Parameters without which there is no request."""
_TOOL_FIELDS = (
    "defer_loading",
    "strict",
    "eager_input_streaming",
    "input_examples",
    "allowed_callers",
)

LACKING: Mapping[str, tuple[str, ...]] = {
    "anthropic": (),
    "foundry": (),
    # Nothing runs at the provider; a service there fetches nothing and keeps no files.
    "bedrock": (
        *("tool:web_search", "tool:web_fetch", "tool:code_execution", "tool:mcp_toolset"),
        *("mcp_servers", "container", "service_tier", "inference_geo", "media:url", "media:file"),
    ),
    "vertex": (
        *("tool:web_fetch", "tool:code_execution", "tool:mcp_toolset"),
        *("mcp_servers", "container", "service_tier", "inference_geo", "media:url", "media:file"),
    ),
}
"""Kind of provider → what it is known to lack; the rest is learned from its refusals."""

_UNSUPPORTED = re.compile(
    r"extra inputs? (?:are|is) not permitted"
    r"|(?:is|are) not (?:supported|available|permitted|allowed)"
    r"|does not support|unsupported|not support|does not match any of the expected tags"
    r"|does not match any known tag|unknown (?:field|parameter|tool type)|unrecognized"
    r"|(?:is|are) deprecated",
    re.IGNORECASE,
)
_FIELD_ERROR = re.compile(r"\b(?:Field required|Input should be (?:a valid|greater|less))")


_SIGNATURE = re.compile(
    r"invalid `?signature`? in `?thinking`? block|thinking.*cannot be modified", re.I
)
_NO_THINKING = re.compile(r"must start with a thinking block|expected `thinking` or", re.I)


def used(request: Json) -> set[str]:
    """Every feature that a request uses."""
    features = {key for key in request if key not in KEPT and key != "cache_control"}
    for item in _items(request):
        if "cache_control" in item:
            features.add("cache_control")
    for tool in request.get("tools") or ():
        kind = str(tool.get("type") or "custom")
        if kind != "custom":
            features.add(f"tool:{_tool_kind(kind)}")
        features |= {f"tool_field:{key}" for key in _TOOL_FIELDS if key in tool}
    for block in _blocks(request):
        kind = str(block.get("type"))
        if kind in ("image", "document"):
            features.add(f"{kind}s")
            if (source := _source(block)) in ("url", "file"):
                features.add(f"media:{source}")
        elif kind in ("thinking", "redacted_thinking"):
            features.add("thinking_blocks")
        elif kind == "tool_reference":
            features.add("tool_field:defer_loading")
    if "cache_control" in request:
        features.add("cache_control")
    return features


def lacking(kind: str, more: Collection[str], request: Json) -> list[str]:
    """What a request uses and this provider is known to lack, sorted; `more`: its own setting."""
    return sorted(used(request) & {*LACKING.get(kind, ()), *more})


def without(request: Json, features: Collection[str]) -> Json:
    """The request without some features; the same object when there is nothing to leave out."""
    for feature in sorted(features):
        request = _without(request, feature)
    return request


def named(message: str, request: Json) -> str:
    """The feature that a refusal (400) says is not there; empty when it says no such thing."""
    in_use = used(request)
    if _SIGNATURE.search(message):
        return "thinking_blocks" if "thinking_blocks" in in_use else ""
    if _NO_THINKING.search(message):
        return "thinking" if "thinking" in in_use else ""
    if not _UNSUPPORTED.search(message) or _FIELD_ERROR.search(message):
        return ""
    lowered = message.lower()
    # From the most particular to the least: a path ends at what is refused.
    for feature in sorted(in_use, key=_particular):
        if any(_says(lowered, word) for word in _words(feature, request)):
            return feature
    return ""


def _particular(feature: str) -> tuple[int, str]:
    order = ("cache_control", "tool_field:", "media:", "tool:", "images", "documents", "thinking")
    rank = next((n for n, start in enumerate(order) if feature.startswith(start)), len(order))
    return rank, feature


def _words(feature: str, request: Json) -> list[str]:
    """What a message calls a feature."""
    kind, _, name = feature.rpartition(":")
    if feature == "thinking_blocks":
        return ["redacted_thinking", "thinking block", "thinking blocks"]
    if kind == "tool":
        types = [str(tool.get("type")) for tool in request.get("tools") or ()]
        return [each.lower() for each in types if _tool_kind(each) == name]
    if kind == "media":
        return [f"source.{name}", f"{name} source", f"source type '{name}'", f"{name} content"]
    if feature in ("images", "documents"):
        one = feature[:-1]
        return [one, feature]
    return [name.lower()]


def _says(message: str, word: str) -> bool:
    return re.search(rf"(?<![a-z0-9_]){re.escape(word)}(?![a-z0-9_])", message) is not None


def _without(request: Json, feature: str) -> Json:
    if feature == "cache_control":
        return {
            key: _strip(value, {"cache_control"}, 3) if key in _CACHED else value
            for key, value in request.items()
            if key != "cache_control"
        }
    kind, _, name = feature.rpartition(":")
    if kind == "tool":
        return _with_tools(request, lambda tool: _tool_kind(str(tool.get("type"))) != name)
    if kind == "tool_field":
        if name == "defer_loading":
            request = _map_blocks(request, _reference_as_text)
        tools = [_strip(tool, {name}, 0) for tool in request.get("tools") or ()]
        return {**request, "tools": tools} if tools else request
    if kind == "media":
        said = f"was given by its {name}, which this model's provider cannot read"
        return _map_blocks(request, lambda b: _noted(b, said) if _source(b) == name else b)
    if feature in ("images", "documents"):
        one, said = feature[:-1], "cannot be shown to this model by its provider"
        return _map_blocks(request, lambda b: _noted(b, said) if b.get("type") == one else b)
    if feature in ("thinking", "thinking_blocks"):
        request = _map_blocks(request, lambda b: None if "thinking" in b["type"] else b)
    return {key: value for key, value in request.items() if key != feature or key in KEPT}


_CACHED = ("system", "tools", "messages")


def _with_tools(request: Json, keep: Callable[[Json], bool]) -> Json:
    tools = [tool for tool in request.get("tools") or () if keep(tool)]
    rest = {key: value for key, value in request.items() if key != "tools"}
    if tools:
        return {**rest, "tools": tools}
    rest.pop("tool_choice", None)  # refused where there is nothing to choose from
    return rest


def _map_blocks(request: Json, change: Callable[[Json], Json | None]) -> Json:
    """The request with each block of its messages changed, or left out; no message is empty."""

    def changed(message: Json) -> Json:
        content = message["content"]
        if not isinstance(content, list):
            return message
        blocks = [made for block in content if (made := _changed(block, change)) is not None]
        return {**message, "content": blocks or [{"type": "text", "text": "[left out]"}]}

    return {**request, "messages": [changed(message) for message in request["messages"]]}


def _changed(block: Json, change: Callable[[Json], Json | None]) -> Json | None:
    inner = block.get("content")
    if block.get("type") == "tool_result" and isinstance(inner, list):
        kept = [made for each in inner if (made := change(each)) is not None]
        return {**block, "content": kept or [{"type": "text", "text": "[left out]"}]}
    return change(block)


def _noted(block: Json, why: str) -> Json:
    return {"type": "text", "text": f"[left out: this {block['type']} {why}]"}


def _reference_as_text(block: Json) -> Json:
    if block.get("type") != "tool_reference":
        return block
    return {"type": "text", "text": f"[tool: {block.get('tool_name', '')}]"}


def _source(block: Json) -> str:
    if block.get("type") not in ("image", "document"):
        return ""
    return str((block.get("source") or {}).get("type"))


def _strip(value: Any, keys: set[str], depth: int) -> Any:
    """Without some keys, in blocks within blocks; what a tool was given is nobody's block."""
    if isinstance(value, list):
        return [_strip(item, keys, depth) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _strip(item, keys, depth - 1) if depth and key == "content" else item
        for key, item in value.items()
        if key not in keys
    }


def _items(request: Json) -> list[Json]:
    """Everything that may carry a cache breakpoint."""
    system = request.get("system")
    return [
        *(request.get("tools") or ()),
        *(system if isinstance(system, list) else ()),
        *_blocks(request),
    ]


def _blocks(request: Json) -> list[Json]:
    """The blocks of the messages, and those in tools' results."""
    found: list[Json] = []
    for message in request.get("messages") or ():
        if isinstance(message["content"], list):
            for block in message["content"]:
                found.append(block)
                if block.get("type") == "tool_result" and isinstance(block.get("content"), list):
                    found.extend(block["content"])
    return found


def _tool_kind(kind: str) -> str:
    """`web_search` of `web_search_20250305`: the versions of a tool are one feature."""
    return re.sub(r"_\d{8}$", "", kind)
