"""What an agent says of its context window: the policy, and that policy's settings. Pure."""

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from carpal.mistake import Mistake

PolicyName = Literal["whole", "trim", "compact", "reset", "retrieve"]
Tokens = Annotated[int, Meta(ge=256, le=2**40)]
Instructions = Annotated[str, Meta(min_length=1, max_length=16 * 1024)]

DEFAULT_POLICY: PolicyName = "compact"


class Context(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What of the log the model is given. Every size is in tokens."""

    policy: PolicyName
    window_tokens: Tokens | UnsetType = UNSET
    """The model's window; what is known of the model when it is not said."""
    at_tokens: Tokens | UnsetType = UNSET
    """A request that may be larger than this has the window cut first."""
    keep_tokens: Tokens | UnsetType = UNSET
    """The newest of the conversation, which stays as it is when the window is cut."""
    summary_tokens: Tokens | UnsetType = UNSET
    """The most that a summary, or a handover note, may take."""
    found_tokens: Tokens | UnsetType = UNSET
    """The most that is brought back of what stands before the newest."""
    instructions: Instructions | UnsetType = UNSET
    """What the model is asked for: a summary's or a note's own instructions."""


_CUTS = ("window_tokens", "at_tokens", "keep_tokens")
_USED: dict[str, tuple[str, ...]] = {
    "whole": (),
    "trim": _CUTS,
    "compact": (*_CUTS, "summary_tokens", "instructions"),
    "reset": ("window_tokens", "at_tokens", "summary_tokens", "instructions"),
    "retrieve": (*_CUTS, "found_tokens"),
}
"""Policy → the settings it has."""
assert set(_USED) == set(get_args(PolicyName))


def check_settings(context: Any) -> None:
    """A setting, good or not, that the policy does not have; Mistake names the key.

    `context`: as it was written. What is wrong with it otherwise is not looked at.
    """
    policy = context.get("policy") if isinstance(context, dict) else None
    if not isinstance(policy, str) or policy not in _USED:
        return
    used = _USED[policy]
    for key in Context.__struct_fields__:
        if key != "policy" and key in context and key not in used:
            has = ", ".join(used) or "no settings"
            problem = f"is no setting of the policy {policy}, which has {has}"
            raise Mistake(problem, key=f"context.{key}")


def check_context(context: Context) -> None:
    """What no type says; Mistake names the key."""
    check_settings(msgspec.to_builtins(context))
    for small, large in (("at_tokens", "window_tokens"), ("keep_tokens", "at_tokens")):
        below, above = getattr(context, small), getattr(context, large)
        if below and above and below >= above:
            raise Mistake(f"must be less than {large}, {above}", key=f"context.{small}")
