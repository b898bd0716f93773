"""`carpal practice serve`: the practice model as a process."""

import asyncio
from pathlib import Path

import click
import msgspec

from carpal import config, logs, process
from carpal.cli import extra
from carpal.ready import announce


class Settings(msgspec.Struct, frozen=True):
    """What `carpal practice serve` may be told."""

    listen: str = "127.0.0.1:8790"
    script: list[Path] = []
    latency: float = 0
    """Milliseconds added before every answer."""


@click.group()
def practice() -> None:
    """A local server that speaks the Messages API and is not a model."""


@practice.command()
@click.option("--listen", metavar="H:P", help="Address.  [127.0.0.1:8790]")
@click.option("--script", type=Path, multiple=True, metavar="FILE", help="A script; repeatable.")
@click.option(
    "--latency", type=click.FloatRange(min=0), metavar="MS", help="Added to answers.  [0]"
)
@click.option("--config", "config_file", type=Path, metavar="FILE", help="Settings as TOML.")
@click.option("--log-json", is_flag=True, help="Log one JSON object a line.")
@click.option("--ready-fd", type=int, hidden=True)
def serve(
    *,
    listen: str | None,
    script: tuple[Path, ...],
    latency: float | None,
    config_file: Path | None,
    log_json: bool,
    ready_fd: int | None,
) -> None:
    """Serve until stopped.

    Without a script it obeys lines that start with '$ '; with scripts, the first
    that fits a conversation answers it.
    """
    flags = {"listen": listen, "script": list(script) or None, "latency": latency}
    settings = config.load(Settings, "practice", flags, config_file)
    with extra("brain"):
        from brain.practice.app import serving
        from brain.practice.script import load_script
    logs.setup(json=log_json, level="warning")
    scripts = [load_script(path) for path in settings.script]

    async def main(stop: asyncio.Event) -> None:
        async with serving(settings.listen, scripts, settings.latency / 1000) as served:
            announce(ready_fd, address=served.address, url=served.url)
            click.echo(
                f"The practice model (not a model) serves. Use it with: "
                f"ANTHROPIC_BASE_URL={served.url} ANTHROPIC_API_KEY=practice",
                err=True,
            )
            await process.until_stopped(stop, served.task)

    process.run(main)
