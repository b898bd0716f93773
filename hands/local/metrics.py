"""What the daemon measures, as Prometheus reads it. Every name is in docs/reference/daemon.md."""

import platform
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from carpal import __version__
from hands.local.status import Standing

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_OUTCOMES = ("ok", "error", "cancelled", "timed_out", "interrupted", "lost")

Labels: TypeAlias = tuple[tuple[str, str], ...]


class Metric(NamedTuple):
    """One name and its values now."""

    name: str
    """Without the `carpal_hand_` that all have; it ends in its unit."""
    kind: str
    """`gauge` or `counter`."""
    help: str
    samples: dict[Labels, float]
    """Labels → value."""


def text(standing: Standing) -> str:
    """All of it, in the text format 0.0.4."""
    return "".join(_lines(metric) for metric in metrics(standing))


def metrics(standing: Standing) -> Iterator[Metric]:
    """What can be said now; before the daemon has its hands that is less."""
    about = (("version", __version__), ("python", platform.python_version()))
    link, counts = standing.link, standing.counts
    yield Metric("build_info", "gauge", "What runs; always 1.", {about: 1})
    yield _one("start_time_seconds", "gauge", "When the daemon started.", standing.started)
    yield _one("linked", "gauge", "1 while a brain has welcomed it.", link.is_linked)
    yield _one("link_since_seconds", "gauge", "When that last changed.", link.since.timestamp())
    yield _one("links_total", "counter", "Links that a brain welcomed.", link.links)
    yield _one("reconnects_total", "counter", "Links made after one was lost.", link.reconnects)
    yield _one("loop_lag_seconds", "gauge", "Worst lateness in a minute.", standing.lag.worst)
    yield _one("hands_max", "gauge", "Hands that may exist at once.", standing.hands_max)
    ended: dict[Labels, float] = {(("outcome", each),): counts.outcomes[each] for each in _OUTCOMES}
    yield Metric("calls_total", "counter", "Calls that ended.", ended)
    yield _one("call_input_bytes_total", "counter", "Input of calls.", counts.input_bytes)
    yield _one("call_output_bytes_total", "counter", "Output of calls.", counts.output_bytes)
    yield _one("events_total", "counter", "Events that hands said.", counts.events)
    yield _one("events_dropped_total", "counter", "Events not kept.", counts.events_dropped)
    if (left := standing.certificate_left()) is not None:
        yield _one("certificate_expiry_seconds", "gauge", "Left; below 0 it is over.", left)
    if (inventory := standing.inventory) is not None:
        live, making = len(inventory.keepers), len(inventory.making)
        states: dict[Labels, float] = {(("state", "live"),): live, (("state", "making"),): making}
        yield Metric("hands", "gauge", "Hands there are.", states)
        yield _one("draining", "gauge", "1 while it takes no new hands.", inventory.draining)
        running = sum(len(keeper.open) for keeper in inventory.keepers.values())
        yield _one("calls_open", "gauge", "Calls that wait or run.", running)
        unsettled = inventory.journal.unsettled
        yield _one("unsettled", "gauge", "Calls not acknowledged, and lost hands.", unsettled)
        yield _one("journal_bytes", "gauge", "The journal on disk.", inventory.journal.size)


def _one(name: str, kind: str, about: str, value: float) -> Metric:
    return Metric(name, kind, about, {(): value})


def _lines(metric: Metric) -> str:
    name = f"carpal_hand_{metric.name}"
    lines = [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
    for labels, value in metric.samples.items():
        inner = ",".join(f'{key}="{said.translate(_ESCAPED)}"' for key, said in labels)
        shown = f"{{{inner}}}" if inner else ""
        lines.append(f"{name}{shown} {float(value):.12g}")
    return "\n".join(lines) + "\n"
