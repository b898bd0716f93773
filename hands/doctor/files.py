"""What is on the disk: whose the files are, who may read them, who the daemon is, until when."""

import os
import pwd
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from carpal.audit_files import AuditFiles
from carpal.errors import CarpalError
from carpal.identity import Identity, Role
from carpal.tls import Loaded
from hands.doctor.rows import Row, fail, ok, refused, skip, warn
from hands.doctor.subject import Subject
from hands.enroll import Links, links_path

_LATE = 0.75
"""Of a certificate's life, after which it is late: it is renewed at half."""
_PROOF = timedelta(days=30)
"""After its end, as long as which it is still good for a renewal."""


def user(subject: Subject) -> list[Row]:
    """Who looks, and whose daemon this is."""
    folder, me = subject.files.folder, os.geteuid()
    try:
        owner = folder.stat().st_uid
    except FileNotFoundError:
        return [ok("user", f"looked as {_name(me)}; {folder} is not there yet")]
    except PermissionError as error:
        return [fail("user", f"{error.filename} cannot be looked into", _as_another(folder))]
    if owner == me:
        return [ok("user", f"looked as {_name(me)}, whose daemon this is")]
    detail = f"looked as {_name(me)}; the daemon of {folder} is {_name(owner)}'s"
    if me == 0:
        action = f"to see what that user can do, run it as that one: sudo -u {_name(owner)} …"
        return [warn("user", detail, action)]
    return [fail("user", detail, _as_another(folder))]


def files(subject: Subject) -> list[Row]:
    """Each file that others may read, or that is not the daemon's."""
    folder = subject.files.folder
    if not folder.exists():
        return [skip("files", f"there is no {folder} yet")]
    wrong = list(_wrong(subject))
    return wrong or [ok("files", f"what is in {folder} is its owner's alone")]


def enrolment(subject: Subject) -> list[Row]:
    """Whether it is anybody's daemon, and of which brains."""
    state = subject.settings.state_dir
    if not subject.enrolled:
        detail = f"this machine is not enrolled: there is no identity in {subject.files.folder}"
        action = (
            "make a token with `carpal fleet token` where you operate Carpal, and run: "
            f"carpal hand enroll --token-file FILE --state-dir {state}"
        )
        return [warn("enrolment", detail, action)]
    path = links_path(subject.files.identity_dir)
    try:
        links = Links.load(path)
    except CarpalError as error:
        return [refused("enrolment", error)]
    if not links.brains:
        return [fail("enrolment", f"{path} names no brain", "enrol with `carpal hand enroll`")]
    return [ok("enrolment", f"dials {', '.join(links.brains)}; renews at {links.enrollment}")]


def identity(subject: Subject) -> list[Row]:
    """Whether key, certificate and authority belong together, and are a daemon's."""
    if not subject.enrolled:
        return [skip("identity", "there is none yet")]
    me = subject.files.identity.look().identity
    if me.role is not Role.DAEMON:
        detail = f"the identity in {subject.files.identity_dir} is {me.uri}, not a daemon's"
        return [fail("identity", detail, "enrol with `carpal hand enroll`")]
    pool = f", pool {me.pool}" if me.pool else ""
    return [ok("identity", f"{me.uri}, workspace {me.workspace}{pool}")]


def certificate(subject: Subject, loaded: Loaded | None) -> list[Row]:
    """Whether its time is now, by this machine's clock."""
    if loaded is None:
        return [skip("certificate", "there is no identity to look at")]
    me, now = loaded.identity, subject.now()
    when = f"valid from {me.not_before:%F %T} to {me.not_after:%F %T} UTC, and it is {now:%F %T}"
    if me.not_yet_valid(now):
        return [fail("certificate", when, "set this machine's clock: see the row `clock`")]
    if now >= me.not_after + _PROOF:
        return [fail("certificate", f"{when}: too late to renew it", _anew(subject))]
    if me.expired(now):
        action = (
            "start the daemon, which renews it as soon as a brain and the vault answer; if it "
            "runs, see the rows `clock`, `tcp` and `standing`"
        )
        return [fail("certificate", when, action)]
    if now >= me.not_before + _LATE * (me.not_after - me.not_before):
        action = "see that the daemon runs, and the vault: it is renewed at half of its time"
        return [warn("certificate", f"{when}: it should have been renewed by now", action)]
    return [ok("certificate", when)]


def next_step(subject: Subject, me: Identity | None) -> str:
    """The command that comes next on this machine, once all is well."""
    state = subject.settings.state_dir
    if me is None:
        return f"carpal hand enroll --token-file FILE --state-dir {state}"
    return f"carpal hand run --state-dir {state}"


def _wrong(subject: Subject) -> Iterator[Row]:
    mine = subject.files
    owner = mine.folder.stat().st_uid
    parts = [mine.folder, mine.identity_dir, links_path(mine.identity_dir), mine.journal]
    audit = AuditFiles(mine.folder)
    parts += [mine.hands, mine.revoked, audit.log, audit.head]
    for part in (mine.identity, mine.identity.candidate):
        parts += [part.directory, part.key, part.certificate, part.ca]
    for path in dict.fromkeys(parts):
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        except PermissionError as error:
            yield fail("files", f"{path} cannot be looked at", _as_another(Path(error.filename)))
            continue
        if stat.S_ISLNK(found.st_mode):
            yield fail("files", f"{path} is a link", f"put the file itself there: {path}")
        elif found.st_uid != owner:
            detail = f"{path} is {_name(found.st_uid)}'s, and the daemon's folder {_name(owner)}'s"
            yield fail("files", detail, f"run: chown {_name(owner)}: {path}")
        elif found.st_mode & 0o077 and path != mine.journal:
            mode = "700" if stat.S_ISDIR(found.st_mode) else "600"
            detail = f"{path} is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
            yield fail("files", detail, f"run: chmod {mode} {path}")
        elif not found.st_mode & stat.S_IWUSR:
            detail = f"the daemon may not write {path} (mode {stat.S_IMODE(found.st_mode):04o})"
            yield fail("files", detail, f"run: chmod u+rw {path}")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _as_another(path: Path) -> str:
    try:
        whose = f"as {_name(path.stat().st_uid)} or root"
    except OSError:
        whose = "as root"
    return f"run it {whose}, or give your own --state-dir"


def _anew(subject: Subject) -> str:
    state = subject.settings.state_dir
    return f"enrol anew, with a new token: carpal hand enroll --token-file FILE --state-dir {state}"
