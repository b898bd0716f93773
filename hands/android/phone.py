"""One phone by adb: its commands, its screen, what can be launched, and how it is put in order."""

import asyncio
import contextlib
from shlex import quote

from hands.android import adb, said, screen
from hands.android.adb import Unreachable
from hands.android.said import READY
from hands.android.screen import Shot
from hands.api import ToolError

COMMAND_LIMIT = 10.0
"""Seconds for a command of which nothing else is known: an old phone needs one to begin."""
_SHOT_LIMIT = 12.0
_LABELS_LIMIT = 3.0
_COMES_LIMIT = 10.0
"""Seconds for a phone that is not there to come back: on a bad cable one comes and goes."""
_STOP_LIMIT = 40.0
_AT_ONCE = 50
"""Apps that are stopped by one command."""
RESET_LIMIT = 52.0
"""Seconds for all of a reset, less than the daemon waits."""
_APPS = (
    "cmd package query-activities --brief -a android.intent.action.MAIN"
    " -c android.intent.category.LAUNCHER"
)
_HOME = "input keyevent KEYCODE_WAKEUP; wm dismiss-keyguard; input keyevent KEYCODE_HOME"


class Phone:
    """One, by its serial."""

    def __init__(self, serial: str) -> None:
        self.serial = serial

    async def shell(self, command: str, limit: float = COMMAND_LIMIT) -> bytes:
        """What a command in the phone's shell says. What is in it must be quoted for that.

        Raises Unreachable when the phone did not take it, or may have; ToolError when it failed.
        """
        ran = await adb.run("-s", self.serial, "shell", command, limit=limit)
        if ran.code:
            await self._check()
            if why := said.cut_off(ran.code, ran.out, ran.err):
                raise Unreachable(f"adb: {why}")
            why = said.line(ran.err or ran.out) or f"exit code {ran.code}"
            raise ToolError(f"the phone failed at it, and may have done a part: {why}")
        return ran.out

    async def shot(self) -> Shot:
        """Its screen as it is. Raises Unreachable, and ToolError when there is no picture."""
        arguments = ("-s", self.serial, "exec-out", "screencap -p")
        ran = await adb.run(*arguments, limit=_SHOT_LIMIT, most=screen.BYTES_TAKEN)
        if ran.code or not ran.out:
            await self._check()
            raise ToolError(f"the phone made no screenshot: {said.line(ran.err or ran.out)}")
        return screen.read(ran.out)

    async def apps(self) -> dict[str, str]:
        """What can be launched: package → activity. Raises Unreachable, ToolError."""
        found = said.apps(await self.shell(_APPS))
        if not found:
            raise ToolError("the phone names no app that can be launched; Android 8 and newer do")
        return found

    async def labels(self, state: str) -> dict[str, str]:
        """What a config may ask for; of a phone that does not answer, what is known without it."""
        told = b""
        if state == READY:
            with contextlib.suppress(Unreachable):  # its reset will say so
                arguments = ("-s", self.serial, "shell", "getprop")
                told = (await adb.run(*arguments, limit=_LABELS_LIMIT)).out
        return said.labels(self.serial, state, said.properties(told))

    async def reset(self) -> None:
        """End what runs, and go home; nothing is wiped. Raises ToolError, with why it is not so."""
        try:
            async with asyncio.timeout(RESET_LIMIT):
                await self._reset()
        except TimeoutError:
            raise Unreachable(
                f"the phone {self.serial} was not reset within {RESET_LIMIT:g} s: restart it"
            ) from None

    async def _reset(self) -> None:
        if (await adb.states()).get(self.serial, "") in said.MAY_COME:
            with contextlib.suppress(Unreachable):  # what comes next says why
                await adb.run("-s", self.serial, "wait-for-device", limit=_COMES_LIMIT)
        told = await self.shell(
            f"echo =$(getprop sys.boot_completed); pm list packages -3; {_APPS}"
        )
        if b"=1" not in told.split():
            raise ToolError(f"the phone {self.serial} is still starting: try again in a minute")
        stops = [
            f"am force-stop {quote(each)}"
            for each in sorted({*said.packages(told), *said.apps(told)})
        ]
        # In parts: a line for the phone's shell may not grow with what is installed.
        while len(stops) > _AT_ONCE:
            await self.shell("; ".join(stops[:_AT_ONCE]), _STOP_LIMIT)
            del stops[:_AT_ONCE]
        await self.shell("; ".join((*stops, _HOME)), _STOP_LIMIT)

    async def _check(self) -> None:
        """Raises Unreachable when the phone takes no calls now."""
        state = (await adb.states()).get(self.serial, "")
        if state != READY:
            raise Unreachable(said.why(self.serial, state))
