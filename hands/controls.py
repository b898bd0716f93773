"""What the author of a hand with a screen reads besides `hands/api.py`: what people do there. Pure.

A class may have two methods more, each a method or an `async` one, which are no tools.

`def view(self) -> tuple[bytes, str]` gives how it looks now, as `image/png` or `image/jpeg` of at
most 2 MiB, while a person watches: at most five times a second, between calls and beside them. What
it raises the person is told.

`def control(self, event: Event) -> None` does what a person does who has control, which no call
meets: it comes once the call that ran has ended, and before the next begins. A place on the screen
is in pixels of the picture. Whatever is down when control ends is let go of, by events too, for
which all together there are five seconds.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Button = Literal["left", "middle", "right"]
Action = Literal["move", "down", "up"]
SIDE_MAX = 20_000
"""Pixels."""
DOWN_MAX = 32
"""Keys and buttons that are down at once: more than anybody has fingers."""
_KEY_MAX = 32
"""Characters of a key's name."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key goes down or up, by the name that web pages have for it: `a`, `A`, `ArrowUp`."""

    key: str
    down: bool
    repeat: bool = False
    """It is still down."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """The pointer is there now, and a button of it may have gone down or up."""

    x: int
    y: int
    action: Action = "move"
    button: Button = "left"


@dataclass(frozen=True, slots=True)
class Wheel:
    """The wheel was turned there, by so many pixels."""

    x: int
    y: int
    dx: int
    dy: int


Event = Key | Pointer | Wheel
_KINDS: Mapping[str, type[Key] | type[Pointer] | type[Wheel]] = {
    "key": Key,
    "pointer": Pointer,
    "wheel": Wheel,
}


def encoded(event: Event) -> bytes:
    """As JSON, of less than a kilobyte."""
    return json.dumps({"type": type(event).__name__.lower(), **asdict(event)}).encode()


def read(data: bytes) -> Event:
    """What `encoded` made. ValueError for anything else."""
    try:
        said = json.loads(data)
    except RecursionError:
        said = None
    return checked(said)


def checked(said: Any) -> Event:
    """The same of an object. ValueError for anything else, in words that tell nothing of it."""
    fields = dict(said) if isinstance(said, dict) else {}
    kind = _KINDS.get(str(fields.pop("type", "")))
    try:
        event = kind(**fields) if kind else None
    except TypeError:
        event = None
    if event is None or not _fits(event):
        raise ValueError(f"it is no event of the type {', '.join(_KINDS)}")
    return event


def _fits(event: Event) -> bool:
    if isinstance(event, Key):
        named = isinstance(event.key, str) and 0 < len(event.key) <= _KEY_MAX
        return named and event.key.isprintable() and type(event.down) is type(event.repeat) is bool
    if not (_within(event.x, 0) and _within(event.y, 0)):
        return False
    if isinstance(event, Wheel):
        return _within(event.dx, -SIDE_MAX) and _within(event.dy, -SIDE_MAX)
    return event.action in get_args(Action) and event.button in get_args(Button)


def _within(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= SIDE_MAX


class Downs:
    """Keys and buttons that are down."""

    def __init__(self) -> None:
        self._down: dict[str, Event] = {}

    def note(self, event: Event) -> None:
        """It is done. ValueError when too many would be down: then it must not be."""
        if isinstance(event, Key):
            name, down = f"key {event.key}", event.down
        elif isinstance(event, Pointer) and event.action != "move":
            name, down = f"button {event.button}", event.action == "down"
        else:
            return
        self._down.pop(name, None)
        if down and len(self._down) >= DOWN_MAX:
            raise ValueError(f"{DOWN_MAX} keys and buttons are down already: let go of one")
        if down:
            self._down[name] = event

    def ups(self) -> Iterator[Event]:
        """What lets go of them, the last first; then none is down."""
        while self._down:
            _, event = self._down.popitem()
            if isinstance(event, Key):
                yield Key(event.key, down=False)
            elif isinstance(event, Pointer):
                yield Pointer(event.x, event.y, "up", event.button)
