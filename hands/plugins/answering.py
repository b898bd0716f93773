"""What a hand type's class says when it is asked: the process that `hands/plugins/asked.py` starts.

`describe` writes one JSON object, `described` and `unready`, or `wrong`; `units` writes `units`,
and `reset` with a unit's id `reset`. Each ends when its standard input does.
"""

import asyncio
import inspect
import json
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from hands import described
from hands.api import ToolError, Unit
from hands.plugins.loading import WHY_MAX, brief, kind_of, load
from hands.plugins.told_units import UNITS_MAX

MEMORY = 4 * 2**30
"""Bytes of its own that a process may have which is asked something and is no hand's."""
_FIRST_KILLED = "1000"


def main() -> None:
    """`MODE MODULE:CLASS FD …`, as the command line has it; FD is where the answer goes."""
    mode, target, fd = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="replace")  # type: ignore[union-attr]
    _guard(fd)
    _bound()
    told = json.dumps(_ASKED[mode](target, *sys.argv[4:])).encode() + b"\n"
    while told:
        told = told[os.write(fd, told) :]
    os._exit(0)  # whatever threads it started


def _guard(answer: int) -> None:
    """Go on in a child, and stay to end it, with all of this group, once the daemon has ended.

    The child runs what others wrote, and may hang for good.
    """
    child = os.fork()
    if child == 0:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        return
    os.close(answer)
    ended = os.pidfd_open(child)
    if ended in select.select([0, ended], [], [])[0]:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)
    os.killpg(0, signal.SIGKILL)


def _bound() -> None:
    """Keep what is asked here, and each process it starts, from the machine's memory.

    A hand has control groups; this has none, and is over in a minute.
    """
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if most == resource.RLIM_INFINITY or most > MEMORY:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    # Of a machine that has less, the kernel takes this first.
    Path("/proc/self/oom_score_adj").write_text(_FIRST_KILLED)


def _described(target: str) -> dict[str, Any]:
    try:
        kind = load(target)
        told = described.described(kind)
    except TypeError as error:
        return {"wrong": str(error)}
    except BaseException as error:  # noqa: BLE001 - of whatever it raises the owner is told
        traceback.print_exc()
        return {"wrong": f"importing {target} failed: {brief(error)}"}
    try:
        unready: Any = kind.probe()
    except BaseException as error:  # noqa: BLE001 - as above
        traceback.print_exc()
        unready = f"its probe failed: {brief(error)}"
    if type(unready) is not str:
        unready = f"its probe gave {kind_of(unready)}; it must give why there is no hand, or ''"
    return {"described": told, "unready": unready[:WHY_MAX]}


def _units(target: str) -> dict[str, Any]:
    try:
        kind: Any = load(target)
        named = list(islice(_done(kind.units()), UNITS_MAX + 1))
        for each in named:
            if not isinstance(each, Unit):
                raise TypeError(f"`units` names {kind_of(each)}, and a unit is a Unit")
        told = [[each.unit_id, dict(each.labels)] for each in named]
        json.dumps(told)
    except BaseException as error:  # noqa: BLE001 - as above
        traceback.print_exc()
        return {"wrong": f"its `units` failed: {brief(error)}"}
    return {"units": told}


def _reset(target: str, unit_id: str) -> dict[str, Any]:
    try:
        kind: Any = load(target)
        given = _done(kind.reset(unit_id))
        if given is not None:
            raise TypeError(f"`reset` gave {kind_of(given)}; it gives nothing, or raises why not")
    except BaseException as error:  # noqa: BLE001 - as above
        traceback.print_exc()
        return {"wrong": brief(error, plain=isinstance(error, ToolError)) or "it does not say why"}
    return {"reset": True}


def _done(given: Any) -> Any:
    """What a method gave, also one that is `async`."""
    if not inspect.iscoroutine(given):
        return given
    loop = asyncio.new_event_loop()
    return loop.run_until_complete(given)


_ASKED: Mapping[str, Callable[..., dict[str, Any]]] = {
    "describe": _described,
    "units": _units,
    "reset": _reset,
}


if __name__ == "__main__":
    main()
