"""A process that asks for consent as the command does: `… URL HOST PORT BUNDLE [--no-browser]`."""

import json
import sys
from pathlib import Path

from tests.vault.guard.upstream import Names, Widened
from vault.commands.oauth import OPTIONS, consented
from vault.guard.transport import Guard


def main(url: str, host: str, port: str, bundle: str, *flags: str) -> None:
    """Names of the secrets there are then, and the policy."""

    def guard() -> Guard:
        names = Names({host: [["127.0.0.1"]]})
        authorities = Path(bundle).read_text()
        return Guard(rule=Widened([int(port)]), resolver=names, authorities=authorities)

    options = dict.fromkeys(OPTIONS) | {"private_networks": (), "no_browser": bool(flags)}
    made = consented(url, {}, options, guard)
    print(json.dumps({"secrets": sorted(made.secrets), "policy": made.policy}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
