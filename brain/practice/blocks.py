"""The content blocks a request may hold, and what is wrong with one of them.

Unknown fields are refused, as the API refuses them: a field of ours that
leaks into a transcript is found here and not in production.
"""

import base64
import hashlib
from typing import Annotated, Any, Literal

import msgspec

from brain.practice.refusal import Refusal, misfit

Block = dict[str, Any]
Id = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]+$")]
ToolName = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]

_SIGNED = "practice:"
"""What a signature says once decoded, before the digest of its thinking."""


class CacheControl(msgspec.Struct, forbid_unknown_fields=True):
    """A cache breakpoint."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _Block(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    type: str
    cache_control: CacheControl | None = None


class _Text(_Block):
    text: str
    citations: Any = None


class _Image(_Block):
    source: dict[str, Any]
    transformations: Any = None


class _Document(_Block):
    source: dict[str, Any]
    citations: Any = None
    context: str | None = None
    title: str | None = None


class _SearchResult(_Block):
    content: list[dict[str, Any]]
    source: str
    title: str
    citations: Any = None


class _ToolUse(_Block):
    id: Id
    name: ToolName
    input: dict[str, Any]
    caller: Any = None
    toolset_name: str | None = None


class _ToolResult(_Block):
    tool_use_id: Id
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    toolset_name: str | None = None


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    thinking: str
    signature: str


class _Redacted(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    data: str


_SHAPES: dict[str, type[msgspec.Struct]] = {
    "text": _Text,
    "image": _Image,
    "document": _Document,
    "search_result": _SearchResult,
    "tool_use": _ToolUse,
    "tool_result": _ToolResult,
    "thinking": _Thinking,
    "redacted_thinking": _Redacted,
}
_UNCHECKED = {
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "compaction",
    "container_upload",
    "server_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
}
"""Blocks of the API's own tools: passed over, since nothing here makes or reads them."""
_USER = {"text", "image", "document", "search_result", "tool_result", "container_upload"}
_IN_RESULT = {"text", "image", "document", "search_result", "tool_reference", "browser_state"}
_USERS_ONLY = {"image", "document", "search_result", "tool_result"}


def check_block(block: Block, role: str, site: str) -> None:
    """Refuse a block of the wrong shape, or one that this role does not send."""
    kind = _kind(block, site)
    if kind in _UNCHECKED and role == "assistant":
        return
    if kind not in _SHAPES and kind not in _USER:
        raise Refusal(f"{site}: Input tag '{kind}' found using 'type' does not match any known tag")
    allowed = {"user": kind in _USER, "system": kind == "text"}.get(role, kind not in _USERS_ONLY)
    if not allowed:
        raise Refusal(f"{site}: `{kind}` blocks are not permitted in {role} messages")
    if kind in _SHAPES:
        _convert(block, _SHAPES[kind], f"{site}.{kind}")
    if kind == "text" and not block["text"].strip():
        problem = "must contain non-whitespace text" if block["text"] else "must be non-empty"
        raise Refusal(f"{site}.text: text content blocks {problem}")
    if kind == "tool_result":
        _check_result(block, f"{site}.tool_result")
    if kind == "thinking" and not signature_fits(block["signature"], block["thinking"]):
        raise Refusal(f"{site}: Invalid `signature` in `thinking` block")


def _check_result(block: Block, site: str) -> None:
    content = block.get("content")
    if block.get("is_error") and not content:
        raise Refusal(f"{site}: content cannot be empty if `is_error` is true")
    for index, inner in enumerate(content if isinstance(content, list) else ()):
        inside = f"{site}.content.{index}"
        kind = _kind(inner, inside)
        if kind not in _IN_RESULT:
            raise Refusal(f"{inside}: `{kind}` blocks are not permitted in tool results")
        if kind in _SHAPES:
            _convert(inner, _SHAPES[kind], f"{inside}.{kind}")
        if kind == "text" and not inner["text"]:
            raise Refusal(f"{inside}.text: text content blocks must be non-empty")


def _kind(block: Block, site: str) -> str:
    kind = block.get("type")
    if not isinstance(kind, str):
        raise Refusal(f"{site}.type: Field required")
    return kind


def _convert(block: Block, shape: type[msgspec.Struct], site: str) -> None:
    try:
        msgspec.convert(block, shape)
    except msgspec.ValidationError as error:
        raise misfit(error, site) from None


def signature_of(thinking: str) -> str:
    """The signature of a thinking block: opaque to callers, checked when it comes back."""
    digest = hashlib.sha256(thinking.encode()).hexdigest()
    return base64.b64encode(f"{_SIGNED}{digest}".encode()).decode()


def signature_fits(signature: str, thinking: str) -> bool:
    """Whether this thinking was played here and came back unchanged.

    Thinking whose display was omitted comes back empty; its signature stands alone.
    """
    try:
        claim = base64.b64decode(signature, validate=True).decode()
    except ValueError:
        return False
    return claim.startswith(_SIGNED) if not thinking else signature == signature_of(thinking)


def text_of(content: str | list[Block] | None) -> str:
    """The text of a message's or a tool result's content, one block a line."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block["text"] for block in content if block["type"] == "text")
