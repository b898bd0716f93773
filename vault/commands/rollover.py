"""Replacing the CA, in three steps that may lie days apart; by command, also while it serves.

Each step is one file that is replaced: `rollover.json`. What it speaks of is
written before it, and removed after it, so that a crash between leaves one step
or the other.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from carpal.errors import CarpalError, refuse
from carpal.identity import Role
from carpal.revocations import is_server
from carpal.status import Reason
from carpal.tls import new_key, write_file
from vault.audit.audit import Record
from vault.authority import authority_keys, ca
from vault.authority.authorities import Authorities, Phase
from vault.authority.signing import RENEW_GRACE
from vault.files import RETIRING, VaultFiles, read_certificate
from vault.opened import Opened, local_actor, opened
from vault.store.store import Store


@dataclass(frozen=True, slots=True)
class Holders:
    """Who has a certificate of another CA than the newest, by their newest certificate."""

    good: list[str]
    """URIs whose certificate is good now."""
    away: list[str]
    """URIs whose certificate expired, and could still be renewed."""

    @property
    def all(self) -> list[str]:
        """Both."""
        return sorted((*self.good, *self.away))


def prepare(files: VaultFiles, now: Callable[[], datetime]) -> Authorities:
    """Make the next CA and publish it beside the one that signs. CONFIG_INVALID if it is there."""
    with _alone(files) as it:
        was = it.authorities()
        if was.phase is not Phase.SETTLED:
            raise _not_now(was, "there is a next CA already", "go on with `carpal vault ca switch`")
        if _path_length(was.signing.certificate) == 0:
            raise refuse(
                Reason.CONFIG_INVALID,
                "this CA may sign no other, so it cannot vouch for the next; nothing changed",
                action="put one made by `carpal vault init --state-dir NEW` in its place: "
                "docs/how-to/revoke-and-rotate.md, 'An authority that may sign no other'",
            )
        following = ca.new_authority(new_key(), was.signing.trust_domain, now())
        with _audited(it, "ca.prepare", following.certificate):
            with it.safe.transaction():
                authority_keys.put(it.safe, following)
            write_file(files.next_ca, following.pem)
            cross = ca.cross_sign(was.signing, following.certificate, now())
            write_file(files.cross, ca.pem(cross))
            _step(files, Phase.PREPARED)
        return it.authorities()


def switch(files: VaultFiles) -> Authorities:
    """Have the next CA sign from now on. CONFIG_INVALID when there is none."""
    with _alone(files) as it:
        was = it.authorities()
        if was.phase is not Phase.PREPARED:
            done = was.phase is Phase.SWITCHED
            why = "the next CA signs already" if done else "there is no next CA"
            raise _not_now(was, why, f"run `carpal vault ca {'retire' if done else 'prepare'}`")
        with _audited(it, "ca.switch", was.other):
            _step(files, Phase.SWITCHED)
        return it.authorities()


def retire(
    files: VaultFiles,
    now: Callable[[], datetime],
    *,
    anyway: bool = False,
    servers_too: bool = False,
) -> Authorities:
    """Trust the CA before no more, and destroy its key.

    CONFIG_INVALID while the next does not sign, or while there are good
    certificates of the one before: those of daemons and operators are cut off
    with `anyway`, and with `servers_too` those without which nothing serves.
    """
    with _alone(files) as it:
        was = it.authorities()
        step = files.rollover_step()
        if step != RETIRING:
            if was.phase is not Phase.SWITCHED:
                what = "switch" if was.phase is Phase.PREPARED else "prepare"
                raise _not_now(was, "the next CA does not sign yet", f"`carpal vault ca {what}`")
            _check_renewed(was, holders(it.store, was, now()), anyway, servers_too)
            _step(files, RETIRING)
        with _audited(it, "ca.retire", was.signing.certificate):
            if files.next_ca.exists():
                write_file(files.ca, files.next_ca.read_bytes())
            with it.safe.transaction():
                authority_keys.destroy_others(it.safe, read_certificate(files.ca))
            it.safe.database.forget()
            files.rollover.unlink()
            for path in (files.next_ca, files.cross):
                path.unlink(missing_ok=True)
        return it.authorities()


def holders(store: Store, authorities: Authorities, now: datetime) -> Holders:
    """Who is still to renew before the CA before can be retired; or could not any more, after."""
    newest = authorities.signing
    since = int((now - RENEW_GRACE).timestamp())
    rows = store.holders_of_others(ca.key_id(newest.certificate), since)
    seconds = now.timestamp()
    return Holders(
        [identity for identity, expires in rows if expires > seconds],
        [identity for identity, expires in rows if expires <= seconds],
    )


def _check_renewed(was: Authorities, left: Holders, anyway: bool, servers_too: bool) -> None:
    servers = [uri for uri in left.good if is_server(uri)]
    if left.good and not anyway:
        some = ", ".join([*servers, *(uri for uri in left.good if uri not in servers)][:5])
        raise _not_now(
            was,
            f"{len(left.good)} identities have a certificate of the CA before: {some}",
            "wait until they renewed, within 24 h, or give --yes to cut them off",
        )
    if servers and not servers_too:
        raise _not_now(
            was,
            f"{', '.join(servers)} would be cut off, and nothing goes on without them",
            "they renew within seconds while they run and reach the vault: see their logs; revoke "
            "those that are gone (`carpal vault revoke ROLE NAME`), or give --servers-too",
        )


def way_back(uri: str) -> str:
    """What is to be done for one that was cut off: its certificate renews no more."""
    _, role, name = uri.removeprefix("spiffe://").split("/")
    if role == Role.DAEMON:
        return f"carpal fleet token --name {name} --out FILE, and there carpal hand enroll"
    return f"carpal vault issue {role} {name}"


def _step(files: VaultFiles, step: str) -> None:
    write_file(files.rollover, json.dumps({"phase": step}).encode() + b"\n")


def _path_length(certificate: x509.Certificate) -> int | None:
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length


@contextmanager
def _alone(files: VaultFiles) -> Iterator[Opened]:
    """One command at a time; the vault itself only reads."""
    files.check_made()
    descriptor = os.open(files.folder / "ca.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with opened(files) as it:
            yield it
    finally:
        os.close(descriptor)


def _audited(
    it: Opened, action: str, certificate: x509.Certificate | None
) -> AbstractContextManager[Record]:
    name = "" if certificate is None else ca.key_id(certificate)
    return it.audit.intent_now(action, actor=local_actor(), serial=name)


def _not_now(authorities: Authorities, why: str, action: str) -> CarpalError:
    return refuse(
        Reason.CONFIG_INVALID, f"{why} (it is {authorities.phase}); nothing changed", action=action
    )
