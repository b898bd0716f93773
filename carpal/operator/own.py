"""An operator's own identity: renewed when a command is run past its half-life.

The command goes on whether or not that works: what is still valid is used.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from carpal.errors import CarpalError
from carpal.operator.screen import notice
from carpal.own_identity import kept_renewed, through_vault
from carpal.renewal import due, utc_now
from carpal.tls import IdentityFiles

_ANSWER = 3.0
"""Seconds that a command waits for the vault before it does without."""
_WARN = timedelta(hours=2)
"""With less left than this, a renewal that fails is worth a line."""
_tried: set[Path] = set()
"""Once a command is enough."""


@asynccontextmanager
async def renewed(files: IdentityFiles, vault: str) -> AsyncIterator[None]:
    """Around what a command does: renew first if it is time, and again if it lasts that long.

    `vault` is `host:port`, or empty when it is not known.
    """
    if not vault or files.identity().expired(utc_now()):
        yield  # nothing can be done, or it is too late: dialling says so
        return
    renewal = through_vault(files, vault, _ANSWER)
    if due(files.identity(), utc_now(), 0.0):
        async with kept_renewed(renewal):
            yield
        return
    if files.directory not in _tried:
        _tried.add(files.directory)
        try:
            await renewal.renew()
        except (CarpalError, OSError) as error:
            end = files.identity().not_after
            if end - utc_now() < _WARN:
                notice(f"your identity ends at {end:%F %T} UTC and was not renewed: {error}")
    yield
