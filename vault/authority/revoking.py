"""Revoking identities, and the signed list that everyone else holds.

What is revoked is every certificate an identity has, by the second in which
they were issued; a machine that enrols anew under the name gets one that was
issued later. A revocation is kept for ever, since an expired certificate may
still be renewed by its key; the list leaves out what has expired anyway.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from cryptography import x509
from google.protobuf.timestamp_pb2 import Timestamp

from carpal import signed
from carpal.errors import CarpalError, given, refuse
from carpal.identity import Identity, Role, identity_uri
from carpal.ids import check_name
from carpal.proof import check_retirement, revocation_signature
from carpal.status import Reason
from carpal.v1 import types_pb2
from carpal.v1 import vault_pb2 as pb
from vault.authority import ca
from vault.authority.signing import Signer
from vault.store.store import Store

_log = logging.getLogger(__name__)

_LISTED = 2 * ca.LEAF_LIFETIME
"""How long a revocation is in the list: until all it refuses has expired, on any clock."""
_FRESH = timedelta(seconds=30)
"""A list that says nothing new is signed again after this."""


class Revoker:
    """The revocations of one trust domain."""

    def __init__(self, signer: Signer, store: Store, now: Callable[[], datetime]) -> None:
        self._signer = signer
        self._store = store
        self._now = now
        self._signatures: dict[tuple[bytes, str, int], bytes] = {}
        """Of what was in the last list, which is made again and again."""
        self._listed: tuple[int, bytes, datetime, types_pb2.SignedBytes] | None = None

    def by_operator(self, operator: Identity, uri: str, reason: str) -> None:
        """Revoke a daemon or operator of the operator's workspace; IDENTITY_NOT_FOUND otherwise."""
        domain = self._signer.trust_domain
        theirs = [identity_uri(domain, role, "") for role in Role if role.has_workspace]
        if not uri.startswith(tuple(theirs)) or (
            self._store.workspace_of(uri) != operator.workspace
        ):
            raise _not_found(uri)
        self._revoke(uri, reason, operator.uri)

    def by_command(self, role: Role, name: str, reason: str) -> str:
        """Revoke anyone, for whoever may run commands on the vault's own machine; its URI.

        IDENTITY_NOT_FOUND when nothing was ever issued to it.
        """
        uri = identity_uri(self._signer.trust_domain, role, check_name(name, "NAME"))
        if self._store.workspace_of(uri) is None:
            raise _not_found(uri)
        self._revoke(uri, reason, "command")
        return uri

    def by_itself(self, certificate: bytes, nonce: bytes, signature: bytes) -> None:
        """A daemon's own retirement; RENEWAL_REFUSED without the proof that its key is held.

        A certificate that is revoked already changes nothing: somebody may send
        again what was sent before, when the name has long been enrolled anew.
        """
        identity = self._signer.known(certificate)
        leaf = x509.load_pem_x509_certificate(certificate)
        if identity.role is not Role.DAEMON or not check_retirement(leaf, nonce, signature):
            _log.warning("retirement refused", extra={"identity": identity.uri})
            raise refuse(Reason.RENEWAL_REFUSED, "the retirement was refused")
        if not self._signer.is_revoked(identity):
            self._revoke(identity.uri, "it retired", identity.uri)

    def signed_list(self) -> types_pb2.SignedBytes:
        """The list of now, signed by the CA that signs certificates now."""
        authorities, now = self._signer.authorities(), self._now()
        authority, before = authorities.signing, authorities.before
        version = max(1, self._store.revocations_version())
        if self._listed is not None:
            known, signer, issued, answer = self._listed
            if (known, signer) == (version, authority.der) and abs(now - issued) < _FRESH:
                return answer
        told = pb.RevocationList(version=version, issued=_timestamp(now))
        kept: dict[tuple[bytes, str, int], bytes] = {}

        def word(by: ca.Authority) -> bytes:
            key = (by.der, row.identity, row.before)
            kept[key] = self._signatures.get(key) or revocation_signature(
                by.key, row.identity, row.before
            )
            return kept[key]

        for row in self._store.revocations_since(int((now - _LISTED).timestamp())):
            told.revocations.add(
                identity=row.identity,
                before=Timestamp(seconds=row.before),
                reason=row.reason,
                signature=word(authority),
                # A machine that did not renew since the switch knows only the CA before.
                signature_before=b"" if before is None else word(before),
            )
        self._signatures = kept
        answer = signed.sign(authority.key, authority.pem, told.SerializeToString())
        self._listed = (version, authority.der, now, answer)
        return answer

    def _revoke(self, uri: str, reason: str, revoker: str) -> None:
        told = given(reason)
        with self._store.transaction():
            now = self._now()  # in here: what was issued while this waited its turn is revoked too
            seconds, milliseconds = int(now.timestamp()), int(now.timestamp() * 1000)
            self._store.revoke(uri, seconds, milliseconds, told, revoker)
            if uri.startswith(identity_uri(self._signer.trust_domain, Role.DAEMON, "")):
                # Whoever had the machine may have had a token for its name too.
                workspace = self._store.workspace_of(uri) or ""
                self._store.revoke_tokens_for(uri.rpartition("/")[2], workspace, seconds)
        _log.warning("revoked", extra={"identity": uri, "why": told, "revoker": revoker})


def _timestamp(when: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(when)
    return stamp


def _not_found(uri: str) -> CarpalError:
    return refuse(Reason.IDENTITY_NOT_FOUND, f"no identity {uri!r} in this workspace")
