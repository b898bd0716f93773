"""The way out of a hand that has no network of its own: what every sandboxed hand type does alike.

The type starts its supervisor with `ARGUMENTS` and `environment(rules)`. Once it is
connected, `provide` or `adopt` opens the forwarder in the hand's folder, for the
hand's `forwarder`, which ends with the hand. A hand without rules has one too: it
answers each request with why nothing goes out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from carpal.errors import refuse
from carpal.status import Reason
from hands.contract import HandLost, ProvisionFailed
from hands.forwarder.rules import SCHEMA, Rule, as_config, parse
from hands.forwarder.server import Forwarder
from hands.inside.relay import PORT

__all__ = ["SCHEMA"]  # a part of the types' configurations, as the other names here are of them

ARGUMENTS = ("--egress",)
"""Of the supervisor: it starts the relay."""
NETWORK_OPEN = "its network is the machine's: what it reaches is not kept to rules"
"""What a hand without a sandbox does not keep."""
_NAMED = 10
"""Hosts that a note lists."""
_PROXY = f"http://127.0.0.1:{PORT}"
_OWN = ("localhost", "127.0.0.1", "::1")
"""The hand's own loopback, where its own servers are."""


def rules(config: Mapping[str, Any]) -> tuple[Rule, ...]:
    """What the hand's `egress` allows. INVALID_FIELD names what is wrong."""
    return parse(config.get("egress", []))


def environment(allowed: Sequence[Rule]) -> dict[str, str]:
    """What makes programs ask the forwarder; in both cases, since curl knows only one."""
    named = {rule.host for rule in allowed}
    # A loopback that a rule names is the machine's, behind the forwarder, not the hand's.
    own = ",".join(name for name in _OWN if name not in named)
    variables = {"http_proxy": _PROXY, "https_proxy": _PROXY, "no_proxy": own}
    return {name: value for low, value in variables.items() for name in (low, low.upper())}


def note(allowed: Sequence[Rule]) -> str:
    """What the model should know of it."""
    if not allowed:
        return "There is no network."
    named = [_said(rule) for rule in as_config(allowed[:_NAMED])]
    more = " and more" if len(allowed) > _NAMED else ""
    return f"The network is the proxy in HTTPS_PROXY, which allows: {', '.join(named)}{more}."


def _said(rule: Mapping[str, Any]) -> str:
    about = [*rule.get("methods", ()), *rule.get("paths", ())]
    return f"{rule['host']} ({' '.join(about)})" if about else str(rule["host"])


def provide(folder: Path, hand_id: str, allowed: Sequence[Rule]) -> Forwarder:
    """A new hand's forwarder. Raises ProvisionFailed."""
    try:
        return Forwarder.open(folder, hand_id, allowed)
    except OSError as error:
        raise ProvisionFailed(f"its forwarder did not start: {error.strerror}") from error


def kept(allowed: Sequence[Rule]) -> dict[str, Any]:
    """What of it goes into the state that `adopt` gets."""
    return {"egress": as_config(allowed)}


def adopt(folder: Path, hand_id: str, state: Mapping[str, Any]) -> Forwarder:
    """An adopted hand's forwarder, with the rules it was made with. Raises HandLost."""
    try:
        return Forwarder.open(folder, hand_id, parse(state.get("egress", [])))
    except OSError as error:
        raise HandLost(f"its forwarder did not start: {error.strerror}") from error


def refuse_without_sandbox(config: Mapping[str, Any]) -> None:
    """LIMIT_NOT_ENFORCEABLE for `egress` where nothing keeps a hand from the network."""
    if "egress" in config:
        raise refuse(
            Reason.LIMIT_NOT_ENFORCEABLE,
            "config.egress: a hand without a sandbox has the machine's network",
            action="leave egress out, or use a hand type or a machine with a sandbox",
            field="config.egress",
        )
