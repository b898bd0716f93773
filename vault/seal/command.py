"""A key service reached by a command: it gets one JSON object on standard input, and answers one.

    {"do": "wrap", "plaintext": B64, "aad": B64}              → {"blob": B64, "key_id": "…"}
    {"do": "unwrap", "blob": B64, "key_id": "…", "aad": B64}  → {"plaintext": B64}

Exit code 0, or what it says on standard error is why not. The key is in no argument or variable.
"""

import base64
import json
import subprocess
from collections.abc import Mapping
from typing import Any

from vault.seal.kms import KmsFailed

SECONDS = 30.0
_SIZE_MAX = 64 * 1024


class CommandKms:
    """Runs `settings["argv"]`, without a shell."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        argv = settings.get("argv")
        if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
            raise ValueError("argv must be a list of texts")
        self._argv: list[str] = argv

    def wrap(self, plaintext: bytes, aad: bytes) -> tuple[bytes, str]:
        """As `vault.seal.kms.Kms`."""
        said = self._ask({"do": "wrap", "plaintext": _text(plaintext), "aad": _text(aad)})
        key_id = said.get("key_id", "")
        if not isinstance(key_id, str):
            raise KmsFailed(f"{self._argv[0]} answered no key_id")
        return self._bytes(said, "blob"), key_id

    def unwrap(self, blob: bytes, key_id: str, aad: bytes) -> bytes:
        """As `vault.seal.kms.Kms`."""
        asked = {"do": "unwrap", "blob": _text(blob), "key_id": key_id, "aad": _text(aad)}
        return self._bytes(self._ask(asked), "plaintext")

    def _ask(self, asked: Mapping[str, str]) -> dict[str, Any]:
        name = self._argv[0]
        try:
            done = subprocess.run(
                self._argv,
                input=json.dumps(asked).encode(),
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except OSError as error:
            raise KmsFailed(f"{name}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise KmsFailed(f"{name} did not answer within {SECONDS:.0f} s") from None
        if done.returncode:
            why = " ".join(done.stderr.decode("utf-8", "replace").split())[:500]
            raise KmsFailed(f"{name} failed with exit code {done.returncode}: {why}")
        try:
            said = json.loads(done.stdout[:_SIZE_MAX])
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise KmsFailed(f"{name} did not answer one JSON object")
        return said

    def _bytes(self, said: Mapping[str, Any], name: str) -> bytes:
        value = said.get(name)
        try:
            return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
        except (ValueError, TypeError):
            raise KmsFailed(f"{self._argv[0]} answered no {name}") from None


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
