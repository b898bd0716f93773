"""Runs one hand's calls, inside it, and outlives the daemon that started it.

`python3 -I -S /path/to/hands/supervisor.py --folder F --workspace W --hand-id H
--deadline S`, standard library only. It binds `F/socket`, says one JSON line
(`pid`, `start`) on stdout and goes on in the background, in a session of its
own; with `--stay` as the very process that was started, for whoever starts it
as the first one of a sandbox or a container. The daemon talks to it in frames:
four bytes of length, big endian, then one JSON object.

From the daemon: `run {call_id, tool, input, limit}`, `cancel {call_id, grace}`,
`forget {call_id}` (its result is in the journal), `contact` (a brain with a
live lease was heard), `ping`, `end`. To the daemon: first `hello {pid, start,
calls, quiet, answers}`, then everything it holds anew; `started {call_id, pid,
start}`, `output` (the beginning), `spooled {call_id, end}` (there is output up
to there, in the call's spool or left out), `result`, `pong`. A call_id is run
once, ever. Without contact for longer than the deadline, on a clock that counts
sleep, it kills its whole tree and ends.
"""

import gc
import sys
from pathlib import Path

if __name__ == "__main__":
    gc.disable()  # what is loaded stays; to look through it again and again is a tenth of the start
    # Under -I nothing but the standard library is found; our own files follow it.
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from hands.inside.starting import main

if __name__ == "__main__":
    main()
