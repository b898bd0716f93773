"""Making a trust domain, and identities by command: for whoever owns the vault's machine."""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.identity import Identity, Role, check_claims, check_trust_domain
from carpal.status import Reason
from carpal.tls import IdentityFiles, key_pem, new_key, write_file
from carpal.trust_watch import REVOCATIONS
from vault.authority.ca import Authority, Claims, new_authority
from vault.authority.revoking import Revoker
from vault.authority.signing import Signer
from vault.database import Database
from vault.files import VaultFiles
from vault.making import new_vault
from vault.opened import Opened, local_actor, open_all, opened
from vault.safe.anchor import Anchor
from vault.safe.safe import Safe
from vault.seal.seals import SealKind, make

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
SESSIOND_PORT, BRAIN_PORT, VAULT_PORT = 7440, 7441, 7443
"""The processes' defaults; the second brain takes the ports ten above, and so on."""


@dataclass(frozen=True, slots=True)
class Made:
    """An identity that was written."""

    identity: Identity
    directory: Path


def init(
    files: VaultFiles,
    trust_domain: str,
    holders: Sequence[Claims],
    now: Callable[[], datetime],
    *,
    seal: SealKind = SealKind.FILE,
    settings: Mapping[str, Any] | None = None,
    audit_key: Path | None = None,
) -> list[Made]:
    """Make the seal, the CA and the processes' identities; nothing when there is a CA already.

    `audit_key` is where the audit's first key goes, to be kept elsewhere. Raises CONFIG_INVALID
    when a CA, or any identity it would write over, is there, and for a seal that cannot be.
    """
    check_trust_domain(trust_domain)
    for claims in holders:
        check_claims(trust_domain, claims.role, claims.name, claims.workspace, claims.pool)
    with files.only_process():
        if files.has_authority() or files.plain_keys or files.store.exists():
            raise refuse(
                Reason.CONFIG_INVALID,
                f"there is a certificate authority in {files.folder} already; nothing was changed",
                action="issue what is missing with `carpal vault issue ROLE NAME`",
            )
        for claims in holders:
            directory = files.identity(claims.role, claims.name).directory
            if directory.exists():
                raise refuse(
                    Reason.CONFIG_INVALID,
                    f"{directory} holds an identity of another vault; nothing was changed",
                    action="choose another --state-dir, or remove it",
                )
        _make(files, new_authority(new_key(), trust_domain, now()), seal, settings, audit_key)
    return [
        issue(files, claims, files.identity(claims.role, claims.name), now) for claims in holders
    ]


def _make(
    files: VaultFiles,
    authority: Authority,
    kind: SealKind,
    settings: Mapping[str, Any] | None,
    audit_key: Path | None,
) -> None:
    """The database is what counts: until it is committed there is no vault."""
    row, kek = make(kind, settings or {"path": files.seal_key}, files.given, files.folder)
    write_file(files.ca, authority.pem)
    first_key = os.urandom(32)
    if audit_key is not None:
        write_file(audit_key, first_key, mode=0o400)
    with closing(Database(files.store)) as database:
        new_vault(database, files, row, kek, [authority])
        with open_all(files, Safe(database, kek, Anchor(files.anchor)), first_key) as it:
            it.audit.written("init", actor=local_actor(), seal=str(kind))


def write_addresses(files: VaultFiles) -> None:
    """Tell the operator of this state folder the usual addresses, unless it was told others."""
    path = files.state / "operator" / "operator.toml"
    if not path.exists():
        text = f'sessiond = "{HOST}:{SESSIOND_PORT}"\nvault = "{HOST}:{VAULT_PORT}"\n'
        write_file(path, text.encode())


def next_commands(brains: Sequence[str]) -> list[str]:
    """What to run after `init`, in order, all on this machine and on the usual addresses."""
    lines = ["carpal vault run", "carpal sessiond run"]
    for index, name in enumerate(brains):
        port = BRAIN_PORT + 10 * index
        listen = f" --listen {HOST}:{port} --enroll-listen {HOST}:{port + 1}" if index else ""
        lines.append(f"carpal brain run --name {name}{listen}")
    return [*lines, "carpal fleet token --name NAME --out FILE"]


def issue(
    files: VaultFiles, claims: Claims, out: IdentityFiles, now: Callable[[], datetime]
) -> Made:
    """A new key and certificate in `out`, where the same identity or none was before.

    Beside that of a server of this machine it leaves the list of who is revoked, so that one
    that starts while the vault is away has one. Works while the vault runs. Raises
    CONFIG_INVALID when `out` is another identity's.
    """
    with opened(files) as it:
        return _issue(it, claims, out, now)


def _issue(it: Opened, claims: Claims, out: IdentityFiles, now: Callable[[], datetime]) -> Made:
    files, authorities = it.files, it.authorities()
    domain = authorities.signing.trust_domain
    check_claims(domain, claims.role, claims.name, claims.workspace, claims.pool)
    uri = claims.uri(domain)
    if out.certificate.exists() and (there := out.identity().uri) != uri:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{out.directory} holds {there}, not {uri}; nothing was changed",
            action="choose another --out",
        )
    key = new_key()
    with it.audit.intent_now("issue", actor=local_actor(), identity=uri):
        signer = Signer(lambda: authorities, it.store, now)
        issued = signer.issue_by_command(claims, key.public_key())
        revoked = Revoker(signer, it.store, now).signed_list()
    here = files.identity(claims.role, claims.name).directory
    if out.directory == here and not claims.role.has_workspace:
        write_file(out.directory.parent / REVOCATIONS, revoked.SerializeToString())
    out.install(key_pem(key), issued.chain, authorities.bundle)
    return Made(out.identity(), out.directory)


def renew_here(
    files: VaultFiles, uris: Sequence[str], now: Callable[[], datetime]
) -> list[IdentityFiles]:
    """Issue anew those of these servers and operators whose identities are in this state folder.

    Who may run commands here may have them anyway. What cannot be written now is left out.
    """
    made = []
    for uri in uris:
        _, role, name = uri.removeprefix("spiffe://").split("/")
        here = files.identity(Role(role), name)
        if Role(role) is Role.DAEMON or not here.certificate.exists():
            continue  # a daemon's key is made by the daemon
        try:
            if (there := here.identity()).uri == uri:
                issue(files, Claims(there.role, name, there.workspace, there.pool), here, now)
                made.append(here)
        except (CarpalError, OSError) as error:
            _log.warning("not issued anew", extra={"identity": uri, "why": str(error)})
    return made


def revoke(
    files: VaultFiles, role: Role, name: str, reason: str, now: Callable[[], datetime]
) -> str:
    """Revoke an identity; its URI. Works while the vault runs. Raises IDENTITY_NOT_FOUND."""
    with opened(files) as it:
        authorities = it.authorities()
        revoker = Revoker(Signer(lambda: authorities, it.store, now), it.store, now)
        said = {"role": str(role), "name": name}
        with it.audit.intent_now("revoke", actor=local_actor(), **said) as record:
            uri = revoker.by_command(role, name, reason)
            record.add(identity=uri)
        return uri
