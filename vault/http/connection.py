"""One connection of a caller: what uvicorn's h11 protocol lacks, around it.

The peer's certificate says who calls, and nothing else does: no header is read for it. Every byte
passes the gate first. A head has ten seconds from its first byte, a body a floor to its pace, a
connection that asks nothing an end, and so has one that asks for long: whoever renewed its
certificate shows the new one when it dials anew.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from carpal.errors import CarpalError
from carpal.identity import Identity, identity_of
from vault.http.gate import Gate, Refused
from vault.http.together import Together

_log = logging.getLogger(__name__)

HEAD_LIMIT = 10.0
"""Seconds for a head, from its first byte; and for the first byte of a connection."""
BODY_GRACE, BODY_FLOOR = 10.0, 1024
"""After so many seconds a body must have come at so many bytes a second, from its begin."""
_LOOK = 1.0
"""Seconds between looks at a body's pace."""
OLD = 300.0
"""Seconds after which a connection ends with the answer it is at."""
_REFUSED = "This request is malformed."


class Peers:
    """How many connections each caller has, of those that there may be."""

    def __init__(self, each: int, together: int) -> None:
        self._each = each
        self._together = together
        self._open: Counter[str] = Counter()

    def enter(self, uri: str) -> bool:
        """One more; False when that is too many."""
        if self._open[uri] >= self._each or self._open.total() >= self._together:
            return False
        self._open[uri] += 1
        return True

    def leave(self, uri: str) -> None:
        """One less."""
        self._open[uri] -= 1
        if not self._open[uri]:
            del self._open[uri]


class Link:
    """What the exchange that goes on over a connection knows of it, in its scope's state."""

    def __init__(self, caller: Identity) -> None:
        self.caller = caller
        self.gone = False
        """The connection is lost."""
        self.lost: Callable[[], None] | None = None
        """Called when the caller is gone before its answer is."""
        self.cut: Callable[[], None] = lambda: None
        """Ends the connection at once."""


class Connection(H11Protocol):
    """One connection."""

    def __init__(
        self, config: Config, state: ServerState, app_state: dict[str, Any], peers: Peers
    ) -> None:
        super().__init__(config, state, app_state)
        self._peers = peers
        self._gate = Gate()
        self._link: Link | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._came = 0
        self._since = 0.0
        self._made = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A handshake is done."""
        together = Together(transport, self.loop)
        super().connection_made(together)  # type: ignore[arg-type]
        try:
            caller = _peer(transport)
        except CarpalError as error:
            _log.warning("a certificate was refused", extra={"why": error.message})
            transport.abort()
            return
        if not self._peers.enter(caller.uri):
            _log.warning("a caller has too many connections", extra={"caller": caller.uri})
            transport.abort()
            return
        self._link = Link(caller)
        self._link.cut = transport.abort
        self.app_state = {**self.app_state, "link": self._link}
        self._made = self.loop.time()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, whoever ended it."""
        self._stop_timer()
        super().connection_lost(exc)
        link, self._link = self._link, None
        if link is not None:
            self._peers.leave(link.caller.uri)
            link.gone = True
            if link.lost is not None:
                link.lost()

    def data_received(self, data: bytes) -> None:
        """Read on what the gate lets pass."""
        if self._link is None or self.transport.is_closing():
            return
        in_head = not self._gate.in_body and not self._gate.done
        try:
            passed = self._gate.take(data)
        except Refused as refused:
            self._refuse(str(refused))
            return
        self._came += len(passed)
        if self._gate.pipelined:
            self.flow.pause_reading()
        if self._gate.done:
            self._stop_timer()
        elif in_head and self._gate.in_body:
            self._await_body()
        elif in_head and self._timer is None:
            self._await_head()
        if passed:
            super().data_received(passed)

    def on_response_complete(self) -> None:
        """An answer is out: the next request may come, if all of this one has."""
        if not self._gate.done or self.loop.time() - self._made > OLD:
            self.transport.close()
        self._gate.answered()
        super().on_response_complete()
        if self._gate.pipelined and not self.transport.is_closing():
            self._refuse("a second request came before the first had its answer")

    def _refuse(self, why: str) -> None:
        uri = self._link.caller.uri if self._link else ""
        _log.warning("a request was refused", extra={"why": why, "caller": uri})
        self._stop_timer()
        if self.cycle is not None and not self.cycle.response_complete:
            # Its handler runs: it learns that nothing more comes, and says nothing more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        self.send_400_response(_REFUSED)

    def _await_head(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(HEAD_LIMIT, self._too_slow)

    def _await_body(self) -> None:
        self._stop_timer()
        self._came, self._since = 0, self.loop.time()
        self._timer = self.loop.call_later(_LOOK, self._look)

    def _look(self) -> None:
        self._timer = self.loop.call_later(_LOOK, self._look)
        if self.flow.read_paused:
            self._since += _LOOK  # we read no faster
            return
        late = self.loop.time() - self._since - BODY_GRACE
        if late > 0 and self._came < late * BODY_FLOOR:
            self._too_slow()

    def _too_slow(self) -> None:
        _log.warning("a request came too slowly", extra={"bytes": self._came})
        self._stop_timer()
        self.transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _peer(transport: asyncio.Transport) -> Identity:
    """Who the peer's certificate says it is. Raises IDENTITY_INVALID."""
    channel: ssl.SSLObject = transport.get_extra_info("ssl_object")
    der = channel.getpeercert(binary_form=True) or b""
    return identity_of(ssl.DER_cert_to_PEM_cert(der).encode())
