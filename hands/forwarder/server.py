"""One hand's forwarder: it listens on a unix socket in the hand's folder, and logs what it decides.

The hand may write in its folder, so nothing there is followed or trusted: what a
hand puts in the socket's place closes its own way out, and that is all.
"""

import asyncio
import errno
import logging
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hands.forwarder.exchange import Decision, Way, serve
from hands.forwarder.guard import Resolver
from hands.forwarder.heads import HEAD_MAX
from hands.forwarder.hosts import joined
from hands.forwarder.rules import Rule

log = logging.getLogger(__name__)

SOCKET = "egress"
"""Its name in the hand's folder; the relay inside the hand knows it too."""
CONNECTIONS = 64
"""At once, of one hand; more wait."""
_BACKLOG = 16
_REST = 0.2
"""Seconds before it accepts again after that failed."""
_LINES = 100
"""Decisions that are logged a minute: a hand must not fill the disk with them."""
_MINUTE = 60.0
_PATH_MAX = 200
"""Letters of a path that are logged."""


class Forwarder:
    """Use `open`."""

    def __init__(
        self, hand_id: str, listener: socket.socket, rules: Sequence[Rule], way: Way
    ) -> None:
        self._rules = tuple(rules)
        self._for_now: list[Sequence[Rule]] = []
        self._way = way
        self._lines = Lines(hand_id)
        self._listener = listener
        self._task = asyncio.create_task(self._serve())

    @classmethod
    def open(
        cls, folder: Path, hand_id: str, rules: Sequence[Rule], way: Way | None = None
    ) -> "Forwarder":
        """Listen in the hand's folder, in place of an earlier daemon. Raises OSError."""
        return cls(hand_id, _listening(folder), rules, way or Way(Resolver()))

    @property
    def rules(self) -> Sequence[Rule]:
        """What is allowed now."""
        return (*self._rules, *(rule for rules in self._for_now for rule in rules))

    @contextmanager
    def also(self, rules: Sequence[Rule]) -> Iterator[None]:
        """Allow these too, meanwhile: what a mount needs to be fetched, for one."""
        # One of its own: two who allow the same must each take back their own.
        added = list(rules)
        self._for_now.append(added)
        try:
            yield
        finally:
            self._for_now = [one for one in self._for_now if one is not added]

    async def close(self) -> None:
        """End it and every connection; again is no error."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self._listener.close()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(CONNECTIONS)
        async with asyncio.TaskGroup() as group:
            while True:
                await room.acquire()
                try:
                    accepted, _ = await loop.sock_accept(self._listener)
                except OSError as error:  # this process has no descriptor left, say
                    log.warning("egress not accepted", extra={"why": str(error)})
                    room.release()
                    await asyncio.sleep(_REST)
                    continue
                task = group.create_task(self._connection(accepted))
                task.add_done_callback(lambda _: room.release())

    async def _connection(self, accepted: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_unix_connection(sock=accepted, limit=HEAD_MAX)
            await serve(reader, writer, lambda: self.rules, self._way, self._lines.decided)
        except Exception:  # a bug here costs one connection, not the hand's way out
            log.exception("egress failed", extra={"hand_id": self._lines.hand_id})
            accepted.close()


class Lines:
    """Decisions as lines of the daemon's log, so many a minute."""

    def __init__(self, hand_id: str) -> None:
        self.hand_id = hand_id
        self._minute = -_MINUTE
        self._written = 0
        self._left_out = 0

    def decided(self, decision: Decision) -> None:
        """Write it down, if there is room."""
        now = time.monotonic()
        if now - self._minute >= _MINUTE:
            if self._left_out:
                about = {"hand_id": self.hand_id, "decisions": self._left_out}
                log.warning("egress decisions not logged: too many", extra=about)
            self._minute, self._written, self._left_out = now, 0, 0
        if self._written >= _LINES:
            self._left_out += 1
            return
        self._written += 1
        asked = decision.asked
        about = {
            "hand_id": self.hand_id,
            "method": asked.method,
            "host": joined(asked.host, asked.port),
            "path": asked.path[:_PATH_MAX],  # never the query: it may hold a secret
        }
        if decision.address:
            log.info("egress allowed", extra={**about, "address": decision.address})
        else:
            log.warning("egress refused", extra={**about, "why": decision.why})


def _listening(folder: Path) -> socket.socket:
    # A socket's address holds 107 bytes; through a descriptor any path is short.
    handle = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        _make_room(handle)
        listener.bind(f"/proc/self/fd/{handle}/{SOCKET}")
        _let_the_hand_in(handle)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(handle)
    return listener


def _make_room(folder: int) -> None:
    """Take away what is in the socket's place: an earlier daemon's, or what the hand put there."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(SOCKET, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            aside = f"{SOCKET}.{secrets.token_hex(8)}"
            os.rename(SOCKET, aside, src_dir_fd=folder, dst_dir_fd=folder)


def _let_the_hand_in(folder: int) -> None:
    """Give the socket to whose the folder is: the hand's user, who alone gets in there.

    By the very file that was made, since the hand may have put another in its place.
    """
    made = os.open(SOCKET, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        found, home = os.fstat(made), os.fstat(folder)
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
            raise OSError(errno.EEXIST, f"{SOCKET} was replaced")
        path = Path(f"/proc/self/fd/{made}")
        path.chmod(0o600)
        if found.st_uid != home.st_uid:
            os.chown(path, home.st_uid, home.st_gid)
    finally:
        os.close(made)
