"""A hand type's class, imported where its code may run; and what it raises, in words."""

import importlib
from typing import Any

from hands.api import HandType

WHY_MAX = 4000
"""Characters of why something failed."""


def load(target: str) -> type[HandType]:
    """The class. Raises what importing it does, and TypeError when it is none."""
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for each in name.split("."):
        found = getattr(found, each)
    if not (isinstance(found, type) and issubclass(found, HandType)):
        raise TypeError(f"{target} is no class derived from hands.api.HandType")
    return found


def brief(error: BaseException, *, plain: bool = False) -> str:
    """What was raised, whatever it is; its kind too, unless `plain`."""
    try:
        text = str(error)[:WHY_MAX]
    except Exception:  # noqa: BLE001 - it was made to be looked at, and fails at that
        text = "it cannot say why"
    return text if plain else f"{type(error).__name__}: {text}".removesuffix(": ")


def kind_of(value: Any) -> str:
    """What somebody gave, by its type."""
    return f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
