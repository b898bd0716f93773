"""A browser is led to a secret address by a file, for every local user reads its command line."""

import html
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_PAGE = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={}">'


@contextmanager
def leading(address: str) -> Iterator[str]:
    """The URL of one that only its owner reads, and that is gone at the end of the block."""
    with TemporaryDirectory(prefix="carpal-view-") as folder:  # 0700
        path = Path(folder) / "view.html"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(_PAGE.format(html.escape(address)))
        yield path.as_uri()
