"""Telling a service manager how this process stands: systemd's notify protocol, a few lines of it.

One datagram a word to the socket that NOTIFY_SOCKET names. A process that has no manager says
nothing.
"""

import logging
import os
import socket
import time
from collections.abc import MutableMapping

log = logging.getLogger(__name__)

READY = "READY=1"
STOPPING = "STOPPING=1"
WATCHDOG = "WATCHDOG=1"


class Notify:
    """The way to whoever started this process."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Takes what it reads out of `environ`: no child is to speak for this process."""
        self._address = environ.pop("NOTIFY_SOCKET", "")
        microseconds = environ.pop("WATCHDOG_USEC", "")
        for_whom = environ.pop("WATCHDOG_PID", str(os.getpid()))
        mine = microseconds.isdecimal() and for_whom == str(os.getpid())
        self.watchdog = int(microseconds) / 1e6 if mine and self._address else 0.0
        """Seconds within which it must be told `WATCHDOG`, again and again; 0 for never."""

    def tell(self, *words: str) -> None:
        """Say these words. What cannot be said is logged, and costs nothing else."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                # Not waited for: one that does not read must not hold up the event loop.
                manager.sendto("\n".join(words).encode(), socket.MSG_DONTWAIT, address)
        except OSError as error:
            log.warning("the service manager is not told", extra={"why": str(error)})

    def status(self, text: str) -> None:
        """A line for people, as `systemctl status` shows it."""
        self.tell("STATUS=" + " ".join(text.split()))

    def reloading(self) -> None:
        """It reads its settings anew; `READY` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
