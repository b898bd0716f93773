"""Reasons: why a request is refused, its gRPC code, and what the caller should do.

Pure data. A reason is the contract; messages are for people and may change.
Every reason named in a `.proto` table is here (tests/test_contract.py).
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Code(IntEnum):
    """google.rpc.Code, so that pure files need no grpc."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Reason(StrEnum):
    """`ErrorInfo.reason` under the domain `carpal`."""

    # Every service.
    IDENTITY_INVALID = "IDENTITY_INVALID"
    CERTIFICATE_EXPIRED = "CERTIFICATE_EXPIRED"
    CERTIFICATE_ENDING = "CERTIFICATE_ENDING"
    IDENTITY_REVOKED = "IDENTITY_REVOKED"
    ROLE_NOT_ALLOWED = "ROLE_NOT_ALLOWED"
    INVALID_FIELD = "INVALID_FIELD"
    NOT_BUILT = "NOT_BUILT"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"
    # On this side of a connection, before any server was reached.
    UNREACHABLE = "UNREACHABLE"
    CONFIG_INVALID = "CONFIG_INVALID"
    CLOCK_WRONG = "CLOCK_WRONG"
    EXTRA_MISSING = "EXTRA_MISSING"
    ADDRESS_IN_USE = "ADDRESS_IN_USE"
    # Session.
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    SESSION_ARCHIVED = "SESSION_ARCHIVED"
    SESSION_HELD = "SESSION_HELD"
    ID_REUSED = "ID_REUSED"
    EPOCH_REQUIRED = "EPOCH_REQUIRED"
    STALE_EPOCH = "STALE_EPOCH"
    EVENT_TOO_LARGE = "EVENT_TOO_LARGE"
    GROUP_TOO_LARGE = "GROUP_TOO_LARGE"
    PRIOR_GROUP_REFUSED = "PRIOR_GROUP_REFUSED"
    POSITION_BEYOND_HEAD = "POSITION_BEYOND_HEAD"
    LEASE_HELD = "LEASE_HELD"
    TAKEOVER_NOT_ALLOWED = "TAKEOVER_NOT_ALLOWED"
    STORE_FULL = "STORE_FULL"
    CHAIN_BROKEN = "CHAIN_BROKEN"
    EXPORT_MALFORMED = "EXPORT_MALFORMED"
    DATA_CORRUPT = "DATA_CORRUPT"
    DIGEST_MISMATCH = "DIGEST_MISMATCH"
    BLOB_NOT_FOUND = "BLOB_NOT_FOUND"
    DOCUMENT_NOT_FOUND = "DOCUMENT_NOT_FOUND"
    VERSION_CONFLICT = "VERSION_CONFLICT"
    # Hand.
    DAEMON_NOT_LINKED = "DAEMON_NOT_LINKED"
    HAND_TYPE_NOT_FOUND = "HAND_TYPE_NOT_FOUND"
    HAND_NOT_FOUND = "HAND_NOT_FOUND"
    HAND_GONE = "HAND_GONE"
    HAND_TAKEN = "HAND_TAKEN"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    INPUT_INVALID = "INPUT_INVALID"
    MOUNT_NOT_FOUND = "MOUNT_NOT_FOUND"
    AT_CAPACITY = "AT_CAPACITY"
    LIMIT_NOT_ENFORCEABLE = "LIMIT_NOT_ENFORCEABLE"
    POLICY_FORBIDS = "POLICY_FORBIDS"
    AUDIT_NOT_WRITTEN = "AUDIT_NOT_WRITTEN"
    PROVISION_FAILED = "PROVISION_FAILED"
    SAVE_FAILED = "SAVE_FAILED"
    CALL_CANCELLED = "CALL_CANCELLED"
    CALL_RUNNING = "CALL_RUNNING"
    CALL_NOT_FOUND = "CALL_NOT_FOUND"
    CALL_DECIDED = "CALL_DECIDED"
    # The brain.
    HARNESS_FAILED = "HARNESS_FAILED"
    # Orchestrator and the link.
    LINK_VIOLATION = "LINK_VIOLATION"
    LINK_SUPERSEDED = "LINK_SUPERSEDED"
    LINK_SILENT = "LINK_SILENT"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    NAME_MISMATCH = "NAME_MISMATCH"
    VERSION_UNSUPPORTED = "VERSION_UNSUPPORTED"
    DAEMON_QUARANTINED = "DAEMON_QUARANTINED"
    DAEMON_NOT_FOUND = "DAEMON_NOT_FOUND"
    # Enrollment and the vault.
    TOKEN_REFUSED = "TOKEN_REFUSED"  # noqa: S105 - a reason, not a secret
    TOKEN_MALFORMED = "TOKEN_MALFORMED"  # noqa: S105 - a reason, not a secret
    CA_MISMATCH = "CA_MISMATCH"
    RENEWAL_REFUSED = "RENEWAL_REFUSED"
    VAULT_UNAVAILABLE = "VAULT_UNAVAILABLE"
    SEAL_KEY_WRONG = "SEAL_KEY_WRONG"
    VAULT_SEALED = "VAULT_SEALED"
    VAULT_ROLLED_BACK = "VAULT_ROLLED_BACK"
    VAULT_CORRUPT = "VAULT_CORRUPT"
    IDENTITY_NOT_FOUND = "IDENTITY_NOT_FOUND"
    CREDENTIAL_NOT_FOUND = "CREDENTIAL_NOT_FOUND"
    CREDENTIAL_CORRUPT = "CREDENTIAL_CORRUPT"
    CONSENT_FAILED = "CONSENT_FAILED"
    CREDENTIAL_NEEDS_CONSENT = "CREDENTIAL_NEEDS_CONSENT"
    CREDENTIAL_NOT_REFRESHED = "CREDENTIAL_NOT_REFRESHED"
    CREDENTIAL_NOT_FETCHED = "CREDENTIAL_NOT_FETCHED"
    TICKET_REFUSED = "TICKET_REFUSED"
    GRANT_REFUSED = "GRANT_REFUSED"


@dataclass(frozen=True)
class Spec:
    """What a reason means to whoever gets it."""

    code: Code
    action: str
    """What to do, as the end of a sentence."""
    retry_after: float | None = None
    """Seconds; set where the same request may succeed later."""


_RETRY = "try again in a moment"
_CHECK = "check the id"

SPECS: dict[Reason, Spec] = {
    Reason.IDENTITY_INVALID: Spec(Code.UNAUTHENTICATED, "enrol again"),
    Reason.CERTIFICATE_EXPIRED: Spec(Code.UNAUTHENTICATED, "renew the certificate"),
    Reason.IDENTITY_REVOKED: Spec(
        Code.UNAUTHENTICATED,
        "ask an operator for a new token or identity",
    ),
    Reason.CERTIFICATE_ENDING: Spec(
        Code.UNAVAILABLE, "open it again on a new connection, with the renewed certificate", 0.2
    ),
    Reason.ROLE_NOT_ALLOWED: Spec(Code.PERMISSION_DENIED, "use an identity whose role may do this"),
    Reason.INVALID_FIELD: Spec(Code.INVALID_ARGUMENT, "correct the field"),
    Reason.NOT_BUILT: Spec(Code.UNIMPLEMENTED, "this server does not offer it"),
    Reason.UNAVAILABLE: Spec(Code.UNAVAILABLE, _RETRY, 0.2),
    Reason.INTERNAL: Spec(Code.INTERNAL, "read the server's log"),
    Reason.UNREACHABLE: Spec(Code.UNAVAILABLE, "check that it runs and the address is right"),
    Reason.CONFIG_INVALID: Spec(Code.INVALID_ARGUMENT, "correct the configuration"),
    Reason.CLOCK_WRONG: Spec(Code.FAILED_PRECONDITION, "set this machine's clock"),
    Reason.EXTRA_MISSING: Spec(Code.INVALID_ARGUMENT, "install the extra"),
    Reason.ADDRESS_IN_USE: Spec(Code.INVALID_ARGUMENT, "stop what listens there or choose another"),
    Reason.SESSION_NOT_FOUND: Spec(Code.NOT_FOUND, "list the ids with `carpal session ls`"),
    Reason.SESSION_ARCHIVED: Spec(Code.FAILED_PRECONDITION, "start or fork another session"),
    Reason.SESSION_HELD: Spec(
        Code.FAILED_PRECONDITION, "lift the hold with `carpal session retention --no-hold`"
    ),
    Reason.ID_REUSED: Spec(Code.ALREADY_EXISTS, "choose another id"),
    Reason.EPOCH_REQUIRED: Spec(Code.PERMISSION_DENIED, "acquire the session's lease"),
    Reason.STALE_EPOCH: Spec(Code.FAILED_PRECONDITION, "stop driving; another holds the lease"),
    Reason.EVENT_TOO_LARGE: Spec(Code.INVALID_ARGUMENT, "put the data in a blob"),
    Reason.GROUP_TOO_LARGE: Spec(Code.INVALID_ARGUMENT, "split the group"),
    Reason.PRIOR_GROUP_REFUSED: Spec(Code.ABORTED, "handle the first refusal"),
    Reason.POSITION_BEYOND_HEAD: Spec(Code.OUT_OF_RANGE, "read the head first"),
    Reason.LEASE_HELD: Spec(Code.FAILED_PRECONDITION, "wait until the holder is done"),
    Reason.TAKEOVER_NOT_ALLOWED: Spec(Code.PERMISSION_DENIED, "wait until the lease expires"),
    Reason.STORE_FULL: Spec(Code.RESOURCE_EXHAUSTED, "free disk space", 5.0),
    Reason.CHAIN_BROKEN: Spec(Code.INVALID_ARGUMENT, "get an export that was not changed"),
    Reason.EXPORT_MALFORMED: Spec(Code.INVALID_ARGUMENT, "export the session again"),
    Reason.DATA_CORRUPT: Spec(
        Code.DATA_LOSS, "stop sessiond and restore a backup: `carpal sessiond restore`"
    ),
    Reason.DIGEST_MISMATCH: Spec(Code.INVALID_ARGUMENT, "send the bytes again"),
    Reason.BLOB_NOT_FOUND: Spec(Code.NOT_FOUND, "check the digest"),
    Reason.DOCUMENT_NOT_FOUND: Spec(Code.NOT_FOUND, "check the name"),
    Reason.VERSION_CONFLICT: Spec(Code.ABORTED, "read the newest version and retry"),
    Reason.DAEMON_NOT_LINKED: Spec(Code.UNAVAILABLE, "wait for the daemon to connect", 1.0),
    Reason.HAND_TYPE_NOT_FOUND: Spec(Code.NOT_FOUND, "list the types with `carpal fleet ls`"),
    Reason.HAND_NOT_FOUND: Spec(Code.NOT_FOUND, "provision another hand"),
    Reason.HAND_GONE: Spec(Code.FAILED_PRECONDITION, "provision another hand"),
    Reason.HAND_TAKEN: Spec(
        Code.FAILED_PRECONDITION, "ask them to leave, or enter beside them with `--beside`"
    ),
    Reason.TOOL_NOT_FOUND: Spec(Code.NOT_FOUND, "use a tool the hand describes"),
    Reason.INPUT_INVALID: Spec(Code.INVALID_ARGUMENT, "correct the input"),
    Reason.MOUNT_NOT_FOUND: Spec(Code.NOT_FOUND, "correct the mount"),
    Reason.AT_CAPACITY: Spec(Code.RESOURCE_EXHAUSTED, "place the hand elsewhere", 5.0),
    Reason.LIMIT_NOT_ENFORCEABLE: Spec(
        Code.FAILED_PRECONDITION, "leave the limit out, or use a machine that can keep it"
    ),
    Reason.POLICY_FORBIDS: Spec(Code.PERMISSION_DENIED, "ask the machine's owner"),
    Reason.AUDIT_NOT_WRITTEN: Spec(
        Code.RESOURCE_EXHAUSTED, "give the disk that the audit is on room", 5.0
    ),
    Reason.PROVISION_FAILED: Spec(Code.INTERNAL, "read the message and the daemon's log"),
    Reason.SAVE_FAILED: Spec(Code.INTERNAL, "read the message; what calls did stays as it is"),
    Reason.CALL_CANCELLED: Spec(Code.FAILED_PRECONDITION, "make a new call"),
    Reason.CALL_RUNNING: Spec(Code.FAILED_PRECONDITION, "wait for its result"),
    Reason.CALL_NOT_FOUND: Spec(Code.NOT_FOUND, _CHECK),
    Reason.CALL_DECIDED: Spec(Code.FAILED_PRECONDITION, "nothing: a call is decided once"),
    Reason.HARNESS_FAILED: Spec(Code.INTERNAL, "correct the harness, or name another"),
    Reason.LINK_VIOLATION: Spec(Code.INVALID_ARGUMENT, "run matching versions on both ends"),
    Reason.LINK_SUPERSEDED: Spec(Code.ABORTED, "stop; a newer link serves"),
    Reason.LINK_SILENT: Spec(Code.UNAVAILABLE, "wait: the daemon dials again by itself", 1.0),
    Reason.MESSAGE_TOO_LARGE: Spec(Code.INVALID_ARGUMENT, "ask for less at once"),
    Reason.NAME_MISMATCH: Spec(Code.PERMISSION_DENIED, "use the name in the certificate"),
    Reason.VERSION_UNSUPPORTED: Spec(Code.FAILED_PRECONDITION, "upgrade the older end"),
    Reason.DAEMON_QUARANTINED: Spec(Code.PERMISSION_DENIED, "ask an operator to lift it"),
    Reason.DAEMON_NOT_FOUND: Spec(Code.NOT_FOUND, "list the names with `carpal fleet ls`"),
    Reason.TOKEN_REFUSED: Spec(Code.PERMISSION_DENIED, "make a new one with `carpal fleet token`"),
    Reason.TOKEN_MALFORMED: Spec(Code.INVALID_ARGUMENT, "paste the whole line again"),
    Reason.CA_MISMATCH: Spec(Code.UNAUTHENTICATED, "check the address, or make a new token"),
    Reason.RENEWAL_REFUSED: Spec(Code.PERMISSION_DENIED, "enrol anew"),
    Reason.VAULT_UNAVAILABLE: Spec(
        Code.UNAVAILABLE, "try again; asking the same twice is safe", 1.0
    ),
    Reason.SEAL_KEY_WRONG: Spec(Code.PERMISSION_DENIED, "use the key this vault was sealed with"),
    Reason.VAULT_SEALED: Spec(Code.UNAVAILABLE, "unseal it: `carpal vault unseal`", 5.0),
    Reason.VAULT_ROLLED_BACK: Spec(
        Code.FAILED_PRECONDITION,
        "if you restored a backup: `carpal vault restore --accept-restore`",
    ),
    Reason.VAULT_CORRUPT: Spec(Code.DATA_LOSS, "stop the vault and restore a backup"),
    Reason.IDENTITY_NOT_FOUND: Spec(Code.NOT_FOUND, "check the name"),
    Reason.CREDENTIAL_NOT_FOUND: Spec(Code.NOT_FOUND, _CHECK),
    Reason.CREDENTIAL_CORRUPT: Spec(Code.DATA_LOSS, "put its secret in again"),
    Reason.CONSENT_FAILED: Spec(Code.FAILED_PRECONDITION, "correct that, and begin again"),
    Reason.CREDENTIAL_NEEDS_CONSENT: Spec(
        Code.FAILED_PRECONDITION, "consent again: `carpal vault credential add --oauth URL`"
    ),
    Reason.CREDENTIAL_NOT_REFRESHED: Spec(Code.UNAVAILABLE, "try again in a while", 5.0),
    Reason.CREDENTIAL_NOT_FETCHED: Spec(
        Code.UNAVAILABLE, "mend the secret manager: the audit says how it failed", 5.0
    ),
    Reason.GRANT_REFUSED: Spec(Code.PERMISSION_DENIED, "ask for a grant with the lease's ticket"),
    Reason.TICKET_REFUSED: Spec(Code.PERMISSION_DENIED, "acquire the session's lease"),
}
