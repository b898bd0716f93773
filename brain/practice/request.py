"""A request body, checked as the Messages API checks it.

Raises Refusal naming the field. What the practice model does not act on
(sampling, caching, output formats) is accepted and passed over.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from brain.practice.blocks import Block, CacheControl, ToolName, check_block, text_of
from brain.practice.pairing import Message, Turn, to_turns
from brain.practice.refusal import Refusal, misfit
from carpal import browser_toolset

CHARACTERS_PER_TOKEN = 4
BREAKPOINTS_MAX = 4
Display = Literal["shown", "omitted", "off"]
"""What becomes of a turn's thinking: sent, sent as a bare signature, left out."""
_TOOLSETS = "toolset_"
"""In the type of a tool that has members instead of a name."""


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class _Thinking(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: Annotated[int, msgspec.Meta(ge=1024)] | None = None
    display: Literal["summarized", "omitted"] | None = None


class _ToolChoice(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Tool(msgspec.Struct, forbid_unknown_fields=True):
    name: ToolName
    input_schema: dict[str, Any]
    type: str | None = None
    description: str | None = None
    cache_control: CacheControl | None = None
    allowed_callers: Any = None
    defer_loading: Any = None
    eager_input_streaming: Any = None
    input_examples: Any = None
    strict: Any = None


class CountBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of `POST /v1/messages/count_tokens`."""

    model: Annotated[str, msgspec.Meta(min_length=1)]
    messages: list[_Message]
    system: str | list[Block] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: _ToolChoice | None = None
    thinking: _Thinking | None = None
    cache_control: CacheControl | None = None
    billing_policy: Any = None
    compaction: Any = None
    context_management: Any = None
    mcp_servers: Any = None
    output_config: Any = None
    speed: Any = None


class MessagesBody(CountBody, kw_only=True):
    """The body of `POST /v1/messages`."""

    max_tokens: Annotated[int, msgspec.Meta(ge=0)]
    stream: bool = False
    metadata: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_k: Any = None
    top_p: Any = None
    container: Any = None
    diagnostics: Any = None
    fallback_credit_token: Any = None
    fallbacks: Any = None
    inference_geo: Any = None
    service_tier: Any = None
    thread: Any = None


Body = TypeVar("Body", bound=CountBody)


@dataclass(frozen=True)
class Conversation:
    """What the practice model sees of a request."""

    turns: list[Turn]
    system: str
    tools: frozenset[str]
    """Names of the tools it may call; none under `tool_choice: none`."""
    members: frozenset[str]
    """Those of them that are members of the browser toolset."""
    thinking: Display
    input_tokens: int
    """An estimate: characters of JSON over four."""

    @property
    def assistant_turns(self) -> int:
        """How many times the assistant has spoken."""
        return sum(turn.role == "assistant" for turn in self.turns)

    @property
    def asked(self) -> int:
        """Index of the last user turn that has text; -1 without one."""
        said = [i for i, t in enumerate(self.turns) if t.role == "user" and t.of("text")]
        return said[-1] if said else -1

    @property
    def last_user_text(self) -> str:
        """What the user last said in words."""
        return self.turns[self.asked].text() if self.asked >= 0 else ""


def read_count(raw: bytes) -> Conversation:
    """The conversation of a count_tokens body."""
    return _conversation(_decode(raw, CountBody))


def read_messages(raw: bytes) -> tuple[MessagesBody, Conversation]:
    """A messages body and its conversation."""
    body = _decode(raw, MessagesBody)
    thinking = body.thinking
    if thinking is not None and thinking.type == "enabled":
        if thinking.budget_tokens is None:
            raise Refusal("thinking.enabled.budget_tokens: Field required")
        if thinking.budget_tokens >= body.max_tokens:
            raise Refusal("`max_tokens` must be greater than `thinking.budget_tokens`")
    return body, _conversation(body)


def _decode(raw: bytes, shape: type[Body]) -> Body:
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        raise misfit(error) from None
    except msgspec.DecodeError as error:
        raise Refusal(f"The request body is not valid JSON: {error}") from None


def _conversation(body: CountBody) -> Conversation:
    if not body.messages:
        raise Refusal("messages: at least one message is required")
    messages = [_checked(m, f"messages.{index}") for index, m in enumerate(body.messages)]
    for index, block in enumerate(body.system if isinstance(body.system, list) else ()):
        check_block(block, "system", f"system.{index}")
    tools, members = _check_tools(body.tools or [])
    _check_toolset(body.tools or [], messages)
    _check_breakpoints(body, messages)
    said = msgspec.json.encode([body.system, body.tools, body.messages]).decode()
    return Conversation(
        turns=to_turns(messages),
        system=text_of(body.system),
        tools=frozenset() if body.tool_choice and body.tool_choice.type == "none" else tools,
        members=members,
        thinking=_display(body.thinking),
        input_tokens=max(1, len(said) // CHARACTERS_PER_TOKEN),
    )


def _display(thinking: _Thinking | None) -> Display:
    if thinking is None:
        return "shown"
    if thinking.type in {"disabled", "between_tools"}:
        return "off"
    return "omitted" if thinking.display == "omitted" else "shown"


def _checked(message: _Message, site: str) -> Message:
    if not message.content:
        raise Refusal(f"{site}: all messages must have non-empty content")
    if isinstance(message.content, str):
        blocks: list[Block] = [{"type": "text", "text": message.content}]
    else:
        blocks = message.content
    for index, block in enumerate(blocks):
        check_block(block, message.role, f"{site}.content.{index}")
    return Message(message.role, blocks)


def _check_tools(tools: list[dict[str, Any]]) -> tuple[frozenset[str], frozenset[str]]:
    """The names there are, and those of them that are members of the browser toolset."""
    names: list[str] = []
    members: set[str] = set()
    for index, tool in enumerate(tools):
        kind = tool.get("type") or "custom"
        if kind == "custom":
            try:
                checked = msgspec.convert(tool, _Tool)
            except msgspec.ValidationError as error:
                raise misfit(error, f"tools.{index}.custom") from None
            if checked.input_schema.get("type") != "object":
                raise Refusal(f"tools.{index}.custom.input_schema.type: Input should be 'object'")
        elif kind == browser_toolset.TOOLSET:
            members |= _members(tool, f"tools.{index}.{kind}")
            continue
        elif _TOOLSETS in str(kind):
            continue
        if not isinstance(tool.get("name"), str):
            raise Refusal(f"tools.{index}.{kind}.name: Field required")
        names.append(tool["name"])
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Refusal(f"tools: Tool names must be unique: {twice}")
    return frozenset({*names, *members}), frozenset(members - set(names))


def _check_toolset(tools: list[dict[str, Any]], messages: list[Message]) -> None:
    """A call of a member is of a toolset that is there: strict, for nobody says otherwise."""
    if any(tool.get("type") == browser_toolset.TOOLSET for tool in tools):
        return
    for index, message in enumerate(messages):
        if any(
            block["type"] == "tool_use" and block.get("toolset_name") for block in message.blocks
        ):
            raise Refusal(f"messages.{index}: `toolset_name` names no toolset among `tools`")


def _members(tool: dict[str, Any], site: str) -> set[str]:
    configs = tool.get("configs") or {}
    for name, config in configs.items():
        if name not in browser_toolset.MEMBERS or not isinstance(config, dict):
            raise Refusal(f"{site}.configs.{name}: Extra inputs are not permitted")
    on = {name: name not in browser_toolset.OFF for name in browser_toolset.MEMBERS}
    on |= {name: bool(config.get("enabled", on[name])) for name, config in configs.items()}
    return {name for name, is_on in on.items() if is_on}


def _check_breakpoints(body: CountBody, messages: list[Message]) -> None:
    blocks = [block for message in messages for block in message.blocks]
    blocks += body.system if isinstance(body.system, list) else []
    marked = [item for item in [*blocks, *(body.tools or [])] if item.get("cache_control")]
    count = len(marked) + (body.cache_control is not None)
    if count > BREAKPOINTS_MAX:
        raise Refusal(
            f"A maximum of {BREAKPOINTS_MAX} blocks with cache_control may be provided. "
            f"Found {count}."
        )
