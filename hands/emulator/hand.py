"""The hand type `emulator`, as any hand type in Python is written: see `hands/api.py`.

One hand is one console with one cartridge. Time passes in calls, sixty frames a second of its
own, and between them it stands still, however long a model thinks; but for the keys of a person
who has control.
"""

import asyncio
import errno
import importlib.util
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from carpal import extras
from hands import attachments, computer, controls
from hands.api import Blob, Context, HandType, ToolError, tool
from hands.emulator import screen, states
from hands.emulator.keys import Button, buttons, of_a_person

if TYPE_CHECKING:
    from hands.emulator.machine import Machine

CARTRIDGE = "cartridge.gb"
"""Where it is mounted unless the config says otherwise."""
TAP, LET_GO = 6, 6
"""Frames that a key is down when it is pressed, and then up: games look once a frame or two."""
FRAMES_PER_SECOND = 60
STILL_DOWN, PAUSE = 2, 30
"""Frames that pass when a person's keyboard says that a key is still down, and for `WAIT`."""
_FRAMES_MAX = 6000
_LOCKED = 60.0
"""Seconds after which a console is taken to be locked up: most calls take less than one."""
_AT_ONCE = 30
"""Frames, some milliseconds."""
_MEMORY, _LENGTH_MAX = 0x10000, 4096
_ROW = 16
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Emulator(HandType):
    """A Game Boy with a cartridge. Its time passes inside calls alone, 60 frames a second."""

    capabilities = ("visual", "mounts")
    _machine: "Machine | None" = None
    _why = ""

    @classmethod
    def probe(cls) -> str:
        for package in ("pyboy", "PIL"):
            if importlib.util.find_spec(package) is None:
                return f"PyBoy is not installed: {extras.how('emulator')}"
        return ""

    def provision(
        self,
        context: Context,
        cartridge: Annotated[
            str, "Where the cartridge is mounted; or, from / on, a file of the daemon's machine."
        ] = CARTRIDGE,
    ) -> str:
        if why := self.probe():
            raise ToolError(why)
        self._folder = context.folder
        # What is mounted may hold symlinks to anywhere: nothing is written where it is.
        self._states = context.own / "states"
        self._file = Path(cartridge)
        mounted = not self._file.is_absolute()
        if mounted:
            self._file = self._mounted(cartridge)
        about = (
            "Time stands still between calls. Screenshots are "
            f"{screen.SIZE[0]}x{screen.SIZE[1]} pixels. Keys: Up, Down, Left, Right, a, b, start, "
            "select; press takes them in lower case."
        )
        if mounted:  # what is mounted comes after this
            return f"A Game Boy with the cartridge {cartridge}. {about}"
        return f"A Game Boy with the cartridge {self._console.title!r}. {about}"

    @tool()
    def screenshot(self, context: Context) -> str:
        """Take a screenshot of the screen. No time passes."""
        context.attach(screen.whole(self._console.picture), "image/png", "screenshot.png")
        return f"The screen, {screen.SIZE[0]}x{screen.SIZE[1]} pixels, at {self._now}."

    @tool()
    def zoom(self, region: computer.Region, context: Context) -> str:
        """Take a screenshot of a rectangular region, scaled up. No time passes.

        Region coordinates are those of a screenshot.
        """
        box = computer.box(region, *screen.SIZE)
        data, size = screen.part(self._console.picture, box)
        context.attach(data, "image/png", "zoom.png")
        return f"That part of the screen, {size[0]}x{size[1]} pixels, at {self._now}."

    @tool(time_limit=_LOCKED)
    async def key(self, text: computer.Keys, repeat: computer.Repeat | None = None) -> str:
        """Press a key or key-combination, such as "a", "Up", "start" or "Right+b".

        It is down for 6 frames, then up for 6, each time.
        """
        pressed, times = buttons(text), computer.times(repeat)
        for _ in range(times):
            await self._hold(pressed, TAP)
            await self._run(LET_GO)
        return self._told(computer.pressed(text))

    @tool(time_limit=_LOCKED)
    async def hold_key(self, text: computer.HeldKeys, duration: computer.HoldSeconds) -> str:
        """Hold down a key or key-combination for a specified duration, of 60 frames a second."""
        pressed, seconds = buttons(text), computer.seconds(duration)
        await self._hold(pressed, FRAMES_PER_SECOND * seconds)
        await self._run(1)
        return self._told(computer.held(text, duration))

    @tool(time_limit=_LOCKED)
    async def wait(self, duration: computer.WaitSeconds) -> str:
        """Wait for a specified duration: let the game go on, 60 frames a second."""
        await self._run(FRAMES_PER_SECOND * computer.seconds(duration))
        return self._told(computer.waited(duration))

    @tool(time_limit=_LOCKED)
    async def press(
        self,
        buttons: Annotated[list[Button], "Held down together; none lets time pass."],
        frames: Annotated[int, "For so many frames, 1 to 6000; 60 are a second."],
    ) -> str:
        """Hold buttons down for an exact number of frames, then let go. No other frame passes."""
        computer.within("frames", frames, 1, _FRAMES_MAX)
        pressed = list(dict.fromkeys(buttons))
        await self._hold(pressed, frames)
        return self._told(f"Pressed {'+'.join(pressed) or 'nothing'} for {frames} frames.")

    @tool()
    def save_state(self, context: Context) -> str:
        """Save the whole state of the game, to go on from there by load_state. No time passes."""
        data = states.packed(self._console.save())
        context.attach(data, states.MEDIA_TYPE, f"frame-{self._console.frame}.state")
        digest = context.attached[-1].digest
        self._states.mkdir(mode=0o700, exist_ok=True)
        (self._states / digest).write_bytes(data)
        return f"Saved the state at {self._now}: {digest}"

    @tool()
    def load_state(
        self,
        state: Annotated[Blob, "What save_state named, or the path of a mounted state."],
        context: Context,
    ) -> str:
        """Go on from a saved state, of this session or of one that it was forked from."""
        if _DIGEST.fullmatch(state):
            own = self._states / state
            data = own.read_bytes() if own.is_file() else _given(context, state)
        else:
            data = self._read(self._mounted(state), states.SIZE_MAX, "state")
        self._console.load(states.unpacked(data))
        return f"Loaded the state. It is {self._now}."

    @tool()
    def read_memory(
        self,
        address: Annotated[int, "0 to 65535; work RAM begins at 49152 (0xC000)."],
        length: Annotated[int, "Bytes, 1 to 4096."] = 1,
    ) -> str:
        """Read the console's memory, as its processor sees it. No time passes."""
        computer.within("address", address, 0, _MEMORY - 1)
        computer.within("length", length, 1, min(_LENGTH_MAX, _MEMORY - address))
        data = self._console.memory(address, length)
        rows = range(0, length, _ROW)
        return "\n".join(f"{address + at:04X}: {data[at : at + _ROW].hex(' ')}" for at in rows)

    def view(self) -> tuple[bytes, str]:
        """The screen, for a person. No time passes."""
        return screen.native(self._switched_on.picture), "image/png"

    def control(self, event: controls.Event) -> None:
        """A key of a person who has control. Time passes by their keys alone."""
        if not isinstance(event, controls.Key):
            return  # a pointer has nothing to point at
        console, button = self._switched_on, of_a_person(event.key)
        if button is None:
            console.run((STILL_DOWN if event.repeat else PAUSE) if event.down else 0)
        elif not event.down:
            console.let_go(button)
            console.run(LET_GO)
        else:
            console.hold(button)
            console.run(STILL_DOWN if event.repeat else TAP)

    @property
    def _switched_on(self) -> "Machine":
        if self._machine is None:
            raise ToolError("the console is off: the first call switches it on")
        return self._machine

    def release(self) -> None:
        if self._machine is not None:
            self._machine.stop()

    async def _hold(self, pressed: Sequence[Button], frames: int) -> None:
        with self._console.down(pressed):
            await self._run(frames)

    async def _run(self, frames: int) -> None:
        # PyBoy is C that lets no exception through: what is cancelled ends between two of these.
        for begin in range(0, frames, _AT_ONCE):
            self._console.run(min(_AT_ONCE, frames - begin))
            await asyncio.sleep(0)

    @property
    def _console(self) -> "Machine":
        """Switched on by the first call: only then what is mounted is there."""
        if self._machine is None:
            from hands.emulator.machine import CARTRIDGE_MAX, Machine

            data = self._read(self._file, CARTRIDGE_MAX, "cartridge")
            try:
                self._machine = Machine(data)
            except ToolError as error:
                raise ToolError(f"{self._file.name}: {error}") from None
        return self._machine

    def _mounted(self, path: str) -> Path:
        """Raises ToolError for a path that leads out of the hand's folder."""
        if path.startswith("/") or ".." in Path(path).parts:
            raise ToolError(f"{path!r} is no path of what is mounted: it leads out of the folder")
        return self._folder / path

    def _read(self, path: Path, most: int, what: str) -> bytes:
        """A file that is one, and not too large. Raises ToolError."""
        try:
            with os.fdopen(self._open(path), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise ToolError(f"{path.name} is no file, so no {what}")
                data = file.read(most + 1)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EXDEV):
                why = f"{path.name} is, or is behind, a symlink, and none is followed"
                raise ToolError(f"{why}: name the {what} itself") from None
            why = f"there is no {what} {path.name}: {error.strerror}"
            if (
                what == "cartridge"
                and error.errno == errno.ENOENT
                and path.is_relative_to(self._folder)
            ):
                named = path.relative_to(self._folder)
                why += f"; mount one into a session: carpal run --mount HAND:{named}=FILE"
            raise ToolError(why) from None
        if len(data) > most:
            raise ToolError(f"{path.name} has more than {most} bytes, so it is no {what}")
        return data

    def _open(self, path: Path) -> int:
        # The owner allows a path by its folder, and a symlink there leads to any other.
        root = self._folder if path.is_relative_to(self._folder) else Path("/")
        return attachments.mounted(root, str(path.relative_to(root)))

    @property
    def _now(self) -> str:
        return f"frame {self._console.frame}"

    def _told(self, what: str) -> str:
        return f"{what} It is {self._now}."


def _given(context: Context, digest: str) -> bytes:
    """A state of the session's log. Raises ToolError."""
    try:
        return context.blob(digest)
    except ToolError:
        raise ToolError(f"there is no state {digest}: name one that save_state gave") from None
