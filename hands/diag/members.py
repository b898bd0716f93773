"""What is in the file, one function a member. None of them shows what a call was given or gave."""

import os
import platform
import shutil
import sqlite3
import ssl
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from carpal import __version__
from carpal.errors import CarpalError
from carpal.link import PROTOCOL_MAX, PROTOCOL_MIN
from carpal.proxy import EXCEPTIONS, VARIABLES
from hands.doctor import journal
from hands.doctor.subject import Subject
from hands.isolation import cgroups

_PACKAGES = (
    *("grpcio", "grpcio-health-checking", "grpcio-status", "protobuf", "cryptography"),
    *("click", "msgspec", "docker"),
)
_SHOWN = ("state_dir", "hands_max", "reconnect_max", "sandbox", "policy")
"""Settings whose values are shown."""
_SYSCTLS = (
    *("user/max_user_namespaces", "kernel/unprivileged_userns_clone"),
    *("kernel/apparmor_restrict_unprivileged_userns", "kernel/pid_max", "vm/overcommit_memory"),
)
_LIMIT = 5.0


def settings(subject: Subject, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Those in force; of what may be a secret only that it is set."""
    told: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(subject.settings).items():
        if name in _SHOWN:
            told[name] = str(value) if isinstance(value, Path) else value
        elif isinstance(value, Mapping):
            told[name] = dict.fromkeys(value, "(set)")
        else:
            told[name] = "(set)" if value else ""
    names = (*VARIABLES, *EXCEPTIONS)
    told["variables"] = sorted(
        name for name in environ if name.startswith("CARPAL_") or name in names
    )
    told["dials_by"] = {address: _way(subject, address) for address in _addresses(subject)}
    return told


def journal_summary(subject: Subject) -> dict[str, Any]:
    """The journal in numbers."""
    if not subject.files.journal.exists():
        return {"there": False}
    return asdict(journal.summary(subject.files.journal))


def versions() -> dict[str, str]:
    """Of all that a daemon is made of."""
    found = {
        "carpal": __version__,
        "contract": f"{PROTOCOL_MIN} to {PROTOCOL_MAX}",
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION,
        "sqlite": sqlite3.sqlite_version,
        "libc": " ".join(platform.libc_ver()),
        "bubblewrap": _said("bwrap", "--version"),
        "systemd": _said("systemctl", "--version"),
    }
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def machine(subject: Subject) -> dict[str, Any]:
    """What of it matters to a daemon."""
    place = next(at for at in (subject.files.folder, *subject.files.folder.parents) if at.exists())
    disk = shutil.disk_usage(place)
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "distribution": _release(),
        "processors": len(os.sched_getaffinity(0)),
        "memory": _memory(),
        "uptime_seconds": round(time.clock_gettime(time.CLOCK_BOOTTIME)),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "zone": time.tzname[0],
        "user": os.geteuid(),
        "in_container": any(Path(each).exists() for each in ("/.dockerenv", "/run/.containerenv")),
        "state_disk": {"total": disk.total, "free": disk.free, "kind": _kind(place)},
        "sysctl": {name: _text(Path("/proc/sys", name)) for name in _SYSCTLS},
        "cgroups": {
            name: {"version": base.version, "writable": os.access(base.folder, os.W_OK)}
            for name, base in cgroups.seen().items()
        },
    }


def _addresses(subject: Subject) -> list[str]:
    enrollment = subject.enrollment()
    return [*subject.brains(), *([enrollment] if enrollment else [])]


def _way(subject: Subject, address: str) -> str:
    try:
        proxy = subject.way.to(address)
    except CarpalError as error:
        return error.message
    return f"the proxy {proxy.address}: {proxy.source}" if proxy else "straight"


def _release() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _memory() -> dict[str, str]:
    lines = _text(Path("/proc/meminfo")).splitlines()
    wanted = ("MemTotal", "MemAvailable", "SwapTotal")
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name: value.strip() for name, value in pairs if name in wanted}


def _kind(place: Path) -> str:
    """The kind of the file system there."""
    best, kind = "", ""
    for line in _text(Path("/proc/self/mounts")).splitlines():
        _, point, what, *_ = line.split(" ")
        if place.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, what
    return kind


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _said(program: str, *arguments: str) -> str:
    """The first line that a program says of itself."""
    found = shutil.which(program)
    if found is None:
        return "not installed"
    try:
        ran = subprocess.run(
            [found, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    return ran.stdout.partition("\n")[0][:120]
