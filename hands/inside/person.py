"""What a person's tunnel runs in a hand: a shell, a copy, a port's connection, or its screen.

In a process of its own, below which is all that the person starts: it ends
with the tunnel, however that ends, and takes all of it along.
"""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hands.inside import runner, tree, wire
from hands.inside import tunnel_frames as frames


class Setting(NamedTuple):
    """The hand as the person finds it."""

    folder: Path
    """The hand's own, where the daemon listens."""
    workspace: Path
    cwd: Path
    environment: dict[bytes, bytes]


def body(setting: Setting, kind: str, options: Mapping[str, Any], name: str) -> runner.Body:
    """A runner's body that connects to the daemon's socket `name` and serves one tunnel."""

    def run(_report: object) -> None:
        try:
            connected = wire.connect(setting.folder, name)
            with connected:
                try:
                    facts = _serve(setting, kind, options, connected)
                except OSError as error:
                    facts = {"problem": (error.strerror or str(error)).lower()}
                # Before it is said that it is over.
                tree.kill_below(os.getpid())
                connected.setblocking(True)
                connected.sendall(frames.told(frames.EXIT, **facts))
        except (wire.Gone, OSError):
            pass  # the daemon is gone, or has ended it
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            tree.kill_below(os.getpid())

    return run


def _serve(
    setting: Setting, kind: str, options: Mapping[str, Any], connected: Any
) -> dict[str, Any]:
    """Until it is over: what to say of its end. Raises Gone, OSError."""
    # Each is loaded when it is needed, and here: a hand that nobody enters is ready sooner.
    if kind == "shell":
        from hands.inside import person_shell

        return person_shell.serve(setting.cwd, setting.environment, options, connected)
    if kind == "forward":
        from hands.inside import person_port

        return person_port.serve(int(options["port"]), connected)
    if kind in ("view", "control"):
        from hands.inside import person_view

        which = person_view.WATCHES if kind == "view" else person_view.CONTROLS
        return person_view.serve(setting.folder, which, connected)
    from hands.inside import copying

    return copying.serve(setting.workspace, options, wire.Passing(connected))
