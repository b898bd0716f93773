"""What is done with the issuer on the vault's machine: made, written out, turned."""

import json
import time
from pathlib import Path

from carpal.errors import invalid
from carpal.tls import write_file
from vault.files import VaultFiles
from vault.issuer import issuer
from vault.issuer.documents import documents
from vault.issuer.keys import Keys
from vault.opened import local_actor, opened

_READABLE = 0o644
"""Documents are for everybody, and a web server is not the vault's user."""


def make(files: VaultFiles, url: str) -> Keys:
    """The issuer of that URL. Raises as `issuer.make`."""
    with opened(files) as it, it.audit.intent_now("issuer.init", actor=local_actor()) as record:
        keys = issuer.make(it.safe, url)
        record.add(kid=keys.signing.id)
        return keys


def export(files: VaultFiles, out: Path) -> list[Path]:
    """Write the documents below a folder, as they are to be below the URL; which those are."""
    now = int(time.time())
    with opened(files) as it:
        told = documents(issuer.load(it.safe), now)
        written = []
        try:
            for name, document in told.items():
                path = out / name
                path.parent.mkdir(parents=True, exist_ok=True)
                write_file(path, json.dumps(document, indent=2).encode() + b"\n", _READABLE)
                written.append(path)
        except OSError as error:
            raise invalid("DIR", f"{out} cannot be written to ({error.strerror})") from None
        with it.audit.intent_now("issuer.export", actor=local_actor()) as record:
            record.add(kid=issuer.publish(it.safe, now).next.id)
        return written


def rotate(files: VaultFiles, *, at_once: bool) -> Keys:
    """Have the next key sign. Raises as `issuer.turn`."""
    with opened(files) as it, it.audit.intent_now("issuer.rotate", actor=local_actor()) as record:
        keys = issuer.turn(it.safe, int(time.time()), at_once=at_once)
        record.add(kid=keys.signing.id)
        return keys
