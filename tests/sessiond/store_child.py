"""A process that appends to a store until it is killed, saying what was acknowledged."""

import sys
from pathlib import Path

from sessiond.clock import SystemClock
from sessiond.sqlite import checkpoint as sqlite_checkpoint
from sessiond.sqlite.store import SqliteStore
from tests.sessiond.desk import Desk, message

# So that the write-ahead log is copied back and begun anew all the time.
sqlite_checkpoint._CHECKPOINT_PAGES = 20
sqlite_checkpoint.RESET_PAGES = 60

store = SqliteStore(Path(sys.argv[1]), SystemClock())
desk = Desk(store, SystemClock())  # type: ignore[arg-type]
desk.create()
head = desk.session().head
while True:
    head += 1
    desk.append("sesn_1", message(f"e{head}", bytes(head * 997 % 20_000)))
    store.maintain()
    sys.stdout.write(f"{head}\n")
    sys.stdout.flush()
