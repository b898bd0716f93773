"""`carpal session blob`: the bytes of a blob that a log names, in a new file or on stdout."""

import hashlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click

from carpal.errors import invalid, refuse
from carpal.operator.asking import run
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.files_out import content
from carpal.operator.outcome import DONE
from carpal.status import Reason

_NAMED = re.compile(r"(?:(?:sha256|blob|tar):)?([0-9a-f]{64})")
STDOUT = Path("-")


@click.command()
@click.argument("blob", metavar="BLOB")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="A new file; - for stdout."
)
@operator_options
def blob(*, found: Found, blob: str, out: Path) -> int:
    """Write out a blob of the workspace: sha256:DIGEST, as events name it.

    So a picture that a result has attached, the content of a file that was
    kept, or a saved workspace.
    """
    named = _NAMED.fullmatch(blob)
    if named is None:
        raise invalid("BLOB", "must be sha256: and 64 hexadecimal digits in lower case")

    async def main(operator: Operator) -> int:
        check_new(out)
        await write(operator, named[1], out)
        return DONE

    return run(found, main)


def check_new(out: Path) -> None:
    """INVALID_FIELD when the file cannot be made: before anything is asked for."""
    if out == STDOUT:
        return
    if out.exists():
        raise invalid("--out", f"{out} is there; name a new file")
    if not out.parent.is_dir():
        raise invalid("--out", f"{out.parent} is not there; make it first")


async def write(operator: Operator, digest: str, out: Path) -> None:
    """Write a blob, by its digest in hex. Leaves no file that is not the whole of it."""
    found = hashlib.sha256()
    with _new(out) as file:
        async for data in content(operator, digest):
            found.update(data)
            file.write(data)
        if found.hexdigest() != digest:
            raise refuse(Reason.DATA_CORRUPT, f"blob {digest} came with another digest")


@contextmanager
def _new(out: Path) -> Iterator[IO[bytes]]:
    """A new file, which does not stay when the block fails. INVALID_FIELD when it cannot be."""
    if out == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with out.open("xb") as file:
            try:
                yield file
            except BaseException:
                out.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise invalid("--out", f"{out} cannot be written: {error.strerror}") from None
