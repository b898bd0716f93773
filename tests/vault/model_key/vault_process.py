"""`carpal vault run`, but that one port of this machine may be dialled under a name, for tests."""

import sys
from pathlib import Path

from tests.vault.guard.upstream import HOST, Names, Widened
from vault import app
from vault.cli import vault
from vault.door import Door
from vault.guard.transport import Guard
from vault.service import VaultService


def main(port: str, bundle: str, *arguments: str) -> None:
    def served(door: Door) -> VaultService:
        guard = Guard(
            rule=Widened([int(port)]),
            resolver=Names({HOST: [["127.0.0.1"]]}),
            authorities=Path(bundle).read_text(),
        )
        return VaultService(door, guard)

    setattr(app, "VaultService", served)  # noqa: B010
    vault([each for each in arguments if each != "vault"])


if __name__ == "__main__":
    main(*sys.argv[1:])
