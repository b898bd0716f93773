"""Taking the daemon off this machine: drained, stopped, revoked, removed; any step again.

What is done is said, and what could not be done too, with what somebody else must do then.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from carpal.config import SYSTEM_DIR
from carpal.errors import CarpalError, refuse
from carpal.proxy import Way
from carpal.status import Reason
from hands.app import HandConfig
from hands.enroll import Links, links_path
from hands.files import HandFiles, boot_id
from hands.inventory import open_inventory
from hands.journal import Journal
from hands.leaving import retire
from hands.life import folders
from hands.local import asking
from hands.local.waiting import hands_of, wait_for_none
from hands.systemd import unit
from hands.systemd.systemctl import Systemd
from hands.types import installed

_END = 30.0
"""Seconds for a daemon to end, beyond its `stop_wait`."""
Say = Callable[[str], None]


class Uninstall:
    """One machine's daemon, taken off."""

    def __init__(self, config: HandConfig, units: Path, systemd: Systemd, say: Say) -> None:
        self._config = config
        self._files = HandFiles(config.state_dir)
        self._units = units
        self._systemd = systemd
        self._say = say

    def run(self, limit: float, *, now: bool) -> None:
        """All of it. `limit` is the seconds that hands may take to end; with `now` they are ended.

        Raises UNAVAILABLE when there are hands left: the daemon is drained then, if one answers,
        and nothing is disabled or removed. Only one that holds the folder and does not answer is
        stopped before it is known whether there are any.
        """
        pid = self._running()
        self._drain(0.0 if now else limit, now=now)
        if pid is None and not now:
            self._check_unserved()
        self._stop(pid)
        if self._files.folder.exists():
            with self._files.only_process():
                asyncio.run(self._end_hands(now=now))
            self._revoke()
        self._remove()

    def _drain(self, limit: float, *, now: bool) -> None:
        folder = self._files.folder
        try:
            asking.ask(folder, "/drain", {"reason": "it is uninstalled"})
        except CarpalError as error:
            self._say(f"not drained: {error.message}")
            return
        self._say("drained: no new hands are taken")
        if now:
            return
        if not wait_for_none(lambda: hands_of(asking.ask(folder, "/hands")), limit):
            raise refuse(
                Reason.UNAVAILABLE,
                "hands are left, so nothing was removed",
                action="run it again later, or end them with --now; "
                "or keep the daemon: carpal hand drain --lift",
            )

    def _running(self) -> int | None:
        """The daemon's process; None when none answers."""
        try:
            pid = asking.pid(self._files.folder)
        except CarpalError:
            return None
        if not pid:
            raise refuse(
                Reason.UNAVAILABLE,
                "the daemon runs where its process is not to be seen, in a container say",
                action="stop it there, then run this again",
            )
        return pid

    def _check_unserved(self) -> None:
        if not self._files.folder.exists():
            return
        try:
            with self._files.only_process():
                self._check_none_left()
        except CarpalError as error:
            if error.reason is not Reason.CONFIG_INVALID:
                raise  # else a daemon begins or stands still: it is looked again once it is stopped

    def _check_none_left(self) -> None:
        """UNAVAILABLE when the journal has hands. The state folder is held."""
        if not self._files.journal.exists():
            return
        with closing(Journal(self._files.journal)) as journal:
            left = sum(row.state != "lost" for row in journal.hands())
        if left:
            raise refuse(
                Reason.UNAVAILABLE,
                f"{left} hands are left without a daemon, so nothing was removed",
                action="end them with --now, or start the daemon: their sessions go on",
            )

    def _stop(self, pid: int | None) -> None:
        if self._systemd.runs and (self._units / unit.NAME).exists():
            self._systemd.call("stop", unit.NAME)  # also one that is about to be started again
            self._say(f"stopped {unit.NAME}")
        if pid is None or not _is_there(pid):
            return
        os.kill(pid, signal.SIGTERM)
        ends = time.monotonic() + self._config.stop_wait + _END
        while _is_there(pid) and time.monotonic() < ends:
            time.sleep(0.1)
        if _is_there(pid):
            raise refuse(
                Reason.UNAVAILABLE,
                f"the daemon, process {pid}, did not end in {self._config.stop_wait + _END:g} s",
                action=f"see why in its log, or `kill -9 {pid}`; then run this again",
            )
        self._say(f"stopped the daemon that ran as process {pid}")

    async def _end_hands(self, *, now: bool) -> None:
        if not now:
            self._check_none_left()  # a daemon that did not answer may have left some
        if not self._files.journal.exists():
            return
        with closing(Journal(self._files.journal)) as journal:
            async with open_inventory(
                journal=journal,
                types=installed(self._config.sandbox, self._config.sockets),
                folder=self._files.hands,
                boot_id=boot_id(),
                hands_max=0,
            ) as inventory:
                for row in journal.hands():
                    await inventory.release(row)
                    self._say(f"ended hand {row.hand_id}")

    def _revoke(self) -> None:
        identity = self._files.identity
        if not identity.exists():
            self._say("no identity: nothing to revoke")
            return
        try:
            who = identity.load().identity.name
        except CarpalError as error:
            self._say(f"identity NOT revoked, it cannot be read: {error.message}")
            self._say("an operator can: carpal fleet revoke NAME")
            return
        try:
            address = Links.load(links_path(self._files.identity_dir)).enrollment
            asyncio.run(retire(self._files.identity_dir, address, Way(self._config.proxy)))
        except CarpalError as error:
            self._say(f"identity NOT revoked: {error.message}")
            self._say(f"its key is removed here; an operator must: carpal fleet revoke {who}")
        else:
            self._say(f"revoked the identity of {who}")

    def _remove(self) -> None:
        name = unit.NAME
        if self._systemd.runs and (self._units / name).exists():
            self._systemd.call("disable", name)
            self._say(f"disabled {name}")
        folder = self._files.folder
        if folder.exists():
            folders.remove(folder)
            self._say(f"removed {folder}")
        with suppress(OSError):  # other processes' state stays
            self._config.state_dir.rmdir()
            self._say(f"removed {self._config.state_dir}, which was empty")
        # Last, for it notes where the state folder is: whoever repeats this finds that by it.
        for path in (self._units / f"{name}.d" / "strict.conf", self._units / name):
            if path.exists():
                path.unlink()
                self._say(f"removed {path}")
        with suppress(OSError):  # somebody's own drop-ins stay
            (self._units / f"{name}.d").rmdir()
        if self._systemd.runs:
            self._systemd.call("daemon-reload")
        settings = f", and {SYSTEM_DIR}" if SYSTEM_DIR.exists() else ""
        self._say(f"done; what is left: Carpal itself{settings}")


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
