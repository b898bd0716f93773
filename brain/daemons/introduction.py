"""How a brain says to a daemon which one it is, and which servers are revoked.

TLS tells a daemon no more than that it speaks to a brain of its domain.
"""

from collections.abc import Callable

from carpal.errors import invalid
from carpal.identity import Identity
from carpal.own_identity import Newest
from carpal.proof import NONCE_BYTES, welcome_signature
from carpal.revocations import Revocations
from carpal.tls import IdentityFiles
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import types_pb2


class Introduction:
    """What every welcome of one brain says of that."""

    def __init__(self, files: IdentityFiles, revocations: Revocations) -> None:
        """`files` is the brain's own identity, as it is on disk when it welcomes."""
        self._own = Newest(files)
        self._revocations = revocations

    def to(self, daemon: Identity, hello: pb.Hello, welcome: pb.Welcome) -> None:
        """Add it to the welcome of a daemon. INVALID_FIELD for a nonce that is no good."""
        welcome.revocations.extend(self._revocations.servers())
        if hello.nonce:  # an older daemon asks for no proof
            if len(hello.nonce) not in NONCE_BYTES:
                raise invalid("hello.nonce", "must have 16 to 64 bytes")
            own = self._own.loaded()
            welcome.certificate = own.chain
            welcome.proof = welcome_signature(own.key, hello.nonce, daemon.uri)

    def on_change(self, tell: Callable[[list[types_pb2.Revocation]], None]) -> None:
        """Have `tell` called with the servers that are revoked, whenever those are others."""
        before = self._revocations.servers()

        def look() -> None:
            nonlocal before
            now = self._revocations.servers()
            if now != before:
                before = now
                tell(now)

        self._revocations.on_change(look)
