"""The vault, part by part, in one run."""

import asyncio
import json

import click

from bench.figures import Goal, against
from bench.vault_oauth import refreshed

_GOALS = {"refresh_posts_for_100_callers": Goal(at_least=1, at_most=1)}


async def _figures() -> dict[str, float]:
    return await refreshed()


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
