"""`carpal` as a process whose guard dials a test's own servers: `… PORT,PORT BUNDLE session …`."""

import sys
from functools import partial
from pathlib import Path

from carpal.cli import main
from tests.vault.guard.upstream import Names, Widened
from tests.vault.mcp.world import HOST
from tests.vault.oauth.server import AS_HOST
from vault.guard import transport

if __name__ == "__main__":
    ports, bundle = [int(each) for each in sys.argv[1].split(",")], Path(sys.argv[2]).read_text()
    names = Names({HOST: [["127.0.0.1"]], AS_HOST: [["127.0.0.1"]]})
    made = partial(transport.Guard, rule=Widened(ports), resolver=names, authorities=bundle)
    vars(transport)["Guard"] = made
    del sys.argv[1:3]
    main()
