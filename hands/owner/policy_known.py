"""Names in a policy that no hand type here has: they may be meant for one that comes, or misspelt.

Which types and tools there are is not known while a policy is read, so such a name is no mistake;
but a word that allows nothing is said, by the doctor and in the daemon's log. Pure, but for that.
"""

import logging
from collections.abc import Collection, Mapping

from hands.contract import HandType
from hands.owner.policy import Policy

log = logging.getLogger(__name__)


def unknown(policy: Policy, tools: Mapping[str, Collection[str] | None]) -> list[str]:
    """Each such name with its key, as `tools: process/bsh`, in the policy's order.

    `tools` are those of each type that is installed; None for a type that does not tell its own.
    """
    named = [("types", each) for each in policy.types or ()]
    named += [("open_network", each) for each in policy.open_network]
    named += [("namespaces", each) for each in policy.namespaces or ()]
    found = [f"{key}: {each}" for key, each in named if each not in tools]
    for of, each in policy.tools or ():
        asked = list(tools.values()) if of == "*" else [tools.get(of, ())]
        has_type = of == "*" or of in tools
        if not has_type or not any(has is None or each == "*" or each in has for has in asked):
            found.append(f"tools: {each}" if of == "*" else f"tools: {of}/{each}")
    return found


def tools_of(kind: HandType) -> list[str] | None:
    """Those that a type has; None of one that could not say them, or whose hands list their own."""
    return [tool.name for tool in kind.describe().tools] or None


def say_unknown(policy: Policy, types: Mapping[str, HandType]) -> None:
    """Log them, for a policy that comes into force."""
    if found := unknown(policy, {name: tools_of(kind) for name, kind in types.items()}):
        about = {"file": policy.file, "names": found}
        log.warning("the owner's policy names what no hand type here has", extra=about)
