"""What does a member, by its name, but those of the tabs. Each step of one is bounded."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from hands.browser import forms, navigating, pointing, pressing, reading, shots
from hands.browser.act import Act


async def _wait(act: Act) -> None:
    await act.pause(act.given["duration"])


DO: Mapping[str, Callable[[Act], Awaitable[str | None]]] = {
    "navigate": navigating.navigate,
    "screenshot": shots.screenshot,
    "zoom": shots.zoom,
    "left_click": pointing.click,
    "right_click": partial(pointing.click, button="right"),
    "middle_click": partial(pointing.click, button="middle"),
    "double_click": partial(pointing.click, times=2),
    "triple_click": partial(pointing.click, times=3),
    "hover": pointing.hover,
    "left_click_drag": pointing.drag,
    "left_mouse_down": pointing.press,
    "left_mouse_up": pointing.let_go,
    "mouse_move": pointing.move,
    "scroll": pointing.scroll,
    "scroll_to": pointing.scroll_to,
    "type": pressing.type_text,
    "key": pressing.key,
    "hold_key": pressing.hold_key,
    "form_input": forms.form_input,
    "file_upload": forms.file_upload,
    "read_page": reading.read_page,
    "find": reading.find,
    "get_page_text": reading.get_page_text,
    "read_console": reading.read_console,
    "read_network": reading.read_network,
    "javascript_exec": reading.javascript_exec,
    "wait": _wait,
}
"""Each gives its text, or nothing where it is acknowledged. Raises ToolError, and Error."""
