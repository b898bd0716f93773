"""What a result attached, as files in a folder of a person's, where none is written over."""

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from carpal.errors import invalid
from carpal.file_names import file_name
from carpal.v1 import hand_pb2 as pb


class Saved(NamedTuple):
    """One attachment, and what became of it."""

    attachment: pb.Attachment
    file: Path | None
    why: str
    """It has no file; empty when it has."""


def made(folder: Path) -> None:
    """Make it, unless it is there. INVALID_FIELD when that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise invalid("--save", f"{folder} cannot be made: {error.strerror}") from None


def saved(attachments: Iterable[pb.Attachment], blobs: Path, folder: Path) -> Iterator[Saved]:
    """Write each to `folder` from the file of its digest in `blobs`, by its own name or its kind's.

    A name that is taken gets a number: `shot.png`, `shot-2.png`.
    """
    for each in attachments:
        try:
            data = each.data or (blobs / each.digest.hex()).read_bytes()
            yield Saved(each, _written(data, folder / file_name(each.name, each.media_type)), "")
        except OSError as error:
            yield Saved(each, None, f"cannot be saved in {folder}: {error.strerror}")


def _written(data: bytes, wanted: Path) -> Path:
    for number in count(1):
        path = wanted if number == 1 else wanted.with_stem(f"{wanted.stem}-{number}")
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers do not end")
