"""The settings and the owner's policy, read as `carpal hand run` reads them."""

import stat
from pathlib import Path

from carpal import config
from carpal.errors import CarpalError
from hands import types
from hands.app import HandConfig
from hands.doctor.rows import Row, ok, refused, warn
from hands.doctor.subject import Subject
from hands.files import HandFiles
from hands.local import asking
from hands.owner import policy_file
from hands.systemd.noted import meant


def read(state_dir: Path | None, config_file: Path | None) -> tuple[HandConfig, Row]:
    """The settings, and how they were had; those of the flags alone when a file is wrong.

    Without a file of the caller's or the service's, a daemon that runs says which it goes by.
    """
    state_dir, config_file = meant(state_dir, config_file)
    said = ""
    if config_file is None and (theirs := _of_who_runs(state_dir)):
        state_dir, config_file = theirs
        said = ", by which the daemon goes that runs; for another give --config"
    path = config_file or config.SYSTEM_DIR / "hand.toml"
    flags = {"state_dir": state_dir}
    try:
        found = config.load(HandConfig, "hand", flags, config_file)
        for name, socket in found.sockets.items():
            types.served(name, socket, _taken())  # a daemon does not start with a wrong one
    except CarpalError as error:
        return HandConfig(state_dir=config.state_dir(state_dir)), refused("settings", error)
    if not path.exists():
        detail = f"no {path}: the defaults, variables and flags alone"
        return found, ok("settings", f"{detail}; for a daemon of another file give --config")
    mode = path.stat().st_mode
    if "@" in found.proxy and stat.S_IMODE(mode) & 0o007:
        detail = f"{path} holds a proxy's password, and anyone may read it"
        return found, warn("settings", detail, f"run: chmod 640 {path}")
    return found, ok("settings", f"read from {path}{said}")


def _of_who_runs(state_dir: Path | None) -> tuple[Path, Path] | None:
    """The state folder of the daemon that runs there, and its settings file; None without any."""
    try:
        state = config.load(HandConfig, "hand", {"state_dir": state_dir}).state_dir
        folder = HandFiles(state).folder
        told = asking.ask(folder) if asking.answers(folder) else {}
    except CarpalError:  # a row of its own says it
        return None
    file = told.get("settings")
    return (state, Path(file)) if isinstance(file, str) else None


def _taken() -> set[str]:
    """Names that no socket's type may have."""
    return {entry.name for entry, _ in types.registered()}


def policy(subject: Subject) -> list[Row]:
    """What the machine's owner allows, as the daemon reads it at its start."""
    found = policy_file.load(subject.settings.policy)
    if not found.file:
        detail = f"there is no {policy_file.SYSTEM_FILE}: the owner forbids nothing of their own"
        return [ok("policy", detail)]
    types = "any hand type" if found.types is None else ", ".join(found.types) or "no hand type"
    return [ok("policy", f"read from {found.file}: it offers {types}")]
