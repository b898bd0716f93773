"""An answer as the API's message: ids, content blocks, usage."""

import secrets
from typing import Any

import msgspec

from brain.practice.answer import Answer
from brain.practice.blocks import Block, signature_of
from brain.practice.request import CHARACTERS_PER_TOKEN, Conversation
from carpal.browser_toolset import FAMILY

MODEL = "practice"
"""The model every answer names, whatever was asked for: a log must not say Claude spoke."""


def message_of(answer: Answer, conversation: Conversation, max_tokens: int) -> dict[str, Any]:
    """The whole answer, as a response that is not streamed carries it.

    With `max_tokens` 0 nothing is generated, as in the API.
    """
    content = _content(answer, conversation) if max_tokens else []
    stop = answer.stop_reason or ("tool_use" if answer.tools else "end_turn")
    details = answer.stop_details
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": content,
        "stop_reason": stop if max_tokens else "max_tokens",
        "stop_sequence": answer.stop_sequence,
        "stop_details": None
        if details is None
        else {"type": "refusal", **msgspec.structs.asdict(details)},
        "container": None,
        "diagnostics": None,
        "usage": _usage(answer, conversation, content),
    }


def _content(answer: Answer, conversation: Conversation) -> list[Block]:
    blocks: list[Block] = []
    if answer.thinking and conversation.thinking != "off":
        shown = answer.thinking if conversation.thinking == "shown" else ""
        signature = signature_of(answer.thinking)
        blocks.append({"type": "thinking", "thinking": shown, "signature": signature})
    if answer.text:
        blocks.append({"type": "text", "text": answer.text})
    blocks += [
        {
            "type": "tool_use",
            "id": f"toolu_{secrets.token_hex(12)}",
            "name": tool.name,
            "input": tool.input,
            "caller": {"type": "direct"},
            **({"toolset_name": FAMILY} if tool.name in conversation.members else {}),
        }
        for tool in answer.tools
    ]
    return blocks


def _usage(answer: Answer, conversation: Conversation, content: list[Block]) -> dict[str, Any]:
    """Estimates, unless the script gives numbers."""
    thinking = _tokens(answer.thinking or "") if conversation.thinking != "off" and content else 0
    given = answer.usage
    output = given.output_tokens
    if output is None:
        visible = [block for block in content if block["type"] != "thinking"]
        output = thinking + (_tokens(msgspec.json.encode(visible).decode()) if visible else 0)
    return {
        "input_tokens": conversation.input_tokens
        if given.input_tokens is None
        else given.input_tokens,
        "cache_creation_input_tokens": given.cache_creation_input_tokens,
        "cache_read_input_tokens": given.cache_read_input_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": given.cache_creation_input_tokens,
            "ephemeral_1h_input_tokens": 0,
        },
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": min(thinking, output)},
        "service_tier": "standard",
        "inference_geo": "not_available",
        "server_tool_use": None,
    }


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)
