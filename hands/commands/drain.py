"""`carpal hand drain`: said on the machine itself, with a link or without."""

from pathlib import Path

import click

from carpal.durations import duration
from carpal.errors import invalid
from hands.commands.options import CONFIG, STATE, folder_of
from hands.local.waiting import hands_of, left, wait_for_none


@click.command()
@STATE
@CONFIG
@click.option("--wait", is_flag=True, help="Wait until no hand is left.")
@click.option("--timeout", default="30m", show_default=True, help="Of --wait: 90s, 30m, 12h.")
@click.option("--reason", default="", help="Why, for the daemon's log.")
@click.option("--lift", is_flag=True, help="Take new hands again.")
def drain(  # noqa: PLR0917 - click passes by name
    state_dir: Path | None,
    config_file: Path | None,
    wait: bool,
    timeout: str,
    reason: str,
    lift: bool,
) -> int:
    """Take no new hands, also after a restart, until --lift; those there are go on.

    Works without a link too. A hand ends when its session gives it up: with
    --wait this says which are left, and exits with 1 when the time is over.
    """
    from hands.local.asking import ask

    limit = duration(timeout, "--timeout").total_seconds()
    if lift and wait:
        raise invalid("--wait", "there is nothing to wait for with --lift")
    folder = folder_of(state_dir, config_file)
    ask(folder, "/drain", {"lift": True} if lift else {"reason": reason})
    if lift:
        click.echo("new hands are taken again")
        return 0
    click.echo("drained: no new hands are taken, until `carpal hand drain --lift`")
    rows = hands_of(ask(folder, "/hands"))
    if not wait:
        click.echo(f"{left(rows)}; wait for the end with --wait" if rows else left(rows))
        return 0
    return 0 if wait_for_none(lambda: hands_of(ask(folder, "/hands")), limit) else 1
