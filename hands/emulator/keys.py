"""The console's buttons, and the names of keys that stand for them."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from hands.api import ToolError

Button = Literal["up", "down", "left", "right", "a", "b", "start", "select"]
BUTTONS: Sequence[Button] = get_args(Button)

_ALSO: Mapping[str, Button] = {
    **{f"arrow{each}": each for each in BUTTONS[:4]},
    **{f"arrow_{each}": each for each in BUTTONS[:4]},
    **{f"kp_{each}": each for each in BUTTONS[:4]},
    "return": "start",
    "enter": "start",
    "kp_enter": "start",
    "backspace": "select",
    "shift": "select",
    "shift_r": "select",
}
"""Other names, in lower case: a keyboard's, as emulators have them."""


WAIT = " "
"""A person's key that is no button, and lets time pass."""


def of_a_person(key: str) -> Button | None:
    """The button for a key of a person's keyboard, None for `WAIT`. Raises ToolError."""
    plain = key.lower()
    button = _ALSO.get(plain) or next((each for each in BUTTONS[:6] if each == plain), None)
    if button is None and key != WAIT:
        raise ToolError(
            f"there is no button for the key {key}; there are the arrows, a, b, Enter for start, "
            "Backspace for select, and the space bar lets half a second pass"
        )
    return button


def buttons(text: str) -> list[Button]:
    """Those that a key, or a combination with `+`, stands for. Raises ToolError, with all names."""
    found: list[Button] = []
    for name in text.split("+"):
        plain = name.strip().lower()
        button = _ALSO.get(plain) or next((each for each in BUTTONS if each == plain), None)
        if button is None:
            raise ToolError(
                f"text: there is no key {name.strip()!r}; there are Up, Down, Left, Right, a, b, "
                "start (also Return) and select (also BackSpace), and combinations such as Up+a"
            )
        if button not in found:
            found.append(button)
    return found
