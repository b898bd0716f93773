"""Which settings the installed service goes by, noted in its unit for every command.

A command of `carpal hand` that is given neither a state folder nor settings goes by these, and one
that is given the service's own state folder too: what is asked of the daemon here, and what is
looked at, is then what runs. The section's name begins with `X-`, so systemd passes it over.
"""

import json
from pathlib import Path
from typing import Any

FILE = Path("/etc/systemd/system/carpal-hand.service")
"""The unit of the service of this machine."""
_SECTION = "[X-Carpal]"


def section(state: Path, config: Path | None) -> str:
    """What the unit says of it."""
    given = [f"Config={json.dumps(str(config))}"] if config else []
    return "\n".join([_SECTION, f"State={json.dumps(str(state))}", *given]) + "\n"


def meant(
    state: Path | None, config: Path | None, unit: Path | None = None
) -> tuple[Path | None, Path | None]:
    """State folder and settings file that a command goes by, of those given to it, if any.

    `unit` is where the note is. Without one, or where it cannot be read, they are what was given.
    """
    if config is not None:
        return state, config
    noted = _read(unit or FILE)
    service = noted.get("State")
    if service is None or (state is not None and state.absolute() != Path(service)):
        return state, None
    file = noted.get("Config")
    return Path(service), Path(file) if file else None


def _read(unit: Path) -> dict[str, str]:
    try:
        _, found, after = unit.read_text().partition(f"\n{_SECTION}\n")
    except (OSError, UnicodeDecodeError):
        return {}
    noted: dict[str, str] = {}
    for line in after.splitlines() if found else ():
        key, equals, word = line.partition("=")
        value = _word(word) if equals else None
        if isinstance(value, str):
            noted[key] = value
    return noted


def _word(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
