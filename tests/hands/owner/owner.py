"""The owner of a machine, for tests."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from carpal.audit_files import AuditFiles
from carpal.errors import CarpalError
from hands.blobs import Blobs
from hands.owner.audit import Audit
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from tests.hands.place import Place, open_place

KEY = "AKIAABCDEFGHIJKLMNOP"
"""What an owner strikes out."""


class Owner:
    """A policy file, and what it leads to."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "policy.toml"
        self.folder = folder / "state"
        self.folder.mkdir()
        self.audit = Audit(self.folder)
        self.file.write_text("")
        self.gate = Gate(PolicyFile(self.file), self.audit)

    def says(self, text: str) -> None:
        """It is in force."""
        self.file.write_text(text)
        with suppress(CarpalError):
            self.gate.reload()

    def told(self, what: str = "") -> list[dict[str, Any]]:
        """The audit's records."""
        self.audit.flush()
        assert AuditFiles(self.folder).verify()[1] == []
        found = [json.loads(text) for _, text in AuditFiles(self.folder).lines()]
        return [each for each in found if not what or each["what"] == what]

    @asynccontextmanager
    async def place(self, **more: Any) -> AsyncIterator[Place]:
        """A daemon's service."""
        async with open_place(self.folder, gate=self.gate, **more) as place:
            yield place


class Taken(Blobs):
    """Blobs that went where the log is."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    async def _write(self, session_id: str, file: Any, info: Any, patience: Any) -> None:
        self.sent.append(file.read())
