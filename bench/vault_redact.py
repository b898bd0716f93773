"""The redactor: how fast a reply passes it, whole and in small parts, for one secret or twenty.

Beside it, in the same run, what looking for the same spellings one after another would take.
"""

import json
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import click

from bench.figures import Goal, against
from vault.redact.patterns import spellings
from vault.redact.stream import Patterns, Redactor
from vault.secret import Secret

_GOALS = {"redactor_mb_per_s": Goal(at_least=20), "redactor_setup_us": Goal(at_most=500)}
_ROUNDS = 5
_EVENT = 300
"""Bytes of one event of a stream."""


def _seconds(work: Callable[[], object]) -> float:
    """The median of some rounds, of CPU time: nothing here waits."""
    taken = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def _through(patterns: Patterns, data: bytes, size: int) -> int:
    passing = Redactor(patterns)
    out = sum(len(passing.feed(data[at : at + size])) for at in range(0, len(data), size))
    return out + len(passing.end())


def _one_by_one(looked: Sequence[bytes], texts: Sequence[bytes]) -> None:
    for text in texts:
        for each in looked:
            text.find(each)


@click.command(help=__doc__)
@click.option("--megabytes", default=8, show_default=True)
def main(megabytes: int) -> None:
    """Print the figures, and one line of JSON."""
    size = megabytes * 1_000_000
    item = json.dumps({"id": 1, "text": "the quick brown fox", "url": "https://a.example/x?y=z"})
    text = (item.encode() * (size // len(item) + 1))[:size]
    noise = secrets.token_urlsafe(size).encode()[:size]
    figures: dict[str, float] = {}
    for count, name in ((1, ""), (20, "_20_secrets")):
        held = [Secret(f"sk-live-{secrets.token_urlsafe(48)}") for _ in range(count)]
        patterns = Patterns(held)
        blocks = max(_seconds(partial(_through, patterns, d, 65536)) for d in (text, noise))
        events = _seconds(partial(_through, patterns, text, _EVENT))
        setup = _seconds(partial(Patterns, held))
        plain = _seconds(partial(_one_by_one, spellings(held), (text, noise)))
        figures[f"redactor_mb_per_s{name}"] = round(megabytes / blocks, 1)
        figures[f"redactor_events_mb_per_s{name}"] = round(megabytes / events, 1)
        figures[f"redactor_setup_us{name}"] = round(1e6 * setup)
        figures[f"one_after_another_mb_per_s{name}"] = round(2 * megabytes / plain, 1)
    for name, value in figures.items():
        click.echo(f"{name}: {value:g}")
    against(figures, _GOALS)
    click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
