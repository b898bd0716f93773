"""Keys as models write them, as a browser knows them. Pure."""

_NAMES = {
    "return": "Enter",
    "enter": "Enter",
    "kp_enter": "Enter",
    "backspace": "Backspace",
    "delete": "Delete",
    "del": "Delete",
    "insert": "Insert",
    "escape": "Escape",
    "esc": "Escape",
    "tab": "Tab",
    "space": "Space",
    "up": "ArrowUp",
    "down": "ArrowDown",
    "left": "ArrowLeft",
    "right": "ArrowRight",
    "arrowup": "ArrowUp",
    "arrowdown": "ArrowDown",
    "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight",
    "home": "Home",
    "end": "End",
    "pageup": "PageUp",
    "page_up": "PageUp",
    "prior": "PageUp",
    "pagedown": "PageDown",
    "page_down": "PageDown",
    "next": "PageDown",
    "plus": "+",
    "minus": "-",
    "equal": "=",
    "comma": ",",
    "period": ".",
    "slash": "/",
    "capslock": "CapsLock",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}
MODIFIERS = {
    "ctrl": "Control",
    "control": "Control",
    "control_l": "Control",
    "shift": "Shift",
    "shift_l": "Shift",
    "alt": "Alt",
    "alt_l": "Alt",
    "option": "Alt",
    # On this system's keyboards what a Mac does by cmd is done by Control.
    "cmd": "Control",
    "command": "Control",
    "super": "Meta",
    "meta": "Meta",
    "win": "Meta",
}
PRESSES_MAX = 200


def presses(text: str) -> list[list[str]]:
    """Each press of a text, as the keys held down in turn. ValueError names what is no key."""
    chords = [chord(each) for each in text.split(" ") if each] or [chord(text)]
    if len(chords) > PRESSES_MAX:
        raise ValueError(f"{len(chords)} presses are more than {PRESSES_MAX}; use type for text")
    return chords


def chord(text: str) -> list[str]:
    """The keys of one chord, as `ctrl+shift+a`, the last of them the one that is pressed."""
    if not text.strip():
        return ["Space"]
    parts = [*text[:-1].split("+"), "+"] if text.endswith("+") else text.split("+")
    if len(parts) > 1 and parts[-1] == "+" and parts[-2] == "":
        del parts[-2]
    return [_key(each, text) for each in parts]


def modifiers(text: str) -> list[str]:
    """The modifiers of a chord of nothing else. ValueError names what is none."""
    found = []
    for each in text.split("+"):
        if each.strip().lower() not in MODIFIERS:
            raise ValueError(f"{each!r} is no modifier: ctrl, shift, alt, cmd")
        found.append(MODIFIERS[each.strip().lower()])
    return found


def _key(name: str, of: str) -> str:
    low = name.lower()
    if low in MODIFIERS:
        return MODIFIERS[low]
    if low in _NAMES:
        return _NAMES[low]
    if len(name) == 1:
        return name
    raise ValueError(f"{name!r} of {of!r} is no key: use names as Return, Tab, Escape, ctrl+a")
