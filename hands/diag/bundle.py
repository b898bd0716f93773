"""The file: what there is to say, cleaned, looked through once more, and written in one go."""

import io
import json
import os
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from hands.diag import log_lines, log_source, members
from hands.diag.clean import Cleaner
from hands.diag.known import Known, known
from hands.doctor.examination import examine
from hands.doctor.rows import LIMIT, Row, looked
from hands.doctor.subject import Subject
from hands.doctor.threads import in_thread
from hands.local import asking

_ABOUT = """\
What `carpal hand diag` wrote about this machine's hand daemon, to be shown to whoever helps.

Secrets were taken out: keys, tokens, passwords, the values of the environment, and what looks like
any of them ([redacted]). Nothing that was given to a call, nor anything that it gave, is in here.
Look through it all the same before you send it.

"""


@dataclass(frozen=True)
class Member:
    """One file of it."""

    name: str
    holds: str
    """What it is, in words."""
    data: bytes


async def members_of(
    subject: Subject, first: Sequence[Row], log: Path | None
) -> tuple[list[Member], Known]:
    """All members, cleaned; and the secrets that none of them holds."""
    status = await _guarded(lambda: in_thread(lambda: asking.ask(subject.files.folder)))
    pid = status.get("pid") if isinstance(status, dict) else None
    secrets = await in_thread(lambda: known(subject, pid if isinstance(pid, int) else None))
    clean = Cleaner(secrets)
    rows = [*first, *[row async for row in examine(subject, before=first)]]

    def lines() -> str:
        found = log_source.recent(log)
        return "\n".join([f"from {found.source}", *log_lines.kept(found.lines, clean)]) + "\n"

    async def metrics() -> str:
        _, body = await in_thread(lambda: asking.exchange(subject.files.folder, "/metrics"))
        return body.decode("utf-8", "replace")

    told: list[tuple[str, str, Any]] = [
        ("doctor.jsonl", "what `carpal hand doctor` says, a row a line", rows),
        ("settings.json", "the settings in force, and which variables are set", None),
        ("status.json", "what `carpal hand status --json` says", status),
        ("metrics.txt", "what the daemon counts", await _guarded(metrics)),
        ("journal.json", "how many hands and calls the journal has, by state", None),
        ("log.txt", "the recent log, as far as it is the daemon's own words", None),
        ("machine.json", "the kernel, the disk, the memory, what is allowed", None),
        ("versions.json", "of Carpal and what it needs", members.versions()),
    ]
    made: dict[str, Callable[[], Any]] = {
        "settings.json": lambda: members.settings(subject),
        "journal.json": lambda: members.journal_summary(subject),
        "log.txt": lines,
        "machine.json": lambda: members.machine(subject),
    }
    found = []
    for name, holds, ready in told:
        make = made.get(name)
        value = await _guarded(partial(in_thread, make)) if make else ready
        found.append(Member(name, holds, clean(_text(name, value)).encode()))
    names = "".join(f"{each.name:14}  {each.holds}\n" for each in found)
    return [Member("about.txt", "what this is", (_ABOUT + names).encode()), *found], secrets


def write(path: Path, made: Sequence[Member], secrets: Known) -> int:
    """Write a zip of them to a new file, for its owner alone; how many bytes it has.

    CONFIG_INVALID when it is there, or cannot be written; INTERNAL, and nothing is written, when
    a member still holds a secret that is known.
    """
    for each in made:
        if secrets.is_in(each.data):
            raise refuse(
                Reason.INTERNAL,
                f"{each.name} would hold a secret of this machine; nothing was written",
                action="this is a bug: report it, without the file",
            )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in made:
            archive.writestr(each.name, each.data)
    data = packed.getvalue()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(data)
    except FileExistsError:
        raise _not_written(f"{path} is there already", "name another file") from None
    except OSError as error:
        problem = f"{path} cannot be written: {error.strerror}"
        raise _not_written(problem, "name a file where there is room") from None
    return len(data)


def _not_written(problem: str, action: str) -> CarpalError:
    return refuse(Reason.CONFIG_INVALID, problem, action=action)


async def _guarded(make: Callable[[], Awaitable[Any]]) -> Any:
    """What it gives, or in words why there is none."""
    given: list[Any] = []

    async def check() -> list[Row]:
        given.append(await make())
        return []

    rows = await looked("", check(), LIMIT)
    return given[0] if given else {"left_out": rows[0].detail}


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if name.endswith(".jsonl"):
        return "".join(json.dumps(row.json(), ensure_ascii=False) + "\n" for row in value)
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
