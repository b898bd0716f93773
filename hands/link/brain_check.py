"""Which brain a link leads to, and whether that one is to be obeyed.

TLS says that a peer is some brain of the domain; gRPC tells a client no more of it. So a welcome
shows the brain's certificate and proves that it holds the key, and sessiond's ticket says that this
brain was granted the link, at that epoch: one that made up its own could shut out all others, for
an epoch that was obeyed stays obeyed. What the vault signed about servers that are revoked is
carried by all brains and kept here: no brain can take it back.
"""

import asyncio
import logging
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from cryptography import x509
from google.protobuf.message import DecodeError

from carpal.errors import CarpalError, refuse
from carpal.identity import Identity, Role, verified_identity
from carpal.proof import check_welcome
from carpal.revocations import TOLD_MAX, believed, covers, is_server, revoked
from carpal.signed import verify
from carpal.status import Reason
from carpal.tls import Loaded, write_file
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import types_pb2

log = logging.getLogger(__name__)


class BrainCheck:
    """The servers that are revoked, as this daemon knows; none of them is obeyed."""

    def __init__(self, path: Path | None = None) -> None:
        """Begins with what was kept in the file `path`; without one, nothing is kept."""
        self._path = path
        self._revoked: dict[str, types_pb2.Revocation] = {}
        self._taking = threading.Lock()
        if path is not None:
            self._recall(path)

    async def welcomed(self, welcome: pb.Welcome, hello: pb.Hello, me: Loaded) -> Identity:
        """Which brain welcomes `me`, and may be obeyed.

        IDENTITY_INVALID without a good proof, IDENTITY_REVOKED when it is revoked.
        """
        await self.told(welcome.revocations, me.ca)
        now = datetime.now(UTC)
        try:
            brain = verified_identity(welcome.certificate, me.ca, now)
        except CarpalError as error:
            raise _unproven(error.message) from None
        leaf = x509.load_pem_x509_certificate(welcome.certificate)
        if brain.role is not Role.BRAIN:
            raise _unproven(f"it is {brain.uri}")
        if not check_welcome(leaf, hello.nonce, me.identity.uri, welcome.proof):
            raise _unproven("the proof is not by its key")
        if welcome.brain != brain.name:
            raise _unproven(f"it says that it is {welcome.brain!r}, and is {brain.uri}")
        self.check(brain)
        self._check_ticket(welcome, brain, me, now)
        return brain

    def _check_ticket(
        self, welcome: pb.Welcome, brain: Identity, me: Loaded, now: datetime
    ) -> None:
        """Its dates are not asked for: it may be old, but then so is its epoch."""
        try:
            signer = verify(welcome.ticket, me.ca, Role.SESSIOND, now)
            ticket = types_pb2.LeaseTicket.FromString(welcome.ticket.payload)
        except CarpalError as error:
            raise _unproven(f"its ticket is not sessiond's: {error.message}") from None
        except DecodeError:
            raise _unproven("its ticket is none") from None
        self.check(signer)
        told = (ticket.resource, ticket.epoch, ticket.holder, ticket.workspace)
        daemon = me.identity
        if told != (f"daemon/{daemon.name}", welcome.epoch, brain.uri, daemon.workspace):
            raise _unproven(f"its ticket is for {told}")

    def check(self, server: Identity) -> None:
        """IDENTITY_REVOKED when it is."""
        row = self._revoked.get(server.uri)
        if row is not None and covers(row, server):
            raise revoked(row)

    async def told(self, rows: Iterable[types_pb2.Revocation], ca: bytes) -> None:
        """Keep what is new and signed by a CA in PEM `ca`. Nothing is ever taken back.

        No more than a brain tells; anyone could have made them, and each takes a while to check.
        """
        news = [row for row in islice(rows, TOLD_MAX) if self._is_news(row)]
        if news:
            await asyncio.to_thread(self._take, news, ca)

    def _take(self, news: Iterable[types_pb2.Revocation], ca: bytes) -> None:
        true = believed(news, ca)
        with self._taking:  # of two links at once
            for row in filter(self._is_news, true):
                self._revoked[row.identity] = row
                log.warning("server revoked", extra={"identity": row.identity, "why": row.reason})
            if true and self._path is not None:
                kept = pb.Revocations(revocations=self._revoked.values())
                try:
                    write_file(self._path, kept.SerializeToString())
                except OSError as error:  # it is in force, whatever the disk says to this
                    log.warning("revocations not kept", extra={"why": str(error)})

    def _is_news(self, row: types_pb2.Revocation) -> bool:
        known = self._revoked.get(row.identity)
        newer = known is None or known.before.seconds < row.before.seconds
        return newer and is_server(row.identity)

    def _recall(self, path: Path) -> None:
        try:
            kept = pb.Revocations.FromString(path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, DecodeError) as error:
            # Whoever can write the file could also have removed it.
            log.warning("the kept revocations are not used", extra={"why": str(error)})
            return
        self._revoked = {row.identity: row for row in kept.revocations}


def _unproven(why: str) -> CarpalError:
    return refuse(
        Reason.IDENTITY_INVALID,
        f"what welcomed does not prove to be a brain: {why}",
        action="update the brain, or find out who answers there",
    )
