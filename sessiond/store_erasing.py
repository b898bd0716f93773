"""What a store must do to erase: the protocols of redaction, removal and their look-ups.

Part of `store`'s protocols. Everything that can be large goes in bounded steps.
"""

from typing import Protocol

from sessiond.rows import EventRow, Redaction, SessionRow


class Eraser(Protocol):
    """The erasing side of a write transaction."""

    def redact(self, session: SessionRow, event: EventRow, redaction: Redaction) -> EventRow:
        """Erase the data of an event of the session's log, wherever it is stored."""

    def keep_redaction(self, session: SessionRow, event: EventRow) -> None:
        """Of an event that is added without its data: remember why it has none."""

    def begin_purge(self, session: SessionRow) -> None:
        """Remember that a tombstone's events are to go."""

    def purge(self, session: SessionRow) -> bool:
        """Remove some events of a tombstone that no fork shares; whether all is done.

        When it is, tombstones whose events this one shared are to be purged in turn,
        and the tombstone of what was only being imported is gone.
        """


class Erasable(Protocol):
    """The same side of a reader: what there is to erase."""

    def purges(self, limit: int) -> list[str]:
        """Ids of tombstones with events that are to go."""

    def stalled(self, before: int, limit: int) -> list[str]:
        """Ids of sessions of which nothing was imported since a wall time."""

    def aged(self, workspace: str, before: int, above: int, limit: int) -> list[tuple[int, str]]:
        """(number, id) of a workspace's sessions with numbers above one, lowest first, whose
        logs last grew before a wall time and that nobody drives."""

    def ruled(self) -> list[str]:
        """Workspaces that have rules of retention."""
