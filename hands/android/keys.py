"""Keys by the names that models write, as Android numbers them by name. Pure."""

from collections.abc import Mapping
from string import ascii_lowercase, digits

from hands.api import ToolError

_KEYS: Mapping[str, str] = {
    **{each: each.upper() for each in ascii_lowercase + digits},
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
    # A phone's own.
    "back": "BACK",
    "home": "HOME",
    "appswitch": "APP_SWITCH",
    "app_switch": "APP_SWITCH",
    "recents": "APP_SWITCH",
    "menu": "MENU",
    "search": "SEARCH",
    "power": "POWER",
    "wakeup": "WAKEUP",
    "sleep": "SLEEP",
    "camera": "CAMERA",
    "volumeup": "VOLUME_UP",
    "volumedown": "VOLUME_DOWN",
    "volume_up": "VOLUME_UP",
    "volume_down": "VOLUME_DOWN",
    "mute": "VOLUME_MUTE",
    "playpause": "MEDIA_PLAY_PAUSE",
    "notifications": "NOTIFICATION",
    # A keyboard's.
    "return": "ENTER",
    "enter": "ENTER",
    "kp_enter": "NUMPAD_ENTER",
    "tab": "TAB",
    "space": "SPACE",
    "backspace": "DEL",
    "delete": "FORWARD_DEL",
    "del": "FORWARD_DEL",
    "insert": "INSERT",
    "escape": "ESCAPE",
    "esc": "ESCAPE",
    "up": "DPAD_UP",
    "down": "DPAD_DOWN",
    "left": "DPAD_LEFT",
    "right": "DPAD_RIGHT",
    "movehome": "MOVE_HOME",
    "end": "MOVE_END",
    "page_up": "PAGE_UP",
    "pageup": "PAGE_UP",
    "prior": "PAGE_UP",
    "page_down": "PAGE_DOWN",
    "pagedown": "PAGE_DOWN",
    "next": "PAGE_DOWN",
    "plus": "PLUS",
    "minus": "MINUS",
    "equal": "EQUALS",
    "comma": "COMMA",
    "period": "PERIOD",
    "slash": "SLASH",
    "at": "AT",
    "ctrl": "CTRL_LEFT",
    "control": "CTRL_LEFT",
    "shift": "SHIFT_LEFT",
    "alt": "ALT_LEFT",
    "cmd": "META_LEFT",
    "super": "META_LEFT",
    "meta": "META_LEFT",
}
"""In lower case. `home` is the phone's; a keyboard's, which goes to a line's begin, `movehome`."""


def codes(text: str) -> list[str]:
    """What a key, or a combination with `+`, is for Android. Raises ToolError."""
    found = []
    for name in text.split("+"):
        code = _KEYS.get(name.strip().lower())
        if code is None:
            raise ToolError(
                f"text: there is no key {name.strip()[:40]!r}; there are Back, Home, AppSwitch, "
                "Power, WakeUp, VolumeUp, VolumeDown, Return, BackSpace, Delete, Tab, Escape, Up, "
                "Down, Left, Right, MoveHome, End, Page_Up, Page_Down, letters, digits, F1 to F12, "
                "and combinations such as ctrl+a; use type for text"
            )
        if f"KEYCODE_{code}" not in found:
            found.append(f"KEYCODE_{code}")
    return found
