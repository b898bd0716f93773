"""What the daemon asks of a hand beside its tools: put something into the workspace, or take all.

They run as calls do, each in a process of its own that can be killed whole. No
tool that a hand describes has such a name, so no model can ask for one. What they need is loaded
there, when it is: a hand without mounts is ready sooner.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hands.inside.beneath import Workspace
from hands.inside.passage import Passage

CPU_SECONDS = 3600
"""For one of them: five GiB take a while to unpack."""


def _place(workspace: Workspace, folder: Path, given: Mapping[str, Any]) -> str:
    match given["kind"]:
        case "git":
            from hands.inside import clone

            return clone.clone(workspace, given["path"], given["url"], given["ref"])
        case "tar":
            from hands.inside import unpack

            return unpack.archive(workspace, given["path"], Passage(folder, given["socket"]))
        case _:
            from hands.inside import unpack

            return unpack.file(workspace, given["path"], Passage(folder, given["socket"]))


def _save(workspace: Workspace, folder: Path, given: Mapping[str, Any]) -> str:
    from hands.inside import pack

    passage = Passage(folder, given["socket"])
    said = pack.pack(workspace, passage)
    passage.end()
    return said


TOOLS: dict[str, Callable[[Workspace, Path, Mapping[str, Any]], str]] = {
    ".place": _place,
    ".save": _save,
}
