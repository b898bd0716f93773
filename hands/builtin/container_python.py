"""A Python of our own for images, whatever is in them: this daemon's, made portable.

A folder with the daemon's interpreter, its standard library, every shared library these load,
their loader, and our own code that runs inside hands. Started by its own loader it needs nothing
of an image but the kernel; so every image gets the same, tested Python, and none needs one.
It is made once for a version of Python and of our code, and mounted read-only.
"""

import compileall
import hashlib
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

from hands.contract import ProvisionFailed
from hands.isolation import seccomp

PLACE = "/opt/carpal"
"""Where hands see it."""
_LOADER = (f"{PLACE}/lib/loader", "--library-path", f"{PLACE}/lib")
_FILTER = "filter"
"""Of system calls: on top of what the engine refuses, which with older ones lets io_uring pass."""
_OURS = Path(__file__).resolve().parents[1]
_LEFT_OUT = {
    *("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tests", "tkinter", "turtledemo"),
    *("site-packages", "dist-packages", "unittest", "distutils", "turtle.py"),
}
_LIMIT = 60.0
"""Seconds for the interpreter to say what it loads; it takes a fifth of one."""
_UNUSED = re.compile("test|tkinter|_xx|sqlite|_crypt|nis|readline|curses|dbm|ossaudio")
"""Extension modules that bring libraries along and that nothing inside a hand needs."""
_LOOK = """
import ctypes, importlib, os, sys
for name in sys.argv[1:]:
    try: importlib.import_module(name)
    except ImportError: pass
class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
for name in ("gcc_s.so.1", "stdc++.so.6", "dl.so.2", "pthread.so.0", "rt.so.1", "util.so.1"):
    try: ctypes.CDLL("lib" + name)
    except OSError: pass
found = []
note = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
note = note(lambda info, _size, _data: found.append(info[0].name) or 0)
ctypes.CDLL(None).dl_iterate_phdr(note, None)
print(os.readlink("/proc/self/exe"), *filter(os.path.exists, map(os.fsdecode, found)), sep="\\n")
"""
"""Loads extension modules, and so every library that any of them needs, and those that packages
from elsewhere may count on; names them as linked."""


def command(options: Iterable[str]) -> list[str]:
    """How a hand starts its supervisor with what is at PLACE."""
    python = [f"{PLACE}/bin/python3", "-I", "-S", f"{PLACE}/hands/supervisor.py", *options]
    python += ["--filter", f"{PLACE}/{_FILTER}"]
    return [*_LOADER, *python]


def hosting(packages: Iterable[str], program: str, arguments: Iterable[str]) -> list[str]:
    """How a supervisor starts a `program` in Python that imports from these folders too."""
    begin = f"import sys; sys.path += {list(packages)!r}; {program}"
    return [*_LOADER, f"{PLACE}/bin/python3", "-I", "-S", "-c", begin, *arguments]


def bring(below: Path) -> Path:
    """The folder, below this one; made when it is not there yet. ProvisionFailed when it cannot."""
    made = below / _key()
    if not made.exists():
        below.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=below, prefix="new-") as folder:
            new = Path(folder) / "made"
            _make(new)
            try:
                new.rename(made)
            except OSError:
                if not made.exists():  # another made it meanwhile
                    raise
        _forget_others(below, made)
    return made


def _key() -> str:
    digest = hashlib.sha256(f"{sys.version} {sys.base_prefix}".encode() + _filter())
    for path in (Path(__file__), *_our_files()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def _filter() -> bytes:
    try:
        return seccomp.program()
    except KeyError as error:
        raise ProvisionFailed(f"no filter of system calls is known for {error}") from error


def _our_files() -> list[Path]:
    return [_OURS / "__init__.py", _OURS / "supervisor.py", *sorted(_OURS.glob("inside/*.py"))]


def _make(new: Path) -> None:
    library = Path(sysconfig.get_path("stdlib"))
    platform = Path(sysconfig.get_path("platstdlib", vars={"base": sys.base_prefix}))
    extensions = library / "lib-dynload"
    if not extensions.is_dir():
        extensions = platform / "lib-dynload"
    modules = {path.name.partition(".")[0] for path in extensions.glob("*.so")}
    program, loaded = _look(name for name in modules if not _UNUSED.search(name))
    loader = next((path for path in loaded if path.name.startswith("ld")), None)
    if loader is None:
        raise ProvisionFailed(
            f"{program} is not linked as usual, and cannot be brought into containers"
        )
    (new / "bin").mkdir(parents=True)
    (new / "lib").mkdir()
    shutil.copy(program, new / "bin/python3")
    # Its place tells Python where its library is: <here>/bin and <here>/lib/python3.x.
    there = new / sys.platlibdir / library.name
    shutil.copytree(library, there, ignore=_ignored, symlinks=False)
    if extensions.parent != library:
        shutil.copytree(extensions, there / "lib-dynload", ignore=_ignored)
    for path in loaded:
        if extensions not in path.parents:
            shutil.copy(path, new / "lib" / path.name)
    shutil.copy(loader, new / "lib/loader")
    for path in _our_files():
        to = new / "hands" / path.relative_to(_OURS)
        to.parent.mkdir(exist_ok=True)
        shutil.copy(path, to)
    # Compiled, for nobody can write it down there: by content, as these files' times are new.
    compileall.compile_dir(
        new / "hands", quiet=2, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    (new / _FILTER).write_bytes(_filter())
    _readable(new)


def _look(modules: Iterable[str]) -> tuple[Path, list[Path]]:
    """The interpreter's file, and the shared libraries that it and these modules load."""
    run = [sys.executable, "-I", "-S", "-c", _LOOK, *modules]
    ran = subprocess.run(run, capture_output=True, text=True, timeout=_LIMIT, check=False)
    if ran.returncode:
        last = ran.stderr.strip().rpartition("\n")[2]
        raise ProvisionFailed(f"this Python cannot be brought into containers: {last}")
    program, *libraries = ran.stdout.splitlines()
    return Path(program), [Path(path) for path in libraries]


def _ignored(folder: str, names: list[str]) -> set[str]:
    ignored = {name for name in names if name in _LEFT_OUT or name.startswith("config-")}
    if folder.endswith("lib-dynload"):
        ignored |= {name for name in names if _UNUSED.search(name.partition(".")[0])}
    if folder.endswith("__pycache__"):
        ignored |= {name for name in names if ".opt-" in name}
    return ignored


def _readable(folder: Path) -> None:
    """To every user: whoever a hand runs as. The folder above is the daemon's alone."""
    for place, _, files in os.walk(folder):
        Path(place).chmod(0o755)
        for name in files:
            path = Path(place, name)
            path.chmod(0o755 if path.parent.name in ("bin", "lib") else 0o644)


def _forget_others(below: Path, made: Path) -> None:
    """Remove what earlier versions of the daemon brought, unless a hand may still use it."""
    # A hand that runs has it mounted, and what is open stays readable; but its supervisor may
    # load more of it later. So the newest two of them stay.
    others = [path for path in below.iterdir() if path != made and not path.name.startswith("new-")]
    for old in sorted(others, key=lambda path: path.stat().st_mtime)[:-2]:
        shutil.rmtree(old, ignore_errors=True)
