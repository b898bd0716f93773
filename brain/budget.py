"""What a session may spend on the model, and what it has spent. Pure.

Every request reserves before it is sent, in its `span.model_request_start`, the
most it may take. Its outcome gives back what was not used. A request whose
driver died, or whose answer was cut off, is charged all it had reserved, and so
is any count that its answer did not give: nobody knows what it cost. So what is
spent is never more than the limit, but for an estimate of the input's size that
was too low.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

Json = dict[str, Any]
Amounts = dict[str, int]
"""By the name of a limit."""

LIMITS = ("model_requests", "input_tokens", "output_tokens")
"""Tokens of the input are all that the model read, from a cache too."""
READ = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
"""The API's counts of the input; the last two need not be there."""
WRITTEN = "output_tokens"
COUNT_MAX = 2**53
"""No count is as large, and no other reader of JSON would read one as it is."""
_BYTES_PER_TOKEN = 3
"""Low, so that most text has fewer tokens than is reserved."""
_MEDIA_TOKENS = 2_000
"""Of one image, or a page; its bytes say nothing about its tokens."""
_MAY_HAVE_COST = ("interrupted", "model_stream_cut_error", "model_timeout_error")
"""Failures after which the service may have answered, and counted, all the same."""


@dataclass
class Budget:
    """The fold of one log: its limits, and what is spent, reservations included."""

    limits: Amounts = field(default_factory=dict)
    spent: Amounts = field(default_factory=dict)

    def agree(self, limits: Any) -> None:
        """The agent says its limits. What is none changes nothing: the agent is checked whole."""
        with contextlib.suppress(TypeError, ValueError):
            self.limits = read_amounts({} if limits is None else limits)

    def change(self, patch: Any) -> None:
        """Limits are raised or lowered; null takes one away. ValueError and TypeError for none."""
        amounts = read_amounts(patch)
        kept = {name: value for name, value in self.limits.items() if name not in patch}
        self.limits = kept | amounts

    def reserve(self, reserved: Amounts) -> None:
        """A request is about to be sent."""
        add(self.spent, reserved)

    def settle(self, end: Json, reserved: Amounts) -> None:
        """A request has its outcome."""
        add(self.spent, reserved, -1)
        add(self.spent, outcome(end, reserved))

    def reached(self, reserve: Amounts) -> str:
        """The limit that a request would go beyond, by its name; empty when all of it fits."""
        for name in LIMITS:
            if name in self.limits and self.spent.get(name, 0) + reserve[name] > self.limits[name]:
                return name
        return ""


def reservation(request: Json, size: int) -> Amounts:
    """The most that a request may take: its input by an estimate, its output by `max_tokens`.

    `size`: bytes of the request as JSON.
    """
    return {
        "model_requests": 1,
        "input_tokens": estimate(request, size),
        "output_tokens": int(request.get("max_tokens") or 0),
    }


def estimate(request: Json, size: int) -> int:
    """Tokens of a request's input, rather too many than too few."""
    media = [len(source.get("data") or "") for source in _media(request.get("messages"))]
    return max(size - sum(media), 0) // _BYTES_PER_TOKEN + len(media) * _MEDIA_TOKENS


def _media(value: Any) -> Iterator[Json]:
    """The sources of images and documents that are sent with all their bytes."""
    if isinstance(value, list):
        for each in value:
            yield from _media(each)
    elif isinstance(value, dict):
        if value.get("type") in ("base64", "blob"):
            yield value
        for key in ("content", "source"):
            yield from _media(value.get(key))


def cost(usage: Mapping[str, Any], reserved: Amounts) -> Amounts:
    """What a request took, by the API's `usage`: no less than that, and what is not known, all."""
    known = [_count(usage, name) or 0 for name in READ]
    odd = any(usage.get(name) is not None and not is_count(usage[name]) for name in READ)
    taken = sum(known)
    if odd or usage.get(READ[0]) is None:
        taken = max(taken, reserved.get("input_tokens", 0))
    written = _count(usage, WRITTEN)
    return {
        "model_requests": 1,
        "input_tokens": taken,
        "output_tokens": reserved.get("output_tokens", 0) if written is None else written,
    }


def is_count(value: Any) -> TypeGuard[int]:
    """Whether it is a number of tokens."""
    return type(value) is int and 0 <= value < COUNT_MAX


def outcome(end: Json, reserved: Amounts) -> Amounts:
    """What a request is charged, by its `span.model_request_end`."""
    usage = end.get("model_usage")
    if isinstance(usage, dict):
        return cost(usage, reserved)
    if end.get("is_error") and (end.get("error") or {}).get("type") not in _MAY_HAVE_COST:
        return {"model_requests": 1}
    return dict(reserved)


def read_amounts(data: Any) -> Amounts:
    """Amounts as the log has them; ValueError for what is none. A name not known is left out."""
    if not isinstance(data, dict):
        raise TypeError("amounts are no object")
    amounts = {name: data[name] for name in LIMITS if data.get(name) is not None}
    if not all(type(value) is int and value >= 0 for value in amounts.values()):
        raise ValueError("an amount is no whole number")
    return amounts


def add(spent: Amounts, more: Amounts, times: int = 1) -> None:
    """Add amounts to what is spent; with `times` -1, give them back."""
    for name, value in more.items():
        spent[name] = spent.get(name, 0) + times * value


def _count(usage: Mapping[str, Any], key: str) -> int | None:
    value = usage.get(key)
    return value if is_count(value) else None
