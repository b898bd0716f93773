"""Signing: which certificate requests the vault answers, and with what.

One request gets one answer: the same request again, with its proof, gets the
first. Every other use of a token that is unknown, used, revoked, expired or
whose proof is wrong is refused in the same words; why is in the log alone.
"""

import hmac
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from carpal.errors import CarpalError, refuse
from carpal.identity import BACKDATE, Identity, Role, verified_identity
from carpal.proof import SECRET_BYTES, check_renewal, enrol_proof
from carpal.status import Reason
from vault.authority import ca
from vault.authority.authorities import Authorities
from vault.store.rows import CertificateRow
from vault.store.store import Store

_log = logging.getLogger(__name__)

RENEW_GRACE = timedelta(days=30)
"""How long after its end a certificate may still be renewed by its key: a machine
may be off over a long holiday, and a key that lay around for longer is not proof
of much."""
_RENEW_THEIR_OWN = frozenset({Role.SESSIOND, Role.BRAIN, Role.OPERATOR})
_NO_SECRET = bytes(SECRET_BYTES)
"""Compared against when there is no secret, so that it takes as long."""


@dataclass(frozen=True, slots=True)
class Issued:
    """An answer: the chain (PEM, leaf first) and when to ask for the next."""

    chain: bytes
    renew_after: timedelta
    identity: str = ""


class Denied(Protocol):
    """The audit's."""

    def __call__(self, action: str, reason: str, *, actor: str, **facts: str) -> None: ...


class Signer:
    """The CAs, what they issued, and the clock."""

    def __init__(
        self,
        authorities: Callable[[], Authorities],
        store: Store,
        now: Callable[[], datetime],
        denied: Denied | None = None,
    ) -> None:
        """`authorities` says which there are, each time; `denied` is told the full reason."""
        self._denied = denied
        self.authorities = authorities
        self._store = store
        self._now = now

    @property
    def trust_domain(self) -> str:
        """The domain it signs for."""
        return self.authorities().signing.trust_domain

    def enrol(self, token_id: str, csr_der: bytes, proof: bytes) -> Issued:
        """A daemon's first certificate, for a token. It is spent in the same transaction.

        Raises TOKEN_REFUSED, or INVALID_FIELD when the request is not a good
        one; neither spends the token.
        """
        key = ca.requested_key(csr_der)
        now = self._now()
        seconds = int(now.timestamp())
        origin, digest, proof_digest = f"token:{token_id}", _digest(csr_der), _digest(proof)
        self._store.erase_expired_secrets(seconds)  # kept, whatever becomes of this request
        with self._store.transaction():
            token = self._store.token(token_id)
            secret = token.secret if token else b""
            right = hmac.compare_digest(enrol_proof(secret or _NO_SECRET, token_id, csr_der), proof)
            if token is None:
                raise self._token_refused(token_id, "unknown")
            if token.revoked is not None:
                raise self._token_refused(token_id, "revoked")
            if token.expires <= seconds:
                raise self._token_refused(token_id, "expired")
            if token.used is not None:
                # Its secret is gone; the first proof of this request is not.
                first = self._store.certificate_for(origin, digest)
                if first and hmac.compare_digest(first.proof_digest, proof_digest):
                    return self._again(first, now)
                raise self._token_refused(token_id, "used")
            if not right:
                raise self._token_refused(token_id, "wrong proof")
            claims = ca.Claims(Role.DAEMON, token.name, token.workspace, token.pool)
            if self._owner(claims) not in (None, token.workspace):
                raise self._token_refused(token_id, "name taken in another workspace")
            if not self._store.spend_token(token_id, seconds):
                raise self._token_refused(token_id, "used")
            row = self._issue(
                claims,
                key,
                now,
                origin=origin,
                request_digest=digest,
                proof_digest=proof_digest,
            )
        _log.info("enrolled", extra={"identity": row.identity, "token_id": token_id})
        return self._again(row, now)

    def renew(
        self, relayed_by: Identity, csr_der: bytes, certificate: bytes, signature: bytes
    ) -> Issued:
        """The next certificate of an identity, for the key of the one before.

        A brain relays for daemons; sessiond, brains and operators renew their own.
        All claims are carried over. Raises RENEWAL_REFUSED or INVALID_FIELD.
        """
        key = ca.requested_key(csr_der)
        now = self._now()
        old = self.known(certificate)
        if not (
            (old.role is Role.DAEMON and relayed_by.role is Role.BRAIN)
            or (old.role in _RENEW_THEIR_OWN and old.uri == relayed_by.uri)
        ):
            raise self._renewal_refused(old.uri, f"{relayed_by.uri} may not renew for it")
        leaf = x509.load_pem_x509_certificate(certificate)
        if not check_renewal(leaf, csr_der, signature):
            raise self._renewal_refused(old.uri, "wrong proof")
        origin = f"certificate:{leaf.fingerprint(hashes.SHA256()).hex()}"
        digest = _digest(csr_der)
        with self._store.transaction():
            if self.is_revoked(old):  # in here: a command may revoke it while this waits its turn
                raise self._renewal_refused(old.uri, "revoked")
            first = self._store.certificate_for(origin, digest)
            if first is not None:
                return self._again(first, now)
            claims = ca.Claims(old.role, old.name, old.workspace, old.pool)
            row = self._issue(claims, key, now, origin=origin, request_digest=digest)
        _log.info("renewed", extra={"identity": old.uri, "relayed_by": relayed_by.uri})
        return self._again(row, now)

    def issue_by_command(self, claims: ca.Claims, key: ec.EllipticCurvePublicKey) -> Issued:
        """A certificate for whoever may run commands on the vault's own machine.

        INVALID_FIELD when another workspace has the name.
        """
        now = self._now()
        with self._store.transaction():
            owner = self._owner(claims)
            if owner not in (None, claims.workspace):
                raise refuse(
                    Reason.INVALID_FIELD,
                    f"name: the {claims.role} {claims.name!r} is of workspace {owner!r}",
                    action="choose another name",
                )
            row = self._issue(claims, key, now, origin="command")
        return self._again(row, now)

    def _owner(self, claims: ca.Claims) -> str | None:
        """The workspace that has the name; a URI does not hold its workspace."""
        return self._store.workspace_of(claims.uri(self.trust_domain))

    def is_revoked(self, identity: Identity) -> bool:
        """Whether this certificate of its is."""
        row = self._store.revocation(identity.uri)
        return row is not None and int(identity.issued.timestamp()) <= row.before

    def known(self, certificate: bytes) -> Identity:
        """Whose PEM certificate it is, also for a while after it expired; RENEWAL_REFUSED.

        The chain is checked at the last moment it was valid.
        """
        now = self._now()
        try:
            leaf = x509.load_pem_x509_certificate(certificate)
            end = leaf.not_valid_after_utc
            old = verified_identity(certificate, self.authorities().bundle, min(now, end))
        except (ValueError, x509.InvalidVersion):
            raise self._renewal_refused("", "not a certificate") from None
        except CarpalError as error:
            raise self._renewal_refused("", error.message) from None
        if now > end + RENEW_GRACE:
            raise self._renewal_refused(old.uri, "expired too long ago")
        if old.trust_domain != self.trust_domain:
            raise self._renewal_refused(old.uri, "of another trust domain")
        return old

    def _issue(
        self,
        claims: ca.Claims,
        key: ec.EllipticCurvePublicKey,
        now: datetime,
        *,
        origin: str,
        request_digest: bytes = b"",
        proof_digest: bytes = b"",
    ) -> CertificateRow:
        uri = claims.uri(self.trust_domain)
        if (revoked := self._store.revocation(uri)) is not None:
            # In the very second of a revocation too, what is issued after it is good.
            now = max(now, datetime.fromtimestamp(revoked.before + 1, UTC))
        authorities = self.authorities()
        leaf = ca.issue(
            authorities.signing,
            claims,
            public_key=key,
            not_before=now - BACKDATE,
            not_after=now + ca.LEAF_LIFETIME,
        )
        fingerprint = leaf.fingerprint(hashes.SHA256())
        row = CertificateRow(
            serial=f"{leaf.serial_number:x}",
            identity=uri,
            workspace=claims.workspace,
            origin=origin,
            request_digest=request_digest or fingerprint,
            proof_digest=proof_digest,
            fingerprint=fingerprint,
            issued=int(now.timestamp()),
            expires=int(leaf.not_valid_after_utc.timestamp()),
            chain=authorities.chain(leaf),
            authority=ca.key_id(authorities.signing.certificate),
        )
        self._store.add_certificate(row)
        return row

    def _again(self, row: CertificateRow, now: datetime) -> Issued:
        """The answer of a row: renew at half of the certificate's life."""
        half = row.issued + (row.expires - row.issued) / 2
        return Issued(row.chain, timedelta(seconds=max(0.0, half - now.timestamp())), row.identity)

    def _token_refused(self, token_id: str, why: str) -> CarpalError:
        # Anyone may send an id, of any length.
        _log.warning("token refused", extra={"token_id": token_id[:128], "why": why})
        if self._denied is not None:
            self._denied("enrol", why, actor="", token=token_id[:128])
        return refuse(Reason.TOKEN_REFUSED, "the enrolment token was refused")

    def _renewal_refused(self, uri: str, why: str) -> CarpalError:
        _log.warning("renewal refused", extra={"identity": uri, "why": why})
        if self._denied is not None:
            self._denied("renew", why, actor=uri)
        return refuse(Reason.RENEWAL_REFUSED, "the renewal was refused")


def _digest(data: bytes) -> bytes:
    return sha256(data).digest()
