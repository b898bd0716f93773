"""The hand type `android`, as any hand type in Python is written: see `hands/api.py`.

One hand has one phone, which is a unit: it is plugged in, and stays what it is. Each step goes by
`adb`. A phone that does not answer fails the call; one that does not three times in a row loses its
hand, and is looked at by a reset.
"""

import asyncio
import importlib.util
from collections.abc import Awaitable, Sequence
from typing import Annotated, NoReturn, TypeVar

from hands import computer
from hands.android import adb, keys, said, typed
from hands.android.adb import Unreachable
from hands.android.phone import COMMAND_LIMIT, Phone
from hands.api import Context, HandLost, HandType, ToolError, Unit, tool
from hands.pictures.fitting import INSTALL

_T = TypeVar("_T")

MISSES = 3
"""Calls in a row that a phone may leave unanswered."""
NOTCHES = 10
"""Of `scroll_amount`, the height or the width of the screen."""
AMOUNT_MAX = 50
_SWIPE = 400
"""Milliseconds: slow enough for what is scrolled not to fly on far."""
_ONE_SWIPE = 6
"""Notches that one finger moves at most: near an edge it would mean something else."""
_EDGE = 0.1
_PRESS_MAX = 10_000
_KEY_SECONDS = 0.3
"""That a key takes at most to be pressed, on an old phone."""
_CHARACTER_SECONDS = 0.05
_STEP_SECONDS = 0.5
_TYPING = 240.0
"""Seconds for a text: more than the longest in the most steps may take."""
_LAUNCH_LIMIT = 30.0
_PHONES_MAX = 256


class Android(HandType):
    """An Android phone or tablet by adb: a screen to look at, to touch and to type on."""

    capabilities = ("visual",)
    _misses = 0
    _usage: str | None = None

    @classmethod
    def probe(cls) -> str:
        if not adb.program():
            return adb.INSTALL
        if importlib.util.find_spec("PIL") is None:
            return f"Pillow, which scales screenshots, is not installed: {INSTALL}"
        return ""

    @classmethod
    async def units(cls) -> Sequence[Unit]:
        if not adb.program():
            return []  # the probe says it
        found = await adb.states()
        if len(found) > _PHONES_MAX:  # no daemon names more, and each is asked by a process
            raise Unreachable(f"adb names {len(found)} phones, more than {_PHONES_MAX}")
        labels = await asyncio.gather(*(Phone(each).labels(found[each]) for each in found))
        return [Unit(said.unit_id(each["serial"]), each) for each in labels]

    @classmethod
    async def reset(cls, unit_id: str) -> None:
        await Phone(said.serial_of(unit_id)).reset()

    async def provision(self, context: Context) -> str:
        self._phone = Phone(said.serial_of(context.unit))
        self._seen = await self._phone.shot()
        about = await self._phone.labels(said.READY)
        name = " ".join(filter(None, (about.get("manufacturer"), about.get("model"))))
        return (
            f"A phone: {name or 'Android'} ({self._phone.serial}), Android "
            f"{about.get('version', 'of an unknown version')}, on its home screen. Screenshots are "
            f"{self._size} pixels, and coordinates are those of the last one. A black one may be "
            "of a screen that sleeps: press the key WakeUp."
        )

    @tool()
    async def screenshot(self, context: Context) -> str:
        """Take a screenshot of the screen. Coordinates of other tools are those of the last one."""
        self._seen = await self._reached(self._phone.shot())
        data, media_type = await self._seen.whole()
        context.attach(data, media_type, _file("screenshot", media_type))
        return f"The screen, {self._size} pixels."

    @tool()
    async def zoom(self, region: computer.Region, context: Context) -> str:
        """Take a screenshot of a rectangular region of the last screenshot, scaled up."""
        box = computer.box(region, *self._seen_size)
        now = await self._reached(self._phone.shot())
        if now.fit != self._seen.fit:
            raise ToolError("the screen was turned since the last screenshot: take one first")
        data, media_type, size = await now.part(box)
        context.attach(data, media_type, _file("zoom", media_type))
        return f"That part of the screen, {size.width}x{size.height} pixels."

    @tool()
    async def left_click(
        self,
        coordinate: computer.Coordinate | None = None,
        text: computer.Modifiers | None = None,
    ) -> str:
        """Tap the screen at a coordinate."""
        x, y = self._touched(coordinate, text)
        await self._shell(f"input tap {x} {y}")
        return computer.CLICKED

    @tool()
    async def double_click(
        self,
        coordinate: computer.Coordinate | None = None,
        text: computer.Modifiers | None = None,
    ) -> str:
        """Tap the screen twice at a coordinate, quickly."""
        x, y = self._touched(coordinate, text)
        await self._shell(f"input tap {x} {y} && input tap {x} {y}")
        return computer.DOUBLE_CLICKED

    @tool()
    async def long_press(
        self,
        coordinate: computer.Coordinate,
        milliseconds: Annotated[int, "How long, 300 to 10000; 1000 without it."] = 1000,
    ) -> str:
        """Touch the screen at a coordinate and hold, as for a menu of what is there."""
        computer.within("milliseconds", milliseconds, 300, _PRESS_MAX)
        x, y = self._touched(coordinate)
        await self._shell(f"input swipe {x} {y} {x} {y} {milliseconds}")
        return "Long-pressed."

    @tool()
    async def left_click_drag(
        self,
        start_coordinate: computer.Coordinate,
        coordinate: computer.Coordinate,
        text: computer.Modifiers | None = None,
    ) -> str:
        """Swipe with one finger from a coordinate to another."""
        x, y = self._touched(start_coordinate, text, "start_coordinate")
        to_x, to_y = self._touched(coordinate)
        await self._shell(f"input swipe {x} {y} {to_x} {to_y} {_SWIPE}")
        return computer.DRAGGED

    @tool()
    async def scroll(
        self,
        scroll_direction: computer.ScrollDirection,
        scroll_amount: computer.ScrollAmount,
        coordinate: computer.Coordinate | None = None,
        text: computer.Modifiers | None = None,
    ) -> str:
        """Scroll what is at a coordinate, or in the middle, by swipes: 10 are a whole screen.

        "down" shows what is further down: the finger moves up.
        """
        computer.within("scroll_amount", scroll_amount, 1, AMOUNT_MAX)
        width, height = self._seen_size
        middle = coordinate if coordinate is not None else [width // 2, height // 2]
        x, y = self._touched(middle, text)
        swipes = [
            self._swipe(x, y, scroll_direction, min(_ONE_SWIPE, scroll_amount - begin))
            for begin in range(0, scroll_amount, _ONE_SWIPE)
        ]
        await self._shell(" && ".join(swipes), COMMAND_LIMIT + 2 * len(swipes))
        return computer.scrolled(scroll_direction)

    @tool(time_limit=_TYPING)
    async def type(self, text: computer.Typed) -> str:
        """Type text into what has the focus: ASCII alone. A new line is the key Return."""
        steps = typed.steps(text)
        limit = COMMAND_LIMIT + _CHARACTER_SECONDS * len(text) + _STEP_SECONDS * len(steps)
        await self._shell(" && ".join(steps), limit)
        return computer.TYPED

    @tool()
    async def key(self, text: computer.Keys, repeat: computer.Repeat | None = None) -> str:
        """Press a key or key-combination, such as "Back", "Home", "Return" or "ctrl+a"."""
        codes, times = keys.codes(text), computer.times(repeat)
        if len(codes) == 1:
            command = f"input keyevent {' '.join(codes * times)}"
        else:
            await self._needs("keycombination", "presses no combinations")
            command = " && ".join([f"input keycombination {' '.join(codes)}"] * times)
        await self._shell(command, COMMAND_LIMIT + _KEY_SECONDS * times)
        return computer.pressed(text)

    @tool()
    async def hold_key(self, text: computer.HeldKeys, duration: computer.HoldSeconds) -> str:
        """Hold down a key or key-combination for a specified duration."""
        codes, seconds = keys.codes(text), computer.seconds(duration)
        if len(codes) == 1:
            await self._needs("--duration", "holds no key for a given time")
            command = f"input keyevent --duration {seconds * 1000} {codes[0]}"
        else:
            await self._needs("keycombination", "presses no combinations")
            command = f"input keycombination -t {seconds * 1000} {' '.join(codes)}"
        await self._shell(command, COMMAND_LIMIT + seconds)
        return computer.held(text, duration)

    @tool()
    async def wait(self, duration: computer.WaitSeconds) -> str:
        """Wait for a specified duration."""
        await asyncio.sleep(computer.seconds(duration))
        return computer.waited(duration)

    @tool()
    async def list_apps(self) -> str:
        """The apps that can be launched, by their packages."""
        return "\n".join(sorted(await self._reached(self._phone.apps())))

    @tool()
    async def launch(
        self, app: Annotated[str, "A package, such as com.android.settings; see list_apps."]
    ) -> str:
        """Launch an app, or bring it to the front."""
        there = await self._reached(self._phone.apps())
        if app not in there:
            raise ToolError(f"there is no app {app[:100]!r} to launch: list_apps names all")
        answer = await self._shell(f"am start -W -n '{there[app]}'", _LAUNCH_LIMIT)
        if b"Status: ok" in answer:
            return f"Launched {app}."
        if b"Status: timeout" in answer:
            return f"Launched {app}, which shows nothing of its own yet."
        raise ToolError(f"{app} was not launched: {said.line(answer) or 'no reason given'}")

    @tool()
    async def back(self) -> str:
        """Press the phone's key Back."""
        await self._shell("input keyevent KEYCODE_BACK")
        return "Went back."

    # What they share.

    @property
    def _seen_size(self) -> tuple[int, int]:
        return self._seen.fit.width, self._seen.fit.height

    @property
    def _size(self) -> str:
        return "{}x{}".format(*self._seen_size)

    def _touched(
        self, coordinate: Sequence[int] | None, text: str | None = None, field: str = "coordinate"
    ) -> tuple[int, int]:
        """The phone's pixel of a place of the last screenshot. Raises ToolError."""
        if text:
            raise ToolError("text: no key can be held while a phone is touched; leave it out")
        if coordinate is None:
            raise ToolError(f"{field}: say where; a phone has no pointer")
        return self._seen.fit.back(*computer.point(field, coordinate, *self._seen_size))

    def _swipe(self, x: int, y: int, direction: computer.Direction, notches: int) -> str:
        """A finger's way around a pixel, as far as it stays off the edges."""
        one = self._seen.fit
        across = direction in ("left", "right")
        length, at = (one.of_width, x) if across else (one.of_height, y)
        half = length * notches // NOTCHES // 2
        least, most = round(length * _EDGE), round(length * (1 - _EDGE))
        at = max(least + half, min(most - half, at))
        low, high = at - half, at + half
        begin, end = (high, low) if direction in ("down", "right") else (low, high)
        way = (begin, y, end, y) if across else (x, begin, x, end)
        return f"input swipe {' '.join(map(str, way))} {_SWIPE}"

    async def _needs(self, option: str, lacks: str) -> None:
        """Raises ToolError when the phone's `input` does not say that it knows an option."""
        usage = self._usage or said.text(await self._shell("input 2>&1; true"))
        if "keyevent" not in usage:
            raise ToolError(f"the phone does not say what its `input` knows: {usage[:200]!r}")
        self._usage = usage
        if option not in usage:
            raise ToolError(f"this phone's Android is too old: by adb it {lacks}")

    async def _shell(self, command: str, limit: float = COMMAND_LIMIT) -> bytes:
        return await self._reached(self._phone.shell(command, limit))

    async def _reached(self, doing: Awaitable[_T]) -> _T:
        """What that gives. One time too often unanswered, the hand is lost."""
        try:
            given = await doing
        except Unreachable as error:
            self._missed(error)
        self._misses = 0
        return given

    def _missed(self, error: Unreachable) -> NoReturn:
        self._misses += 1
        if self._misses >= MISSES:
            times = f"the phone {self._phone.serial} did not answer {MISSES} times in a row"
            raise HandLost(f"{times}; the last time: {error}") from error
        raise ToolError(
            f"{error}. What was asked may have happened: a screenshot shows it, once the phone "
            f"answers. {MISSES - self._misses} more times, and the hand is given up"
        ) from error


def _file(name: str, media_type: str) -> str:
    return f"{name}.{media_type.removeprefix('image/')}"
