"""What the store keeps: tokens, certificates that were issued, and what is revoked."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token; `secret` is empty once it was erased."""

    token_id: str
    workspace: str
    name: str
    pool: str
    secret: bytes = field(repr=False)
    content_digest: bytes
    expires: int
    used: int | None = None
    revoked: int | None = None


@dataclass(frozen=True, slots=True)
class CertificateRow:
    """A certificate that was issued, and for what."""

    serial: str
    identity: str
    workspace: str
    origin: str
    request_digest: bytes
    proof_digest: bytes
    fingerprint: bytes
    issued: int
    expires: int
    chain: bytes = field(repr=False)
    authority: str = ""
    """Which CA signed it: its `vault.authority.ca.key_id`. Empty if that was not noted yet."""


@dataclass(frozen=True, slots=True)
class RevocationRow:
    """An identity whose certificates, issued at `before` or earlier, are refused."""

    identity: str
    before: int
    reason: str
    revoker: str
    version: int
