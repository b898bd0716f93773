"""A token from a program: kept until it is about to expire, never written anywhere.

The program is run without a shell, in a process group of its own, with a
bound on its time and its output. It prints the token alone, or a JSON object:
`token` (or `access_token`), and `expires_in` (seconds) or `expires_at`
(seconds since the epoch, or RFC 3339).
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

log = logging.getLogger(__name__)

OUTPUT_BYTES = 64 * 1024
"""Of what the program prints."""
_GONE = 5.0
"""Seconds in which the kernel ends what was killed."""
_MARGIN = 30.0
"""Seconds before its end from which a token is not used any more; a tenth of its life at most."""


class TokenError(Exception):
    """The program gave no token; the message never holds what it printed, nor where it is."""


class TokenCommand:
    """The newest token of one program; one run at a time, whoever asks."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        lasts: float = 300.0,
        timeout: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`lasts`: seconds a token is good when the program does not say; `timeout`: seconds."""
        self._command = list(command)
        self._lasts = lasts
        self._timeout = timeout
        self._clock = clock
        self._token = ""
        self._until = 0.0
        self._running = asyncio.Lock()

    async def token(self) -> str:
        """A token that is good now. Raises TokenError."""
        async with self._running:
            if not self._token or self._clock() >= self._until:
                try:
                    self._token, self._until = await self._run()
                except TokenError as error:
                    told = {"command": self._command[0], "error": str(error)}
                    log.warning("no token for a model", extra=told)
                    raise
            return self._token

    def refused(self, token: str) -> None:
        """It was not accepted: the next is asked for anew, unless it already was."""
        if token == self._token:
            self._token = ""

    async def _run(self) -> tuple[str, float]:
        asked = self._clock()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise TokenError(f"the token command: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._timeout):
                output = await _read(process)
                code = await process.wait()
        except TimeoutError:
            why = f"took more than {self._timeout:g} s"
            raise TokenError(f"the token command {why}") from None
        finally:
            await _end(process)
        if len(output) > OUTPUT_BYTES:
            raise TokenError(f"the token command printed more than {OUTPUT_BYTES} bytes")
        if code != 0:
            raise TokenError(f"the token command ended with {code}: run it by hand")
        token, life = _parse(output, self._lasts, asked)
        return token, asked + life - min(_MARGIN, life / 10)


async def _read(process: asyncio.subprocess.Process) -> bytes:
    """What it prints, up to a byte more than it may."""
    assert process.stdout is not None
    output = b""
    while len(output) <= OUTPUT_BYTES:
        part = await process.stdout.read(OUTPUT_BYTES + 1 - len(output))
        if not part:
            return output
        output += part
    _kill(process)
    return output


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it, with all it started, and see it gone."""
    _kill(process)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GONE):
            await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    """Its group is its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _parse(output: bytes, lasts: float, now: float) -> tuple[str, float]:
    """The token and the seconds it is good. Raises TokenError."""
    try:
        text = output.decode("ascii").strip()
    except UnicodeDecodeError:
        raise TokenError("the token command printed what is no token") from None
    life = lasts
    if text.startswith("{"):
        try:
            said = json.loads(text)
            text = str(said.get("token") or said.get("access_token") or "").strip()
            life = _life(said, lasts, now)
        except (ValueError, TypeError, OverflowError):
            raise TokenError("the token command printed JSON that is no token") from None
    if not text or any(not 0x21 <= ord(character) <= 0x7E for character in text):
        raise TokenError("the token command printed no token, or more than one word")
    if life <= 0:
        raise TokenError("the token command printed a token that has expired")
    return text, life


def _life(said: dict[str, Any], lasts: float, now: float) -> float:
    if (seconds := said.get("expires_in")) is not None:
        return float(seconds)
    at = said.get("expires_at")
    if at is None:
        return lasts
    try:
        return float(at) - now
    except ValueError:
        moment = datetime.fromisoformat(str(at))
        if moment.tzinfo is None:
            raise
        return moment.timestamp() - now
