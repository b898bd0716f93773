"""Hands whose tools are a toolset that the Messages API knows: one entry, and calls of its members.

A type says so by a capability of the toolset's name. Where the model's provider has it, its tools
are one entry of the request, a call is a member's, and what the hand says of its tabs becomes the
API's own block. Where it has not, and for a second such hand, its tools are plain ones, under the
names that every hand's have. The log is the same: what is here is made of it anew each time. Pure.
"""

import json
from collections.abc import Mapping
from typing import Any

from brain.session.transcript import Transcript
from brain.tools.names import tool_name
from carpal import browser_toolset
from carpal.browser_toolset import FAMILY, MEMBERS, OFF, PICTURES, TABS, TOOLSET

Json = dict[str, Any]

FEATURE = "tool:browser_toolset"
"""As a provider's lack of it is known: `brain/models/features.py`."""
_LINE_MAX, _TEXT_MAX, _TABS_MAX, _CHANGES_MAX = 64 * 1024, 4096, 100, 100
"""Characters of the line and of each text in it, and entries of its lists."""
_TAB: Mapping[str, type] = {"tab_id": str, "title": str, "url": str, "active": bool}
_DOWNLOAD: Mapping[str, type] = {"type": str, "download_id": str, "url": str}
_CHANGES: Mapping[str, Mapping[str, type]] = {
    "tab_opened": {"type": str, "tab_id": str},
    "download_started": _DOWNLOAD,
    "download_completed": {**_DOWNLOAD, "path": str, "size_bytes": int},
    "download_failed": {**_DOWNLOAD, "error": str},
}
_OPTIONAL = frozenset({"active", "path", "size_bytes", "error"})


def of_hand(transcript: Transcript, hand: str) -> str:
    """The toolset that a hand's tools are; empty when they are none."""
    return str(transcript.tools.get(hand, {}).get("toolset") or "")


def is_off(transcript: Transcript, hand: str, tool: str) -> bool:
    """The hand's config does not turn that member on: it is offered to no model."""
    if of_hand(transcript, hand) != TOOLSET or tool not in OFF:
        return False
    config = (transcript.hand_specs.get(hand) or {}).get("config")
    allowed = config.get("allow") if isinstance(config, dict) else None
    return not isinstance(allowed, list) or tool not in allowed


def hand_of(transcript: Transcript) -> str:
    """The hand that is offered as the toolset; empty when none is."""
    if not transcript.tools or not transcript.agent.get("model"):
        return ""
    lacks = transcript.models.lacks(transcript.models.choice(transcript.agent))
    if FEATURE in lacks:
        return ""
    hands = (hand for hand in transcript.hand_specs if of_hand(transcript, hand) == TOOLSET)
    return next(hands, "")


def called(transcript: Transcript, block: Json) -> str:
    """The name that a `tool_use` means, as every hand's tools are named."""
    hand = hand_of(transcript) if block.get("toolset_name") == FAMILY else ""
    name = str(block["name"])
    return tool_name(transcript, hand, name) if hand else name


def fitted(transcript: Transcript, request: Json) -> Json:
    """The request with that hand's tools as one entry, and their calls and results as members'.

    Where the request offers none of them, as when the agent has none of them any more, what they
    once said stays as it is in the log, calls of plain tools: a member's is of a toolset that is
    there.
    """
    hand = hand_of(transcript)
    if not hand:
        return request
    names = {tool_name(transcript, hand, member): member for member in sorted(MEMBERS)}
    tools = [tool for tool in request.get("tools", ()) if tool.get("name") not in names]
    on = {names[each["name"]] for each in request.get("tools", ()) if each.get("name") in names}
    if not on:
        return request
    tools.append(_entry(on))
    uses: dict[str, str] = {}
    messages = [_message(message, names, uses) for message in request["messages"]]
    return {**request, "tools": tools, "messages": messages}


def _entry(on: set[str]) -> Json:
    configs = {
        member: {"enabled": member in on}
        for member in sorted(MEMBERS)
        if (member in on) == (member in OFF)
    }
    return {"type": TOOLSET, **({"configs": configs} if configs else {})}


def _message(message: Json, names: Mapping[str, str], uses: dict[str, str]) -> Json:
    if not isinstance(message["content"], list):
        return message
    blocks = []
    for block in message["content"]:
        if block["type"] == "tool_use" and block["name"] in names:
            uses[block["id"]] = names[block["name"]]
            member = {"name": names[block["name"]], "toolset_name": FAMILY}
            blocks.append({**block, **member})
        elif block["type"] == "tool_result" and block["tool_use_id"] in uses:
            blocks.append(_result(block, uses[block["tool_use_id"]]))
        else:
            blocks.append(block)
    return {**message, "content": blocks}


def _result(block: Json, member: str) -> Json:
    block = {**block, "toolset_name": FAMILY}
    content = block.get("content")
    if block.get("is_error") or not isinstance(content, list):
        return block
    shown, state = _parted(content)
    if member in TABS:
        # What says nothing of the tabs any more, as one that was cut, is no result of such a call.
        return {**block, "content": [state]} if state else {**block, "is_error": True}
    if member in PICTURES and any(each["type"] == "image" for each in shown):
        shown = [each for each in shown if not _stands_for_picture(each)]
    return {**block, "content": [*shown, *([state] if state else [])]}


def _parted(content: list[Json]) -> tuple[list[Json], Json | None]:
    """A result's blocks without the line about the browser, and that as the API's block."""
    shown: list[Json] = []
    state: Json | None = None
    for block in content:
        if block["type"] != "text":
            shown.append(block)
            continue
        lines = block["text"].split("\n")
        # A page may say such lines; the hand's own is after them, whatever comes behind that.
        own = [n for n, each in enumerate(lines) if each.startswith(browser_toolset.BEGINS)]
        at = own[-1] if own else None
        if at is not None and (found := _state(lines[at])):
            state = found
            del lines[at]
        if (text := "\n".join(lines)).strip():
            shown.append({**block, "text": text})
    return shown, state


def _state(line: str) -> Json | None:
    """The API's block, of the keys that it knows; None for a line that is none, or too large."""
    if len(line) > _LINE_MAX or (said_of_it := browser_toolset.told(line)) is None:
        return None
    try:
        told = json.loads(said_of_it)
    except (ValueError, RecursionError):
        return None
    said = told.get("tabs") if isinstance(told, dict) else None
    if not isinstance(said, list) or len(said) > _TABS_MAX:
        return None
    tabs = [tab for each in said if (tab := _known(each, _TAB))]
    active = [tab for tab in tabs if tab.get("active") is True]
    if len({tab["tab_id"] for tab in tabs}) < len(said) or len(active) != bool(tabs):
        return None
    listed = told.get("state_changes")
    listed = listed[-_CHANGES_MAX:] if isinstance(listed, list) else []
    changes = [change for each in listed if (change := _change(each))]
    more = {"state_changes": changes} if changes else {}
    return {"type": "browser_state", "tabs": tabs, **more}


def _change(said: Any) -> Json | None:
    kind = said.get("type") if isinstance(said, dict) else None
    return _known(said, _CHANGES[kind]) if isinstance(kind, str) and kind in _CHANGES else None


def _known(said: Any, keys: Mapping[str, type]) -> Json | None:
    """Of an object the keys that are known, in its order; None when one is missing or no good."""
    if not isinstance(said, dict) or keys.keys() - _OPTIONAL - said.keys():
        return None
    known = {key: value for key, value in said.items() if key in keys}
    good = all(type(value) is keys[key] for key, value in known.items())
    texts = (value for value in known.values() if isinstance(value, str))
    return known if good and all(len(text) <= _TEXT_MAX for text in texts) else None


def _stands_for_picture(block: Json) -> bool:
    return block["type"] == "text" and str(block["text"]).startswith("[image/")
