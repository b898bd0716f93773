"""What `carpal dev` lets people do in its hands: who runs it owns the machine, and tries things."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

SETTINGS = Path("/etc/carpal/hand.toml")
"""Where it looks for its settings."""
USUAL = Path("/etc/carpal/policy.toml")
"""Where a daemon looks for its owner's policy."""
_TEXT = """\
# Written by `carpal dev` for the daemon that it runs: you may enter its hands.
# A policy of your own, in /etc/carpal/policy.toml or named by CARPAL_POLICY, takes its place.
people = ["shell", "copy", "forward", "view", "control"]
"""


def allowing(
    state: Path,
    environ: Mapping[str, str],
    usual: Path = USUAL,
    settings: Path | None = None,
) -> dict[str, str]:
    """What its daemon is to be told; nothing where there is a policy already.

    `settings` is the daemon's file, which may name one.
    """
    if "CARPAL_POLICY" in environ or usual.exists() or _names_one(settings or SETTINGS):
        return {}
    own = state / "policy.toml"
    own.write_text(_TEXT, encoding="utf-8")
    return {"CARPAL_POLICY": str(own)}


def _names_one(settings: Path) -> bool:
    try:
        return "policy" in tomllib.loads(settings.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # not there, or the daemon says what is wrong with it
