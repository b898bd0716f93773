"""A bare Debian in a folder, and commands in it, with no network but what a test gives it."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.images import debian

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make(folder: Path) -> Path:
    """Its files, in `folder`. Needs root, since they keep their owners."""
    folder.mkdir()
    unpack = ["tar", "-x", "--same-owner", "-p", "-f", str(debian()), "-C", str(folder)]
    subprocess.run([*unpack, "--exclude=./dev/*"], check=True, timeout=120)
    return folder


def command(
    root: Path, *words: str, bound: Mapping[str, Path] | None = None, network: str = ""
) -> list[str]:
    """What runs `words` as root there, in a network namespace by name, else in an empty one.

    All it starts ends with it.
    """
    enter: Sequence[str] = ("ip", "netns", "exec", network) if network else ()
    alone = () if network else ("--unshare-net",)
    binds = [part for at, path in (bound or {}).items() for part in ("--ro-bind", str(path), at)]
    place = ("--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp")
    rights = ("--cap-add", "ALL", "--unshare-pid", "--die-with-parent", "--clearenv")
    path = ("--setenv", "PATH", _PATH)
    return [*enter, "bwrap", *place, *binds, *rights, *alone, *path, "--chdir", "/", *words]


def inside(pid: int, *words: str) -> list[str]:
    """What runs `words` beside the process `pid` of such a place, as on one machine."""
    spaces = ("--mount", "--pid", "--net", "--root", "--wd")
    return ["nsenter", "--target", str(pid), *spaces, "env", "-i", f"PATH={_PATH}", *words]


def run(
    root: Path, *words: str, bound: Mapping[str, Path] | None = None, seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(root, *words, bound=bound),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
