"""What a person sees: live output and lines on stdout, notices on stderr."""

import time
from collections.abc import Mapping

import click

from carpal.event_lines import dumps, event_object
from carpal.operator.events import printable
from carpal.operator.live import Live
from carpal.operator.timeline import Line, Timeline
from carpal.v1 import orchestrator_pb2, types_pb2


def notice(text: str) -> None:
    """One line on stderr."""
    click.echo(f"carpal: {printable(text)}", err=True)


def notice_missing(hands: Mapping[str, str]) -> None:
    """A line for each hand that could not be had."""
    for name, why in hands.items():
        notice(f"hand {name!r} could not be had: {why}")


class LiveScreen:
    """Output as it comes; the timeline is kept for afterwards. `quiet` shows neither.

    `own`: position of the message that the person at the screen sent.
    """

    def __init__(self, *, quiet: bool = False, own: int = 0) -> None:
        self.lines: list[Line] = []
        self._quiet = quiet
        self._live = Live(own)
        self._timeline = Timeline()

    def event(self, event: types_pb2.Event) -> None:
        """Show what the event adds to what was shown."""
        self.lines += self._timeline.lines(event)
        self._write(self._live.event(event))

    def moment(self, moment: orchestrator_pb2.WatchResponse) -> None:
        """Show a delta or a piece of output."""
        self._write(self._live.moment(moment, time.monotonic()))

    def watching(self) -> None:
        """Leave a reply that is half-way to the log."""
        self._live.watching(time.monotonic())

    def notice(self, text: str) -> None:
        """Say it on stderr."""
        notice(text)

    def print_timeline(self, title: str) -> None:
        """The whole story so far, a line per happening."""
        if not self._quiet:
            click.echo(f"\n{title}")
            for line in self.lines:
                click.echo(str(line))

    def _write(self, text: str) -> None:
        if text and not self._quiet:
            click.echo(text, nl=False)


class LineScreen:
    """Each event as it comes: a line of the timeline, or of JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._timeline = Timeline()

    def event(self, event: types_pb2.Event) -> None:
        """Print it."""
        if self._as_json:
            click.echo(dumps(event_object(event)))
        else:
            for line in self._timeline.lines(event):
                click.echo(str(line))

    def moment(self, moment: orchestrator_pb2.WatchResponse) -> None:
        """Not shown: only what is in the log."""

    def watching(self) -> None:
        """Nothing depends on it."""

    def notice(self, text: str) -> None:
        """Say it on stderr."""
        notice(text)
