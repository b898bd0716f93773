"""A sandbox by bubblewrap: what a hand's code sees of the machine, and how it is started in it.

Its own processes, network, user or user ids, and folders; of the machine only
the programs, read-only. As root the daemon lets bubblewrap mount and gives the
hand a user id of its own after that; else the kernel's user namespaces do it,
under the daemon's own id. It does not end with the daemon or a thread of it.
"""

import compileall
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

FOLDER = "/run/carpal"
"""The hand's own folder, inside."""
WORKSPACE = "/workspace"
HOME = "/home/hand"
CODE = "/opt/carpal"
"""Where the supervisor is, inside."""
PACKAGES = "/opt/python"
"""Where the daemon's virtual environment is, inside: nothing tells where it is outside."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HANDS = Path(__file__).resolve().parents[1]
_LINKS = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")
_ETC = (
    *("alternatives", "ld.so.cache", "localtime", "mime.types", "protocols", "services"),
    *("ca-certificates", "ssl/certs", "ssl/openssl.cnf", "pki/ca-trust", "pki/tls/certs"),
)
"""Of /etc: what programs need to run at all, and nothing that is this machine's own."""
_MIB = 1024 * 1024
TMP_MAX = 1024 * _MIB
"""Bytes of /tmp, which is memory."""
SHM_MAX = 64 * _MIB


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One hand's."""

    folder: Path
    """Becomes `FOLDER`."""
    workspace: Path
    """Becomes `WORKSPACE`."""
    home: Path | None
    """Becomes `HOME`; None for memory."""
    uid: int | None
    """The hand's, given to it by root; None for the daemon's own, which is not root then."""
    gid: int | None
    environment: Mapping[str, str]
    tmp: Path | None = None
    """Becomes /tmp; None for memory."""
    tmp_max: int = TMP_MAX
    shm_max: int = SHM_MAX
    home_max: int = TMP_MAX
    """Bytes of it, where it is memory."""
    binds: Sequence[tuple[Path, str]] = ()
    """More folders to write in."""
    readable: Sequence[tuple[Path, str]] = ()
    """More of the machine to read, where it is there."""
    packages: bool = False
    """It runs classes of ours, with the daemon's Python packages, as `hosting_python` says."""
    namespaces: bool = False
    """What runs in it may make a sandbox of its own, as browsers do."""


def arguments(box: Sandbox, command: Sequence[str], options: int) -> list[str]:
    """The command line that starts `command` in it.

    `options` is a descriptor of their text: anyone on the machine may read a command line, and
    the hand's environment may hold secrets.
    """
    line = ["bwrap", "--args", str(options), "--"]
    if box.uid is not None:
        ids = ["--reuid", str(box.uid), "--regid", str(box.gid), "--clear-groups"]
        # By its place: it is root still, and the hand's PATH may lead to another's program.
        line += [
            shutil.which("setpriv", path=PATH) or "/usr/bin/setpriv",
            *ids,
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--no-new-privs",
            "--",
        ]
    return [*line, *command]


def options(box: Sandbox, *, seccomp: int, passwd: int, group: int) -> bytes:
    """All that makes the sandbox, as bubblewrap reads it.

    `seccomp`, `passwd` and `group` are descriptors: of the filter, and of those files' text.
    """
    line = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    line += ["--unshare-cgroup-try", "--new-session", "--as-pid-1", "--hostname", "hand"]
    line += ["--cap-drop", "ALL"]
    if box.uid is None:
        line += ["--unshare-user", *([] if box.namespaces else ["--disable-userns"])]
    else:
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            line += ["--cap-add", capability]  # for setpriv, which gives them away
    line += [*_system(), "--proc", "/proc", "--dev", "/dev"]
    line += ["--perms", "1777", "--size", str(box.shm_max), "--tmpfs", "/dev/shm"]  # noqa: S108 - its own
    line += ["--remount-ro", "/dev"]
    if box.tmp is None:
        line += ["--perms", "1777", "--size", str(box.tmp_max), "--tmpfs", "/tmp"]  # noqa: S108 - its own
    else:
        line += ["--bind", str(box.tmp), "/tmp"]  # noqa: S108 - its own
    line += ["--symlink", "../tmp", "/var/tmp"]  # noqa: S108 - its own
    for name, handle in (("passwd", passwd), ("group", group)):
        # Without a mode it would be root's alone, and nobody in the hand would have a name.
        line += ["--perms", "0644", "--ro-bind-data", str(handle), f"/etc/{name}"]
    line += ["--bind", str(box.folder), FOLDER, "--bind", str(box.workspace), WORKSPACE]
    if box.home is None:
        line += ["--perms", "1777", "--size", str(box.home_max), "--tmpfs", HOME]
    else:
        line += ["--bind", str(box.home), HOME]
    for path, place in box.binds:
        line += ["--bind", str(path), place]
    for path, place in box.readable:
        line += [*_folders(Path(place).parent), "--ro-bind-try", str(path), place]
    line += [*_code(box.packages), "--remount-ro", "/", "--chdir", "/", "--clearenv"]
    for name, value in box.environment.items():
        line += ["--setenv", name, value]
    line += ["--seccomp", str(seccomp)]
    return b"".join(os.fsencode(each) + b"\0" for each in line)


def passwd(uid: int, gid: int) -> tuple[str, str]:
    """The texts of /etc/passwd and /etc/group."""
    return (
        "root:x:0:0:root:/root:/usr/sbin/nologin\n"
        f"hand:x:{uid}:{gid}::{HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        f"root:x:0:\nhand:x:{gid}:\nnogroup:x:65534:\n",
    )


def python() -> list[str]:
    """The interpreter with nothing but its standard library, as it is called inside."""
    return [os.path.realpath(getattr(sys, "_base_executable", sys.executable)), "-I", "-S"]


def hosting_python() -> str:
    """The daemon's own Python with its packages, as it is called in a sandbox that has these."""
    if Path(sys.prefix).resolve() == Path(sys.base_prefix).resolve():
        return python()[0]
    return f"{PACKAGES}/bin/{Path(sys.executable).name}"


def unreadable() -> str:
    """Why the daemon's Python packages cannot be read by a hand's own user; empty when they can."""
    if os.geteuid() != 0:
        return ""
    for path in (Path(sys.prefix), Path(sysconfig.get_path("purelib")), _HANDS):
        if path.stat().st_mode & 0o005 != 0o005:
            return f"{path} is for its owner alone, and a hand is another user: chmod -R a+rX it"
    return ""


def compile_code() -> None:
    """Have Python's compiled form of what runs inside, as far as it may be written: there it is
    read-only, and each hand would compile all of it anew.
    """
    of_hosts = (*_HANDS.glob("plugins/*.py"), *_HANDS.glob("*.py"))
    for source in (*_HANDS.glob("inside/*.py"), *of_hosts):
        if not _is_a_packages(Path(cache_from_source(str(source)))):
            compileall.compile_file(source, quiet=2)


def _is_a_packages(code: Path) -> bool:
    """Whether it stands for its source by a hash, as that in a package: nobody makes it anew."""
    try:
        with code.open("rb") as file:
            return bool(int.from_bytes(file.read(8)[4:], "little") & 1)
    except OSError:
        return False


def _system() -> list[str]:
    """The machine's programs."""
    line = ["--ro-bind", "/usr", "/usr"]
    for place in ("/etc/ssl", "/etc/pki", "/run", "/home", "/var"):
        line += _folders(Path(place))
    for name in _LINKS:
        path = Path("/", name)
        if path.is_symlink():
            line += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            line += ["--ro-bind", str(path), str(path)]
    for name in _ETC:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return line


def _code(packages: bool) -> list[str]:
    """The supervisor, and the interpreter where the machine's programs do not include it."""
    line = _folders(Path(CODE, "hands"))
    for name in ("__init__.py", "supervisor.py", "inside") if not packages else ("",):
        line += ["--ro-bind", str(_HANDS / name), f"{CODE}/hands/{name}"]
    prefix = Path(sys.base_prefix).resolve()
    if not prefix.is_relative_to("/usr"):
        line += [*_folders(prefix.parent), "--ro-bind", str(prefix), str(prefix)]
    if packages and hosting_python() != python()[0]:
        line += [*_folders(Path(PACKAGES)), "--ro-bind", str(Path(sys.prefix).resolve()), PACKAGES]
    return line


def _folders(path: Path) -> list[str]:
    """A folder and those it is in, for all to enter: bubblewrap's own are for root alone."""
    line: list[str] = []
    for each in (*reversed(path.parents), path):
        if each != Path("/"):
            line += ["--perms", "0755", "--dir", str(each)]
    return line
