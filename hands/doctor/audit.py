"""The audit of the owner: whether it can be written, else calls are refused; and whether whole."""

import os

from carpal.audit_files import AuditFiles
from hands.doctor.rows import Row, fail, ok, skip, warn
from hands.doctor.subject import Subject

_MOST = 64 << 20
"""Bytes that are read through; a chain of that many takes some seconds."""


def look(subject: Subject) -> list[Row]:
    """Its file opened as the daemon opens it, with nothing written; and its chain."""
    files = AuditFiles(subject.files.folder)
    if not os.path.lexists(files.log):
        return [skip("audit", "there is none yet: the daemon begins it")]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        os.close(os.open(files.log, flags))
    except PermissionError:
        raise
    except OSError as error:
        detail = f"{files.log} cannot be written ({error.strerror}): new calls are refused"
        return [fail("audit", detail, f"move {files.log} away, or mend it")]
    size = sum(path.stat().st_size for path in (*files.older(), files.log))
    if size > _MOST:
        return [ok("audit", "it can be written; to read it through: carpal hand audit verify")]
    verifier, problems = files.verify()
    if problems:
        action = "find out who changed it, and keep what is there: carpal hand audit verify"
        return [warn("audit", f"{problems[0].where}: {problems[0].what}", action)]
    return [ok("audit", f"it can be written, and its {verifier.lines} lines are whole")]
