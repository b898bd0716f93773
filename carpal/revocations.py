"""Whose certificates are revoked: the vault's signed list, as it is held here.

A certificate says when it was issued, and the list says of an identity until
when what was issued is refused: so it also covers certificates that nobody has
seen, and a machine that enrols anew is let in again. A list is taken if one of
the authorities trusted here signed it and it is not older than the one held;
without the vault the last one stays in force.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from google.protobuf.message import DecodeError

from carpal.errors import CarpalError, refuse
from carpal.identity import Identity
from carpal.signed import verify_by_ca
from carpal.status import Reason
from carpal.v1 import types_pb2, vault_pb2

FOLLOW_SECONDS = 1.0
"""Between looks for a newer list; what is revoked is cut off within five of them."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """What the list says of one identity."""

    before: datetime
    """Certificates issued then or earlier are refused."""
    reason: str


class Revocations:
    """The list that is in force; empty until one is taken."""

    def __init__(self) -> None:
        self.version = 0
        """Of the list that is in force; 0 while none is."""
        self._revoked: dict[str, Revoked] = {}
        self._changed: list[Callable[[], None]] = []

    def on_change(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever another list is in force."""
        self._changed.append(changed)

    def check(self, identity: Identity) -> None:
        """IDENTITY_REVOKED when the certificate is."""
        found = self._revoked.get(identity.uri)
        if found is not None and identity.issued <= found.before:
            raise revoked(identity.uri, found.reason)

    def take(self, signed: types_pb2.SignedBytes, ca: bytes) -> bool:
        """Hold a list, if it is by one of the CAs in PEM `ca`; False if it changes nothing.

        Raises IDENTITY_INVALID for one that is forged, of another authority, or
        older than the one held; that one then stays in force.
        """
        verify_by_ca(signed, ca)
        try:
            told = vault_pb2.RevocationList.FromString(signed.payload)
        except DecodeError:
            raise _refused("it is not a list of revocations") from None
        if told.version == 0:
            raise _refused("it has no version")
        if told.version < self.version:
            raise _refused(f"it is older ({told.version}) than the one held ({self.version})")
        if told.version == self.version:
            return False
        self.version = told.version
        self._revoked = {
            row.identity: Revoked(row.before.ToDatetime(UTC), row.reason)
            for row in told.revocations
        }
        for changed in self._changed:
            changed()
        return True


def revoked(uri: str, reason: str) -> CarpalError:
    """The refusal; `reason` is what the operator gave, if anything."""
    return refuse(Reason.IDENTITY_REVOKED, f"{uri} is revoked" + (f" ({reason})" if reason else ""))


def _refused(why: str) -> CarpalError:
    return refuse(Reason.IDENTITY_INVALID, f"the list of revocations was not taken: {why}")
