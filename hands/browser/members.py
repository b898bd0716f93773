"""The members of `browser_toolset_20260801`: names, descriptions, inputs, what is off. Pure.

The names and inputs are the toolset's own, which models were taught. What a member answers when
it did what was asked is fixed too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TOOLSET = "browser_toolset_20260801"
OFF = frozenset({"file_upload", "read_console", "read_network", "javascript_exec"})
"""Members that a hand has only when its config allows them."""
TAB_MEMBERS = frozenset({"new_tab", "list_tabs", "switch_tab", "close_tab"})
"""Members whose whole answer is the state of the browser."""
ACTING = frozenset(
    {
        *(
            "navigate",
            "left_click",
            "right_click",
            "middle_click",
            "double_click",
            "triple_click",
            "hover",
        ),
        *("left_click_drag", "left_mouse_down", "left_mouse_up", "mouse_move", "scroll"),
        *("scroll_to", "type", "key", "hold_key", "form_input", "file_upload", "javascript_exec"),
    }
)
"""Members that do something to a page, which one that ended in the middle may have done in part."""
TIME_LIMIT = 60.0
"""Seconds for any of them; each step of one has less."""
WAIT_MAX = 30.0
VIEWPORT = {"width": 1280, "height": 800}
"""Pixels, where nothing else is asked for."""
_PLACE = re.compile(r"\{(\w+)\}")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """One of them."""

    name: str
    description: str
    schema: Json
    acknowledgement: str = ""
    """What it answers; empty when that is something of the page's."""


_TAB: Json = {"type": "string", "description": "The tab to act on; without it, the active one."}
_X: Json = {"type": "integer", "minimum": 0}
_COORDINATE: Json = {
    "type": "object",
    "description": "A point of the viewport, in its pixels: those of a whole screenshot.",
    "properties": {"type": {"type": "string", "enum": ["coordinate"]}, "x": _X, "y": _X},
    "required": ["type", "x", "y"],
    "additionalProperties": False,
}
_REF: Json = {
    "type": "object",
    "description": "An element, by the ref that read_page or find gave it on this tab.",
    "properties": {"type": {"type": "string", "enum": ["ref"]}, "ref": {"type": "string"}},
    "required": ["type", "ref"],
    "additionalProperties": False,
}
_TARGET: Json = {
    "type": "object",
    "description": "Where: {type: coordinate, x, y}, or {type: ref, ref} of read_page or find.",
    "properties": {
        "type": {"type": "string", "enum": ["coordinate", "ref"]},
        "x": _X,
        "y": _X,
        "ref": {"type": "string"},
    },
    "required": ["type"],
    "additionalProperties": False,
}
_MODIFIERS: Json = {
    "type": "string",
    "description": "Keys held meanwhile, as 'shift' or 'ctrl+shift'.",
}
_DURATION: Json = {"type": "number", "minimum": 0, "maximum": WAIT_MAX}
_KEYS = "a key, a chord as 'ctrl+a', or several with spaces between"


def _member(
    name: str, text: str, answer: str = "", /, *optional: str, tab: bool = True, **given: Json
) -> Member:
    """One whose fields are `given`, required but for the `optional`."""
    properties = {each.rstrip("_"): schema for each, schema in given.items()}
    required = [each for each in properties if each not in optional]
    if tab:
        properties["tab_id"] = _TAB
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return Member(name, text, schema, answer)


def _click(name: str, text: str, answer: str) -> Member:
    text = f"{text} at a point of the viewport or on an element."
    return _member(name, text, answer, "modifiers", target=_TARGET, modifiers=_MODIFIERS)


_ALL = (
    _member(
        "navigate",
        "Go to an http or https URL (https where it says neither), or 'back', 'forward', 'reload'.",
        url={"type": "string", "minLength": 1},
    ),
    _member("screenshot", "A picture of the viewport."),
    _member(
        "zoom",
        "A picture of a part of the viewport, larger: for what is small.",
        region={
            "type": "array",
            "items": {"type": "integer"},
            "minItems": 4,
            "maxItems": 4,
            "description": "[x0, y0, x1, y1], in pixels of the viewport.",
        },
    ),
    _click("left_click", "Click", "Clicked."),
    _click("right_click", "Click with the right button", "Right-clicked."),
    _click("middle_click", "Click with the middle button", "Middle-clicked."),
    _click("double_click", "Double-click", "Double-clicked."),
    _click("triple_click", "Triple-click, which selects a line or paragraph,", "Triple-clicked."),
    _member("hover", "Move the pointer there without clicking.", "Hovered.", target=_TARGET),
    _member(
        "left_click_drag",
        "Press the left button at `from`, move to `target`, let go.",
        "Dragged.",
        from_=_COORDINATE,
        target=_COORDINATE,
    ),
    _member(
        "left_mouse_down", "Press the left button.", "Mouse button pressed.", target=_COORDINATE
    ),
    _member(
        "left_mouse_up", "Let the left button go.", "Mouse button released.", target=_COORDINATE
    ),
    _member("mouse_move", "Move the pointer to a point.", "Moved the mouse.", target=_COORDINATE),
    _member(
        "scroll",
        "Turn the wheel at a point of the viewport.",
        "Scrolled {scroll_direction}.",
        "scroll_amount",
        target=_COORDINATE,
        scroll_direction={"type": "string", "enum": ["up", "down", "left", "right"]},
        scroll_amount={
            "type": "integer",
            "minimum": 1,
            "maximum": 10,
            "description": "Notches; 3 without it.",
        },
    ),
    _member("scroll_to", "Scroll an element into view.", "Scrolled to {ref}.", target=_REF),
    _member("type", "Type text where the focus is.", "Typed.", text={"type": "string"}),
    _member(
        "key",
        f"Press {_KEYS}.",
        "Pressed {text}.",
        "repeat",
        text={"type": "string", "minLength": 1},
        repeat={"type": "integer", "minimum": 1, "maximum": 100},
    ),
    _member(
        "hold_key",
        "Hold a key or a chord down for some seconds, at most 30.",
        "Held {text} for {duration}s.",
        text={"type": "string", "minLength": 1},
        duration=_DURATION,
    ),
    _member(
        "form_input",
        "Set a form's element: true or false for a checkbox, an option's value or text.",
        "Set the value of {ref}.",
        target=_REF,
        value={
            "description": "A string, a number, or true or false.",
            "anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}],
        },
    ),
    _member(
        "read_page",
        "The page as a tree of roles and names, with refs to act on; at most 50,000 characters.",
        "",
        *("filter", "depth", "ref"),
        filter={
            "type": "string",
            "enum": ["all", "interactive"],
            "description": "interactive: only what can be acted on.",
        },
        depth={"type": "integer", "minimum": 1, "description": "Of the tree; 15 without it."},
        ref={"type": "string", "description": "Only the part below this element."},
    ),
    _member(
        "find",
        "Elements that fit some words, as 'search field': at most 20, with refs.",
        query={"type": "string", "minLength": 1},
    ),
    _member("get_page_text", "The page's text, of its article where it has one."),
    _member("wait", "Wait some seconds, at most 30.", "Waited {duration}s.", duration=_DURATION),
    _member(
        "file_upload",
        "Give files of the workspace to a file field.",
        "Uploaded.",
        *("paths", "document_ids"),
        target=_REF,
        paths={
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "description": "Of files in the workspace.",
        },
        document_ids={"type": "array", "items": {"type": "string"}, "description": "None here."},
    ),
    _member("read_console", "What the page wrote to its console since the last read."),
    _member("read_network", "The page's requests since the last read."),
    _member(
        "javascript_exec",
        "Run JavaScript in the page; the value of its last expression.",
        text={"type": "string", "minLength": 1},
    ),
    _member("new_tab", "Open an empty tab.", tab=False),
    _member("list_tabs", "The open tabs.", tab=False),
    _member("switch_tab", "Make a tab the active one.", tab=False, tab_id={"type": "string"}),
    _member("close_tab", "Close a tab.", tab=False, tab_id={"type": "string"}),
)
MEMBERS: Mapping[str, Member] = {each.name: each for each in _ALL}


def acknowledged(member: Member, given: Mapping[str, Any]) -> str:
    """What it answers, with what was given; what was given is never a place for more."""
    target = given.get("target")
    ref = target.get("ref", "") if isinstance(target, dict) else ""
    shown = {**given, "ref": ref, "duration": f"{given.get('duration', 0):g}"}
    return _PLACE.sub(lambda each: _line(str(shown.get(each[1], ""))), member.acknowledgement)


def _line(text: str) -> str:
    """On one line, whatever it holds."""
    return " ".join(text.split())[:200]
