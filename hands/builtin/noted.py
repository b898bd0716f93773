"""Which hands of a type that has others too are in containers, noted where no hand writes.

So the engine is asked of those alone when a hand is reaped, of which nothing else may be known.
"""

from pathlib import Path

_FOLDER = "hosted-containers"
"""Below the daemon's own: a file for each hand whose container may be there."""


def holds(folder: Path) -> bool:
    """Whether the hand in `folder` is, or was to be, in a container."""
    return _noted(folder).exists()


def note(folder: Path) -> None:
    """It is to be in one. Notes of hands that are gone without go with it."""
    noted = _noted(folder)
    noted.parent.mkdir(mode=0o700, exist_ok=True)
    for other in noted.parent.iterdir():
        # With the engine away it stayed: whoever makes a container next removes theirs too.
        if not (folder.parent / other.name).exists():
            other.unlink(missing_ok=True)
    noted.touch()


def forget(folder: Path) -> None:
    """Its container is no more."""
    _noted(folder).unlink(missing_ok=True)


def _noted(folder: Path) -> Path:
    return folder.resolve().parent.parent / _FOLDER / folder.name
