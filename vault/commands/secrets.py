"""What a command is given of a credential's secrets: each in a file, or on standard input.

Or where in a secret manager it lies; then the command never has it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import click

from carpal.errors import CarpalError, invalid, refuse
from carpal.status import Reason

_SIZE_MAX = 64 * 1024


def main_secret(kind: str) -> str:
    """The secret that a credential of a kind is used with."""
    return {"static_bearer": "token", "mcp_oauth": "access_token"}.get(kind, "secret_value")


def lies_at(kind: str, source: str | None, ref: str | None) -> dict[str, Any]:
    """The policy's part of one that lies in a secret manager; empty when neither was given."""
    if (source is None) != (ref is None):
        raise invalid("--from", "goes with --ref, and --ref with --from")
    if source is None:
        return {}
    return {"sources": {main_secret(kind): {"source": source, "ref": ref}}}


def lies_elsewhere(policy: bytes) -> bool:
    """Whether a policy says that a secret lies in a secret manager."""
    try:
        return "sources" in json.loads(policy)
    except (ValueError, TypeError, RecursionError):
        return False  # the vault says what is wrong with it


def read_secrets(given: tuple[str, ...], kind: str) -> dict[str, bytes]:
    """By name, as `--secret` says; the main one from standard input when it says nothing."""
    if kind == "agent_identity" and not given:
        return {}  # it has none
    found: dict[str, bytes] = {}
    for each in given or (f"{main_secret(kind)}=-",):
        name, equals, path = each.partition("=")
        if not equals or not path or name in found:
            raise invalid("--secret", "must be NAME=FILE, each name once")
        found[name] = secret_in(Path(path))
    return found


def secret_in(path: Path) -> bytes:
    """One secret, of a file or of standard input, which asks a person that types."""
    if str(path) == "-" and sys.stdin.isatty():
        return str(click.prompt("secret", hide_input=True, err=True)).encode()
    return read_file(path).removesuffix(b"\n").removesuffix(b"\r")


def read_file(path: Path) -> bytes:
    """A file, or standard input for `-`. CONFIG_INVALID."""
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(_SIZE_MAX + 1)
        else:
            with path.open("rb") as file:
                data = file.read(_SIZE_MAX + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or "cannot be read") from None
    if len(data) > _SIZE_MAX:
        raise _unreadable(path, "is too large")
    return data


def _unreadable(path: Path, why: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, f"{path}: {why}", action="give another file")
