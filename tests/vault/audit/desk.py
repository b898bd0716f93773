"""An audit in a folder, whose key is sealed by nothing: the seal has tests of its own."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from vault.audit.audit import Audit
from vault.audit.chain import Marks
from vault.audit.opening import AuditReader, open_audit
from vault.audit.verify import Verdict

FIRST = bytes(range(32))
ACTOR = "spiffe://carpal.internal/brain/brain-1"


class Plain:
    """No seal."""

    def seal(self, number: int, key: bytes) -> bytes:
        return b"%d " % number + key

    def open(self, number: int, sealed: bytes) -> bytes:
        found, _, key = sealed.partition(b" ")
        assert int(found) == number
        return key


@contextmanager
def opened(folder: Path) -> Iterator[Audit]:
    with open_audit(folder, Plain(), first_key=FIRST) as audit:
        yield audit


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / "audit.log").read_text().splitlines()]


def checked(folder: Path, first: bytes | None = FIRST) -> Verdict:
    with closing(AuditReader(folder)) as reader:
        return reader.verify(None if first is None else Marks(0, first))
