"""An export on disk: opened, read line by line, as often as needed."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from carpal.errors import invalid
from carpal.export import LINE_BYTES, Entry, read


class ExportFile:
    """A whole file, whose entries can be read again and again."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.name = name
        self._file = file

    def entries(self) -> Iterator[Entry]:
        """All entries from the first on; raises as `carpal.export.read`."""
        self._file.seek(0)
        # One byte more than may be, so that too much is seen without being read.
        return read(iter(lambda: self._file.readline(LINE_BYTES + 1), b""), self.name)


@contextmanager
def open_export(path: str) -> Iterator[ExportFile]:
    """Open a file; stdin for `-`. What can be read but once is copied first."""
    with ExitStack() as stack:
        try:
            file: IO[bytes] = sys.stdin.buffer
            if path != "-":
                file = stack.enter_context(Path(path).open("rb"))
            if not file.seekable():
                copy = stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(file, copy)
                file = copy
        except OSError as error:
            raise invalid(path, f"cannot be read ({error.strerror})") from None
        yield ExportFile(file, "stdin" if path == "-" else path)
