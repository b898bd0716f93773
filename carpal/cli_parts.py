"""Groups of commands to which parts add theirs by entry point, each imported only when named."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar

import click


class PartsGroup(click.Group):
    """A group's own commands, and those of the entry points of a group."""

    entry_group: ClassVar[str] = ""
    """The group of entry points."""
    summaries: ClassVar[Mapping[str, str]] = {}
    """Help lines of what parts add, so that `--help` imports no part."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, in order."""
        return sorted({*super().list_commands(ctx), *_found(self.entry_group)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        own = super().get_command(ctx, cmd_name)
        entry = _found(self.entry_group).get(cmd_name)
        if own is not None or entry is None:
            return own
        command = entry.load()
        if not isinstance(command, click.Command):
            raise click.ClickException(f"entry point {cmd_name!r} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table of commands in `--help`."""
        rows = []
        names = self.list_commands(ctx)
        room = formatter.width - 6 - max(map(len, names), default=0)
        for name in names:
            own = self.commands.get(name)
            help_line = own.get_short_help_str(room) if own else self.summaries.get(name, "")
            rows.append((name, help_line))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@cache
def _found(group: str) -> dict[str, EntryPoint]:
    # Cached: reading the entry points of every installed package takes 5 ms.
    return {entry.name: entry for entry in entry_points(group=group)}
