"""A log as an archive of files, for code to read: what a `session:` mount becomes.

`events.jsonl` has each event as an export has it, `conversation.md` what was
said and done, for reading. A log that is large is cut into folders named by
positions. `about.json` says which log it is. What is held is one folder.
"""

import io
import json
import tarfile
from typing import IO

from brain.session.log import entry_of
from brain.tools.readable import heading, text_of
from carpal.errors import refuse
from carpal.event_lines import dumps, event_object
from carpal.status import Reason
from carpal.v1 import types_pb2

FOLDER_EVENTS = 1000
FOLDER_BYTES = 4 * 1024 * 1024
"""Of lines, after which a folder ends."""
ARCHIVE_BYTES = 256 * 1024 * 1024
"""Of one mount."""
_LEFT_OUT = ("span.", "context.", "session.status_running")
"""Families of events that are no part of what was said and done."""


class LogArchive:
    """Writes one archive; not to be called from two threads at once."""

    def __init__(self, file: IO[bytes], session_id: str) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._file = file
        self._session_id = session_id
        self._lines, self._said = bytearray(), bytearray()
        self._held: list[int] = []
        """Positions of the events of the folder that is made."""
        self._folders: list[str] = []
        self._events = self._first = self._last = 0

    def add(self, events: list[types_pb2.Event]) -> None:
        """Take the next events. MESSAGE_TOO_LARGE, naming the position, when it is too much."""
        for event in events:
            if len(self._held) >= FOLDER_EVENTS or len(self._lines) >= FOLDER_BYTES:
                self._folder()
            self._lines += dumps(event_object(event)) + b"\n"
            if not event.type.startswith(_LEFT_OUT):
                entry = entry_of(event)
                told = f"## {heading(entry)}\n\n{text_of(entry)}\n\n"
                self._said += told.encode("utf-8", "replace")
            self._held.append(event.position)
            self._first = self._first or event.position
            self._last = event.position
            self._events += 1
            if self._file.tell() + len(self._lines) + len(self._said) > ARCHIVE_BYTES:
                raise refuse(
                    Reason.MESSAGE_TOO_LARGE,
                    f"the log of {self._session_id} has more than {ARCHIVE_BYTES} bytes by event "
                    f"{self._last}",
                    action="mount a part of it: "
                    f"session:{self._session_id}#{self._first}-{self._last - 1}",
                )

    def end(self) -> None:
        """Write what is left."""
        if self._folders:
            self._folder()
        else:
            self._files("")
        about = {
            "session_id": self._session_id,
            "from": self._first,
            "through": self._last,
            "events": self._events,
            "folders": self._folders,
        }
        self._member("about.json", (json.dumps(about, indent=1) + "\n").encode())
        self._tar.close()

    def _folder(self) -> None:
        name = f"{self._held[0]:09}-{self._held[-1]:09}"
        self._folders.append(name)
        self._files(f"{name}/")

    def _files(self, folder: str) -> None:
        self._member(f"{folder}events.jsonl", bytes(self._lines))
        self._member(f"{folder}conversation.md", bytes(self._said))
        self._lines.clear()
        self._said.clear()
        self._held.clear()

    def _member(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), 0o444
        self._tar.addfile(info, io.BytesIO(data))
