"""A vault that is a process, and whose guard dials a test's own servers on loopback.

`python -m tests.vault.widened PORT[,PORT…] BUNDLE vault run …`: no flag or variable of the real one
does.
"""

import sys
from functools import partial
from pathlib import Path

from carpal.cli import main
from tests.vault.guard import upstream
from tests.vault.guard.upstream import Names, Widened
from tests.vault.mcp.world import HOST
from tests.vault.oauth.server import AS_HOST
from vault import service
from vault.guard.transport import Guard

HOSTS = (HOST, AS_HOST, upstream.HOST)

if __name__ == "__main__":
    ports, bundle = map(int, sys.argv[1].split(",")), Path(sys.argv[2]).read_text()
    made = partial(
        Guard,
        rule=Widened(ports),
        resolver=Names({host: [["127.0.0.1"]] for host in HOSTS}),
        authorities=bundle,
    )
    vars(service)["Guard"] = made
    del sys.argv[1:3]
    main()
