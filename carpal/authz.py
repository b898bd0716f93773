"""The one table of who may call what. What has no row is denied.

tests/test_authz.py walks the descriptors and fails on an RPC without a row.
Rules finer than a role (one's own workspace, one's own name) live with the
service, next to the data they need.
"""

from enum import Enum

from carpal.identity import Role

_OPERATOR = frozenset({Role.OPERATOR})
_BRAIN = frozenset({Role.BRAIN})
_DAEMON = frozenset({Role.DAEMON})
_OPERATOR_BRAIN = _OPERATOR | _BRAIN
_OPERATOR_BRAIN_VAULT = _OPERATOR_BRAIN | {Role.VAULT}
_SERVERS = frozenset({Role.SESSIOND, Role.BRAIN})


class Anyone(Enum):
    """What no set of roles can be, however it is made: an empty row allows nobody."""

    ANYONE = "anyone"


ANYONE = Anyone.ANYONE
"""Methods of a port that asks for no client certificate; the vault checks a proof."""

METHODS: dict[str, frozenset[Role] | Anyone] = {
    "/carpal.v1.Session/CreateSession": _OPERATOR_BRAIN,
    "/carpal.v1.Session/GetSession": _OPERATOR_BRAIN_VAULT,
    "/carpal.v1.Session/ListSessions": _OPERATOR_BRAIN,
    "/carpal.v1.Session/UpdateSession": _OPERATOR_BRAIN,
    "/carpal.v1.Session/ArchiveSession": _OPERATOR,
    "/carpal.v1.Session/DeleteSession": _OPERATOR,
    "/carpal.v1.Session/EmitEvent": _OPERATOR_BRAIN_VAULT,
    "/carpal.v1.Session/Append": _OPERATOR_BRAIN,
    "/carpal.v1.Session/GetEvents": _OPERATOR_BRAIN,
    "/carpal.v1.Session/TailEvents": _OPERATOR_BRAIN,
    "/carpal.v1.Session/ForkSession": _OPERATOR_BRAIN,
    "/carpal.v1.Session/ImportSession": _OPERATOR,
    "/carpal.v1.Session/RedactEvent": _OPERATOR,
    "/carpal.v1.Session/AcquireLease": _BRAIN,
    "/carpal.v1.Session/RenewLease": _BRAIN,
    "/carpal.v1.Session/ReleaseLease": _BRAIN,
    "/carpal.v1.Session/WatchLeases": _OPERATOR_BRAIN_VAULT,
    "/carpal.v1.Session/WatchRunnable": _BRAIN,
    "/carpal.v1.Session/PutBlob": _OPERATOR_BRAIN_VAULT,
    "/carpal.v1.Session/GetBlob": _OPERATOR_BRAIN_VAULT,
    "/carpal.v1.Session/PutDocument": _OPERATOR_BRAIN,
    "/carpal.v1.Session/GetDocument": _OPERATOR_BRAIN,
    "/carpal.v1.Session/ListDocuments": _OPERATOR_BRAIN,
    "/carpal.v1.Hand/Describe": _BRAIN,
    "/carpal.v1.Hand/Probe": _BRAIN,
    "/carpal.v1.Hand/Provision": _BRAIN,
    "/carpal.v1.Hand/Claim": _BRAIN,
    "/carpal.v1.Hand/Execute": _BRAIN,
    "/carpal.v1.Hand/Acknowledge": _BRAIN,
    "/carpal.v1.Hand/Cancel": _BRAIN,
    "/carpal.v1.Hand/Transfer": _BRAIN,
    "/carpal.v1.Hand/Release": _BRAIN,
    "/carpal.v1.Hand/Events": _BRAIN,
    "/carpal.v1.Hand/Tunnel": _BRAIN,
    "/carpal.v1.Hand/Save": _BRAIN,
    "/carpal.v1.Hand/ResetUnit": _BRAIN,
    "/carpal.v1.Hand/ListHands": _BRAIN,
    "/carpal.v1.Orchestrator/Wake": _OPERATOR_BRAIN,
    "/carpal.v1.Orchestrator/Connect": _DAEMON,
    "/carpal.v1.Orchestrator/Attach": _DAEMON,
    "/carpal.v1.Orchestrator/Watch": _OPERATOR_BRAIN,
    "/carpal.v1.Orchestrator/ListDaemons": _OPERATOR_BRAIN,
    "/carpal.v1.Orchestrator/GetDaemon": _OPERATOR_BRAIN,
    "/carpal.v1.Orchestrator/ListHands": _OPERATOR_BRAIN,
    "/carpal.v1.Orchestrator/DrainDaemon": _OPERATOR_BRAIN,
    "/carpal.v1.Orchestrator/QuarantineDaemon": _OPERATOR,
    "/carpal.v1.Orchestrator/Enter": _OPERATOR,
    "/carpal.v1.Orchestrator/ReadBlob": _DAEMON,
    "/carpal.v1.Orchestrator/WriteBlob": _DAEMON,
    "/carpal.v1.Enrollment/Enroll": ANYONE,
    "/carpal.v1.Enrollment/Renew": ANYONE,
    "/carpal.v1.Enrollment/Diagnose": ANYONE,
    "/carpal.v1.Enrollment/Retire": ANYONE,
    "/carpal.v1.Vault/GetStatus": _OPERATOR | _SERVERS,
    "/carpal.v1.Vault/Unseal": _OPERATOR,
    "/carpal.v1.Vault/Sign": _OPERATOR | _SERVERS,
    "/carpal.v1.Vault/CreateToken": _OPERATOR,
    "/carpal.v1.Vault/ListTokens": _OPERATOR,
    "/carpal.v1.Vault/RevokeToken": _OPERATOR,
    "/carpal.v1.Vault/RevokeIdentity": _OPERATOR_BRAIN,
    "/carpal.v1.Vault/GetTrust": _OPERATOR | _SERVERS,
    "/carpal.v1.Vault/CreateCredential": _OPERATOR,
    "/carpal.v1.Vault/UpdateCredential": _OPERATOR,
    "/carpal.v1.Vault/ListCredentials": _OPERATOR,
    "/carpal.v1.Vault/ArchiveCredential": _OPERATOR,
    "/carpal.v1.Vault/ValidateCredential": _OPERATOR,
    "/carpal.v1.Vault/GrantSession": _BRAIN,
    "/carpal.v1.Vault/RevokeSession": _OPERATOR_BRAIN,
    "/carpal.v1.Vault/ReadAudit": _OPERATOR,
    # Health says only whether the process serves.
    "/grpc.health.v1.Health/Check": frozenset(Role),
    "/grpc.health.v1.Health/Watch": frozenset(Role),
}

LISTENERS: dict[str, frozenset[Role]] = {"mcp": _BRAIN}
"""The vault's listeners that speak HTTP, and who may ask them."""


def may_ask(listener: str, role: Role) -> bool:
    """Whether the table lets a role ask an HTTP listener; False for what has no row."""
    return role in LISTENERS.get(listener, frozenset())


def open_to_anyone(method: str) -> bool:
    """Whether a method may be called without a certificate."""
    return METHODS.get(method) is ANYONE or method.startswith("/grpc.health.v1.")


def allowed(method: str, role: Role) -> bool:
    """Whether the table lets a role call a method; False for what has no row."""
    row = METHODS.get(method)
    return isinstance(row, frozenset) and role in row
