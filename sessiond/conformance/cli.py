"""`carpal sessiond check`: hold a Session service to the contract, from outside."""

import asyncio
import json
from collections import Counter
from contextlib import aclosing
from pathlib import Path

import click


@click.command()
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    metavar="H:P",
    help="Where the service listens; again for each of several that serve one store.  [required]",
)
@click.option(
    "--identities",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with brain/, brain-2/, operator/, other-operator/; vault/, daemon/ if at hand.  "
    "[required]",
)
@click.option("--only", "groups", multiple=True, metavar="GROUP", help="A group; repeatable.")
@click.option("--scale", default=1.0, show_default=True, help="How slow the machines are taken.")
@click.option("--list", "listing", is_flag=True, help="Say the checks; asks no service.")
@click.option("--json", "as_json", is_flag=True, help="One object a line, then a summary.")
def check(  # noqa: PLR0917 - click passes each by name
    endpoints: tuple[str, ...],
    identities: Path | None,
    groups: tuple[str, ...],
    scale: float,
    listing: bool,
    as_json: bool,
) -> int:
    """Make every check of the contract against a Session service, ours or anyone's.

    It writes sessions, blobs and documents that stay: choose a service, or
    workspaces, where that does no harm, and let no brain drive them.
    Exits 0 when nothing failed, 1 when something did, 3 when nobody answers.
    """
    from sessiond.conformance import callers
    from sessiond.conformance.run import verdicts
    from sessiond.conformance.suite import chosen

    checks = chosen(groups)
    if listing:
        for one in checks:
            click.echo(f"{one.group}: {one.sentence}")
        return 0
    if not endpoints:
        raise click.UsageError("Missing option '--endpoint'.")
    if identities is None:
        raise click.UsageError("Missing option '--identities'.")
    found = callers.find(identities)

    async def make() -> Counter[str]:
        count = Counter[str]()
        async with (
            callers.connected(found, *endpoints) as connected,
            aclosing(verdicts(checks, connected, scale)) as judged,
        ):
            async for verdict in judged:
                if verdict.verdict == "fail":
                    await callers.reach(connected)  # when it is gone, the rest says nothing
                count[verdict.verdict] += 1
                if as_json:
                    click.echo(json.dumps(verdict._asdict()))
                else:
                    detail = f"   {verdict.detail}" if verdict.detail else ""
                    click.echo(f"{verdict.verdict:<8} {verdict.group}: {verdict.check}{detail}")
        return count

    count = asyncio.run(make())
    summary = {verdict: count[verdict] for verdict in ("pass", "fail", "skipped")}
    if as_json:
        click.echo(json.dumps({"ok": not summary["fail"], **summary}))
    else:
        click.echo(", ".join(f"{number} {verdict}" for verdict, number in summary.items()))
    return 1 if summary["fail"] else 0
