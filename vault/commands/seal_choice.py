"""Which seal a command's options ask for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carpal.errors import invalid
from vault.files import VaultFiles
from vault.seal.seals import SealKind


def chosen(
    files: VaultFiles, kind: str, key: Path | None, settings: str | None
) -> tuple[SealKind, Mapping[str, Any]]:
    """The kind, and its settings. INVALID_FIELD for options that do not go together."""
    if key is not None and kind != SealKind.FILE:
        raise invalid("--seal-key", "is for --seal file")
    if (settings is not None) != (kind == SealKind.KMS):
        raise invalid("--seal-settings", "goes with --seal kms, which needs it")
    if kind == SealKind.FILE:
        return SealKind.FILE, {"path": str((key or files.seal_key).absolute())}
    if settings is None:
        return SealKind(kind), {}
    try:
        told = json.loads(settings)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("plugin"), str):
        raise invalid(
            "--seal-settings",
            'must be JSON that names a plug-in: {"plugin": "command", "argv": ["…"]}',
        )
    return SealKind.KMS, told
