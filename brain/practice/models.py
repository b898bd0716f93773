"""The model list: one entry, which says that it is not a model."""

from typing import Any

from brain.practice.refusal import Refusal
from brain.practice.reply import MODEL

_YES, _NO = {"supported": True}, {"supported": False}
INFO: dict[str, Any] = {
    "type": "model",
    "id": MODEL,
    "display_name": "Carpal practice model (not a model)",
    "created_at": "1970-01-01T00:00:00Z",
    "lifecycle": "active",
    "line": None,
    "deprecated_at": None,
    "retires_at": None,
    "max_input_tokens": 200_000,
    "max_tokens": 64_000,
    "capabilities": {
        "batch": _NO,
        "citations": _NO,
        "code_execution": _NO,
        "context_management": {
            "supported": False,
            "clear_thinking_20251015": _NO,
            "clear_tool_uses_20250919": _NO,
            "compact_20260112": _NO,
        },
        "effort": {"supported": False, **dict.fromkeys(("low", "medium", "high", "max"), _NO)},
        "image_input": _NO,
        "pdf_input": _NO,
        "server_tools": {"supported": False, "code_execution": _NO, "web_search": _NO},
        "structured_outputs": _NO,
        "thinking": {
            "supported": True,
            "types": dict.fromkeys(("adaptive", "between_tools", "disabled", "enabled"), _YES),
        },
    },
}


def page(*, after_id: str | None, before_id: str | None) -> dict[str, Any]:
    """`GET /v1/models`: everything fits on the first page."""
    data = [] if MODEL in {after_id, before_id} else [INFO]
    edge = MODEL if data else None
    return {"data": data, "has_more": False, "first_id": edge, "last_id": edge}


def model(model_id: str) -> dict[str, Any]:
    """`GET /v1/models/{id}`."""
    if model_id != MODEL:
        raise Refusal(f"model: {model_id}", status=404)
    return INFO
