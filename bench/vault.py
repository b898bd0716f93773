"""The vault, part by part, in one run: calls through it beside direct ones, grants, refreshes."""

import asyncio
import json
import tempfile
from pathlib import Path

import click

from bench.figures import Goal, against
from bench.vault_calls import measured
from bench.vault_grants import looked_up
from bench.vault_oauth import refreshed

_GOALS = {
    "mcp_added_p50_ms": Goal(at_most=3),
    "mcp_calls_per_s": Goal(at_least=300),
    "reply_200mb_growth_mb": Goal(at_most=64),
    "grant_lookup_us": Goal(at_most=1_000),
    "refresh_posts_for_100_callers": Goal(at_least=1, at_most=1),
}


async def _figures() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        calls = await measured(Path(folder))
    return {**calls, **await looked_up(), **await refreshed()}


@click.command(help=__doc__)
def main() -> None:
    """Print the figures, and one line of JSON."""
    figures = asyncio.run(_figures())
    for name, value in figures.items():
        click.echo(f"{name}: {value:g}")
    against(figures, _GOALS)
    click.echo(json.dumps(figures))


if __name__ == "__main__":
    main()
