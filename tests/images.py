"""Images for the tests, made without a registry: of this machine's files, or Debian's packages.

`shell` has bash and the usual small programs and no Python; `busybox` has no bash; `debian` is
a Debian as people use it, with Python, git and bubblewrap, built by mmdebstrap once and kept in
the cache.
"""

import fcntl
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

SHELL = "carpal-test/shell:1"
BUSYBOX = "carpal-test/busybox:1"
DEBIAN = "carpal-test/debian:3"

_PROGRAMS = (
    *(
        "bash",
        "cat",
        "chmod",
        "cp",
        "cut",
        "date",
        "dd",
        "df",
        "dirname",
        "echo",
        "env",
        "false",
        "getent",
    ),
    *("find", "grep", "head", "id", "kill", "ln", "ls", "mkdir", "mkfifo", "mknod", "mount", "mv"),
    *("nohup", "printf", "ps", "pwd", "readlink", "rm", "sed", "seq", "setsid", "sh", "sleep"),
    *("sort", "stat", "tail", "tee", "timeout", "touch", "tr", "true", "unshare", "wc", "whoami"),
    *(
        "xargs",
        "yes",
        "basename",
        "rmdir",
        "comm",
        "expr",
        "realpath",
        "tar",
        "base64",
        "sha256sum",
    ),
)
_DEBIAN_PACKAGES = "python3,python3-venv,libstdc++6,git,procps,bubblewrap"


def add_shell(client: Any) -> None:
    """The image `SHELL`, when the engine lacks it: this machine's bash and small programs."""
    files: dict[str, Path] = {}
    for name in _PROGRAMS:
        found = shutil.which(name, path="/usr/bin:/bin")
        if found:
            files[f"usr/bin/{name}"] = Path(found).resolve()
            files |= {str(path).lstrip("/"): path.resolve() for path in _libraries(found)}
    # As on a Debian of today, where /bin is a symlink.
    links = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}
    placed = {_under_usr(name): path for name, path in files.items()}
    _import(client, SHELL, _tar(placed, links))


def add_busybox(
    client: Any, name: str = BUSYBOX, programs: Mapping[str, str] = MappingProxyType({})
) -> None:
    """The image `name`, when the engine lacks it: no bash, no libraries, but these scripts."""
    links = {f"bin/{each}": "busybox" for each in ("sh", "ls", "cat", "ln", "sleep")}
    made = _tar({"bin/busybox": Path("/bin/busybox").resolve()}, links, programs)
    _import(client, name, made)


def add_bash_alone(client: Any, name: str, program: bytes) -> None:
    """The image `name:1`, which has nothing but this as its bash."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in ("bin", "etc", "tmp"):
            _add(tar, folder, type=tarfile.DIRTYPE, mode=0o755)
        _write(tar, "bin/bash", program, mode=0o755)
    client.api.import_image(src=out.getvalue(), repository=name, tag="1")


def add_debian(client: Any) -> None:
    """The image `DEBIAN`, when the engine lacks it. The first time it takes a minute."""
    if not _has(client, DEBIAN):
        with debian().open("rb") as file:
            _import(client, DEBIAN, file)


def debian() -> Path:
    """The files of `DEBIAN`, as a tar. The first time it takes a minute."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carpal-tests"
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / "debian-3.tar"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                _bootstrap(Path(folder) / "made.tar")
                (Path(folder) / "made.tar").rename(made)
    return made


def _bootstrap(to: Path) -> None:
    leave_out = ("man", "doc", "locale", "info")
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in leave_out]
    command = ["mmdebstrap", "--variant=essential", f"--include={_DEBIAN_PACKAGES}", *options]
    # The sources this machine has, so that a mirror or a snapshot set there is used.
    lists = Path("/etc/apt/sources.list.d/debian.sources")
    sources = lists if lists.exists() else Path("/etc/apt/sources.list")
    with sources.open("rb") as given:
        ran = subprocess.run(
            [*command, _codename(), str(to), "-"],
            stdin=given,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    if ran.returncode:
        raise RuntimeError(f"mmdebstrap failed: {ran.stderr[-2000:]}")


def _codename() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("VERSION_CODENAME="))


def _libraries(program: str) -> list[Path]:
    """What `program` is linked with, its loader too."""
    ran = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=30, check=False)
    words = ran.stdout.split()
    return [Path(word) for word in words if word.startswith("/") and not word.endswith(":")]


def _under_usr(name: str) -> str:
    return name if name.startswith("usr/") else f"usr/{name}"


def _tar(
    files: dict[str, Path],
    links: dict[str, str],
    programs: Mapping[str, str] = MappingProxyType({}),
) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("etc", "tmp", "root"):
            _add(tar, name, type=tarfile.DIRTYPE, mode=0o755)
        for name, to in links.items():
            _add(tar, name, type=tarfile.SYMTYPE, linkname=to, mode=0o777)
        _write(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _write(tar, "etc/group", b"root:x:0:\n")
        for name, path in files.items():
            _write(tar, name, path.read_bytes(), mode=0o755)
        for name, text in programs.items():
            _write(tar, name, text.encode(), mode=0o755)
    out.seek(0)
    return out


def _add(tar: tarfile.TarFile, name: str, **given: Any) -> None:
    info = tarfile.TarInfo(name)
    for key, value in given.items():
        setattr(info, key, value)
    tar.addfile(info)


def _write(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))


def _has(client: Any, name: str) -> bool:
    tags: Iterable[str] = [tag for image in client.images.list() for tag in image.tags]
    return any(tag.endswith(name) for tag in tags)  # Podman says a registry before it


def _import(client: Any, name: str, data: Any) -> None:
    if not _has(client, name):
        # In one piece: Podman 4 forgets a tag that is given beside it.
        client.api.import_image(src=data, repository=name)
