"""Configuration: flag beats `CARPAL_*` beats file beats default.

A process declares a frozen msgspec Struct; this fills it. Unknown keys are
errors that name the key, so a typo never means a silent default.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from carpal.errors import CarpalError, refuse
from carpal.status import Reason

T = TypeVar("T", bound=msgspec.Struct)
SYSTEM_DIR = Path("/etc/carpal")
STATE_DEFAULT = "CARPAL_STATE, else /var/lib/carpal as root, else ~/.local/state/carpal"
"""What `state_dir` does, for help."""


def state_dir(flag: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """`--state-dir`, else `CARPAL_STATE`, else /var/lib/carpal as root, else XDG's state folder."""
    if flag is not None:
        return flag
    if named := environ.get("CARPAL_STATE"):
        return Path(named)
    if os.geteuid() == 0:
        return Path("/var/lib/carpal")
    base = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "carpal"


def load(
    cls: type[T],
    process: str,
    flags: Mapping[str, Any],
    config_file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> T:
    """`cls` filled from every layer; CONFIG_INVALID names the key and its source.

    `flags` that are None were not given. Environment variables are
    `CARPAL_` and the field's name in capitals. Without `config_file`,
    `/etc/carpal/<process>.toml` is read when it exists.
    """
    fields = {field.name for field in msgspec.structs.fields(cls)}
    path = config_file or SYSTEM_DIR / f"{process}.toml"
    values = _read(path, required=config_file is not None)
    for key in values:
        if key not in fields:
            raise _bad(f"{path}: unknown key {key!r}", f"use one of: {', '.join(sorted(fields))}")
    source = dict.fromkeys(values, str(path))
    for name in fields:
        variable = f"CARPAL_{name.upper()}"
        if variable in environ:
            values[name], source[name] = environ[variable], variable
        if flags.get(name) is not None:
            values[name], source[name] = flags[name], f"--{name.replace('_', '-')}"
    try:
        # Not strict: environment variables are strings, fields may be numbers.
        return msgspec.convert(values, cls, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise _explain(error, source, cls) from None


def _read(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        if required:
            raise _bad(f"{path}: no such file", "check --config") from None
        return {}
    except OSError as error:
        raise _bad(f"{path}: {error.strerror}", "make it readable") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _bad(f"{path}: not TOML: {error}", "correct the file") from None


def _decode(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, (str, Path)):
        return Path(value)
    # Told with the key that has it; what this library cannot know by itself it asks here.
    raise TypeError(f"Expected `str`, got `{type(value).__name__}`")


def _explain(
    error: msgspec.ValidationError, source: Mapping[str, str], cls: type[msgspec.Struct]
) -> CarpalError:
    text = str(error)
    for name, where in source.items():
        if f"`$.{name}" in text:
            problem = text.split(" - at", maxsplit=1)[0].lower()
            hint = get_type_hints(cls)[name]
            words = get_args(hint) if get_origin(hint) is Literal else ()
            return _bad(
                f"{where}: {name}: {problem}",
                f"use one of: {', '.join(words)}" if words else "correct the value",
            )
    if "missing required field" in text:
        name = text.split("`")[1]
        flag = f"--{name.replace('_', '-')}"
        return _bad(f"{name} is not set", f"give {flag} or CARPAL_{name.upper()}")
    return _bad(text, "correct the configuration")


def _bad(message: str, action: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, message, action=action)
