"""What a hand that is a browser and the brain have to say alike: its members, the line of its tabs.

The members are those of the Messages API's toolset, which models were taught. The line is JSON at
the end of a result's text, of which the brain makes the API's own block. Pure.
"""

TOOLSET = "browser_toolset_20260801"
"""Its type in a request, and the capability of a hand type that has it."""
FAMILY = "browser"
"""What a call of a member names it by."""
OFF = frozenset({"file_upload", "javascript_exec", "read_console", "read_network"})
"""Members that the API leaves out, and a hand has not, unless they are turned on."""
TABS = frozenset({"new_tab", "list_tabs", "switch_tab", "close_tab"})
"""Members whose whole answer is the state of the browser."""
PICTURES = frozenset({"screenshot", "zoom"})
MEMBERS = (
    OFF
    | TABS
    | PICTURES
    | {
        *("navigate", "left_click", "right_click", "middle_click", "double_click", "triple_click"),
        *("hover", "left_click_drag", "left_mouse_down", "left_mouse_up", "mouse_move", "scroll"),
        *("scroll_to", "type", "key", "hold_key", "form_input", "read_page", "find"),
        *("get_page_text", "wait"),
    }
)
BEGINS = "[browser_state"
"""How the line begins, however it goes on: of a hand's text the last such line counts."""


def line(told: str) -> str:
    """The line, of JSON that is one line itself."""
    return f"{BEGINS} {told}]"


def told(line: str) -> str | None:
    """The JSON in such a line; None of any other."""
    begins = f"{BEGINS} "
    return line[len(begins) : -1] if line.startswith(begins) and line.endswith("]") else None
