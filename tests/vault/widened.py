"""A vault that is a process, and whose guard dials a test's own server on loopback.

`python -m tests.vault.widened PORT BUNDLE vault run …`: no flag or variable of the real one does.
"""

import sys
from functools import partial
from pathlib import Path

from carpal.cli import main
from tests.vault.guard.upstream import Names, Widened
from tests.vault.mcp.world import HOST
from vault import service
from vault.guard.transport import Guard

if __name__ == "__main__":
    port, bundle = int(sys.argv[1]), Path(sys.argv[2]).read_text()
    made = partial(
        Guard, rule=Widened([port]), resolver=Names({HOST: [["127.0.0.1"]]}), authorities=bundle
    )
    vars(service)["Guard"] = made
    del sys.argv[1:3]
    main()
