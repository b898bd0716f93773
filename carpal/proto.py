"""`carpal proto`: the contract's `.proto` files, for who writes in another language."""

from importlib.resources.abc import Traversable
from pathlib import Path

import click

from carpal.errors import refuse
from carpal.status import Reason

_HERE = Path(__file__).parent
_PLACES = (_HERE / "protos", _HERE.parent / "proto")
"""In an installed package; in a checkout."""


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
def proto(folder: Path) -> None:
    """Write the .proto files into DIR: give it to protoc as its import path.

    `carpal/v1/hand.proto` is what a hand type serves; it needs nothing but what comes with protoc.
    """
    written = write(folder)
    for each in written:
        click.echo(folder / each)
    click.echo(f"next: protoc -I {folder} … carpal/v1/hand.proto", err=True)


def write(folder: Path) -> list[str]:
    """Write them; their paths in `folder`. What is there of them is replaced."""
    source = next((place for place in _PLACES if place.is_dir()), None)
    if source is None:
        raise refuse(
            Reason.CONFIG_INVALID,
            "this installation has no .proto files",
            action="install carpal from its wheel or a whole checkout",
        )
    found: dict[str, Traversable] = {
        path.relative_to(source).as_posix(): path for path in sorted(source.rglob("*.proto"))
    }
    try:
        for name, file in found.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(file.read_bytes())
    except OSError as error:
        raise refuse(
            Reason.CONFIG_INVALID, f"{folder} cannot be written: {error}", action="give another DIR"
        ) from error
    return sorted(found)
