"""A daemon whose hand type stops the event loop when it is probed: `… blocking_child STATE`."""

import sys
import time
from pathlib import Path

from carpal import process
from hands import app
from hands.builtin.process import ProcessType
from hands.contract import Health


class Blocking(ProcessType):
    """A hand type with a fault."""

    async def probe(self) -> Health:
        """Never comes back, nor lets anybody else."""
        time.sleep(3600)  # noqa: ASYNC251 - its fault
        raise AssertionError


if __name__ == "__main__":
    config = app.HandConfig(state_dir=Path(sys.argv[1]), stop_wait=0)
    types = {"process": Blocking(sandbox="off")}
    process.run(lambda stop: app.run(config, stop, hand_types=types))
