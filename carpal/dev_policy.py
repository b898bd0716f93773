"""What `carpal dev` lets people do in its hands: who runs it owns the machine, and tries things."""

from collections.abc import Mapping
from pathlib import Path

USUAL = Path("/etc/carpal/policy.toml")
"""Where a daemon looks for its owner's policy."""
_TEXT = """\
# Written by `carpal dev` for the daemon that it runs: you may enter its hands.
# A policy of your own, in /etc/carpal/policy.toml or named by CARPAL_POLICY, takes its place.
people = ["shell", "copy", "forward", "control"]
"""


def allowing(state: Path, environ: Mapping[str, str], usual: Path = USUAL) -> dict[str, str]:
    """What its daemon is to be told; nothing where there is a policy already."""
    if "CARPAL_POLICY" in environ or usual.exists():
        return {}
    own = state / "policy.toml"
    own.write_text(_TEXT, encoding="utf-8")
    return {"CARPAL_POLICY": str(own)}
