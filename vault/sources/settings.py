"""What a plug-in reads of its settings, and says of one that is wrong. Pure."""

from collections.abc import Mapping
from typing import Any


def known(settings: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """ValueError for a setting that is none."""
    for name in settings:
        if name not in names:
            raise ValueError(f"{name} is not known; there are {', '.join(names)}")


def text(settings: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """One that is a text; ValueError when it is missing and has no default."""
    value = settings.get(name, default)
    if not isinstance(value, str) or (not value and default is None):
        raise ValueError(f"{name} must be a text")
    return value


def texts(settings: Mapping[str, Any], name: str) -> list[str]:
    """One that is a list of texts; none when it is not there."""
    value = settings.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{name} must be a list of texts")
    return value
