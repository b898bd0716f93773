"""Whose certificates are revoked: the vault's signed list, as it is held here.

A certificate says when it was issued, and the list says of an identity until
when what was issued is refused: so it also covers certificates that nobody has
seen, and a machine that enrols anew is let in again. A list is taken if one of
the authorities trusted here signed it and it is not older than the one held;
without the vault the last one stays in force.
"""

import base64
import binascii
from collections.abc import Callable, Iterable

from google.protobuf.message import DecodeError

from carpal.bundle import key_ids
from carpal.errors import CarpalError, refuse
from carpal.identity import Identity, Role, identity_uri
from carpal.proof import check_revocation
from carpal.signed import verify_by_ca
from carpal.status import Reason
from carpal.v1 import types_pb2, vault_pb2

FOLLOW_SECONDS = 1.0
"""Between looks for a newer list; what is revoked is cut off within five of them."""
TOLD_MAX = 1000
"""Servers that daemons are told of: one message must hold them."""


class Revocations:
    """The list that is in force; empty until one is taken."""

    def __init__(self) -> None:
        self.version = 0
        """Of the list that is in force; 0 while none is."""
        self._revoked: dict[str, types_pb2.Revocation] = {}
        self._authorities: frozenset[str] = frozenset()
        """Those that are trusted, by key."""
        self._retired: frozenset[str] = frozenset()
        """Those that were, since this process began; one that is unknown may be the next."""
        self._changed: list[Callable[[], None]] = []

    def on_change(self, changed: Callable[[], None]) -> None:
        """Have `changed` called whenever another list is in force."""
        self._changed.append(changed)

    def check(self, identity: Identity) -> None:
        """IDENTITY_REVOKED when the certificate is; CERTIFICATE_ENDING when its CA was retired.

        The latter is of a connection from before: whoever has renewed since dials anew.
        """
        found = self._revoked.get(identity.uri)
        if found is not None and covers(found, identity):
            raise revoked(found)
        if identity.authority in self._retired:
            raise refuse(
                Reason.CERTIFICATE_ENDING,
                f"the certificate of {identity.uri} is by an authority that was retired",
                action="dial anew with a newer one; if there is none, enrol with a new token",
            )

    def word(self, uri: str, issued: float) -> str:
        """Why what was issued to an identity then, in seconds since the epoch, is revoked.

        `revoked` when nobody said why, empty when it is not.
        """
        row = self._revoked.get(uri)
        if row is None or issued > row.before.seconds:
            return ""
        return row.reason or "revoked"

    def trust(self, bundle: bytes) -> None:
        """These CAs, PEM, are trusted from now on: what others of before let in is ended."""
        authorities = key_ids(bundle)
        retired = (self._retired | self._authorities) - authorities
        self._authorities = authorities
        if retired != self._retired:
            self._retired = retired
            for changed in self._changed:
                changed()

    def servers(self) -> list[types_pb2.Revocation]:
        """Those of servers, which daemons meet; no tenant's own are among them."""
        found = [row for row in self._revoked.values() if is_server(row.identity)]
        return sorted(found, key=lambda row: -row.before.seconds)[:TOLD_MAX]

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
            # It says nothing new, but another CA may sign it by now, and the one before be gone.
            for row in told.revocations:
                known = self._revoked.get(row.identity)
                if known is not None and known.before == row.before:
                    self._revoked[row.identity] = row
            return False
        self.version = told.version
        self._revoked = {row.identity: row for row in told.revocations}
        for changed in self._changed:
            changed()
        return True


def covers(row: types_pb2.Revocation, identity: Identity) -> bool:
    """Whether it refuses this certificate."""
    return row.identity == identity.uri and identity.issued.timestamp() <= row.before.seconds


def is_server(uri: str) -> bool:
    """Whether it is a process that serves every workspace."""
    domain = uri.removeprefix("spiffe://").partition("/")[0]
    return uri.startswith(
        tuple(identity_uri(domain, role, "") for role in Role if not role.has_workspace)
    )


def revoked(row: types_pb2.Revocation) -> CarpalError:
    """The refusal of an identity, with the authority's own word on it."""
    proofs = {"proof": row.signature, "proof_before": row.signature_before}
    return refuse(
        Reason.IDENTITY_REVOKED,
        f"{row.identity} is revoked" + (f" ({row.reason})" if row.reason else ""),
        identity=row.identity,
        before=str(row.before.seconds),
        **{name: base64.b64encode(proof).decode() for name, proof in proofs.items() if proof},
    )


def proves(error: CarpalError, identity: Identity, ca: bytes) -> bool:
    """Whether a refusal carries the word of a CA in PEM `ca` that this certificate is revoked.

    A server that only says so may have been taken over.
    """
    if error.reason is not Reason.IDENTITY_REVOKED:
        return False
    try:
        row = types_pb2.Revocation(
            identity=error.fields.get("identity", ""),
            signature=base64.b64decode(error.fields.get("proof", ""), validate=True),
            signature_before=base64.b64decode(error.fields.get("proof_before", ""), validate=True),
        )
        row.before.FromSeconds(int(error.fields.get("before", "")))
    except (ValueError, binascii.Error):
        return False
    return covers(row, identity) and bool(believed([row], ca))


def believed(rows: Iterable[types_pb2.Revocation], ca: bytes) -> list[types_pb2.Revocation]:
    """Those that one of the CAs in PEM `ca` signed, one by one."""

    def is_true(row: types_pb2.Revocation) -> bool:
        return any(
            check_revocation(ca, row.identity, row.before.seconds, signature)
            for signature in (row.signature, row.signature_before)
            if signature
        )

    return [row for row in rows if is_true(row)]


def _refused(why: str) -> CarpalError:
    return refuse(Reason.IDENTITY_INVALID, f"the list of revocations was not taken: {why}")
