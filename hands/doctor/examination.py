"""All that is looked at, in the order in which it is said: this machine, then the way out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from carpal.errors import CarpalError
from carpal.tls import Loaded
from hands.doctor import audit, brain, files, journal, machine, network, settings, stream
from hands.doctor.network import Trusted
from hands.doctor.rows import Row, Verdict, fail, looked, ok, refused, skip, warn
from hands.doctor.subject import Subject
from hands.doctor.threads import in_thread
from hands.local import asking

_WAY = 90.0
"""Seconds for the steps of the way to one address, whose own bounds are shorter."""


async def examine(subject: Subject, before: Sequence[Row] = ()) -> AsyncIterator[Row]:
    """Each row as soon as it is known. Raises nothing: what cannot be looked at is a row.

    The last one says what comes next, for which rows that came `before` count too.
    """
    rows = list(before)
    async for row in _all(subject):
        rows.append(row)
        yield row
    yield _next(subject, rows)


async def _all(subject: Subject) -> AsyncIterator[Row]:
    running, pid = await in_thread(lambda: _daemon(subject))
    here: list[tuple[str, Callable[[], list[Row]]]] = [
        ("policy", lambda: settings.policy(subject)),
        ("user", lambda: files.user(subject)),
        ("files", lambda: files.files(subject)),
        ("enrolment", lambda: files.enrolment(subject)),
        ("identity", lambda: files.identity(subject)),
        ("certificate", lambda: files.certificate(subject, subject.loaded())),
        ("journal", lambda: journal.look(subject)),
        ("audit", lambda: audit.look(subject)),
        ("disk", lambda: machine.disk(subject)),
        ("cgroups", lambda: machine.groups(pid)),
    ]
    for target, check in here:
        for row in await looked(target, in_thread(check)):
            yield row
    for row in await looked("sandbox", machine.sandbox(subject)):
        yield row
    for row in await looked("type", machine.hand_types(subject), limit=120.0):
        yield row
    for row in running:
        yield row
    async for row in _way_out(subject):
        yield row


async def _way_out(subject: Subject) -> AsyncIterator[Row]:
    """The enrolment port and each brain, with all that is asked there."""
    loaded, enrollment = subject.loaded(), subject.enrollment()
    if not enrollment:
        why = "no brain is known before this machine is enrolled"
        yield skip("brain", why, "to look at the way there now, give --token-file FILE")
        return
    token = subject.token
    trusted = Trusted(ca=loaded.ca if loaded else b"", pins=token.pins if token else ())
    found = network.Way([])

    async def enrolling() -> list[Row]:
        nonlocal found
        found = await network.way(subject, enrollment, trusted)
        return found.rows

    for row in await looked(f"way {enrollment}", enrolling(), _WAY):
        yield row
    if loaded is None:
        yield skip("standing", "there is no identity to ask about")
        return
    if found.ca:
        for row in await looked("standing", brain.asked(subject, loaded, found)):
            yield row
    else:
        for target in ("clock", "standing", "version"):
            yield skip(target, f"{enrollment} cannot be asked, as said above")
    links = [_Link(subject, loaded, trusted, address) for address in subject.brains()]
    await asyncio.gather(*(link.look() for link in links))
    some = any(link.works for link in links)
    for link in links:
        for row in link.rows:
            yield row.milder("another brain answers") if some else row
    if not subject.hold:
        yield stream.not_held()
        return
    holding = [
        looked(f"stream {link.address}", link.hold(), stream.limit(subject)) for link in links
    ]
    held = [row for several in await asyncio.gather(*holding) for row in several]
    kept = any(row.verdict is Verdict.OK for row in held)
    for row in held:
        yield row.milder("one to another brain is not") if kept else row


class _Link:
    """One brain, as links are made to it."""

    def __init__(self, subject: Subject, loaded: Loaded, trusted: Trusted, address: str) -> None:
        self.address = address
        self.rows: list[Row] = []
        self.works = False
        """It was called, and answered."""
        self._subject, self._loaded, self._trusted = subject, loaded, trusted

    async def look(self) -> None:
        """The steps of the way there, and one call."""
        found = network.Way([])

        async def going() -> list[Row]:
            nonlocal found
            found = await network.way(self._subject, self.address, self._trusted)
            return found.rows

        async def calling() -> list[Row]:
            return [await brain.call(self._subject, self._loaded, self.address)]

        self.rows = await looked(f"way {self.address}", going(), _WAY)
        if not found.open:
            self.rows.append(skip(f"mtls {self.address}", "cannot be tried, as said above"))
            return
        called = await looked(f"mtls {self.address}", calling())
        self.works = all(row.verdict is Verdict.OK for row in called)
        self.rows += called

    async def hold(self) -> list[Row]:
        """What becomes of a stream."""
        if not self.works:
            return [skip(f"stream {self.address}", "cannot be held, as said above")]
        return [await stream.held(self._subject, self._loaded, self.address)]


def _daemon(subject: Subject) -> tuple[list[Row], int | None]:
    """Whether one runs here and is linked, in its own words; and its process."""
    try:
        if not subject.enrolled:
            return [skip("daemon", "there is none yet: this machine is not enrolled")], None
        told = asking.ask(subject.files.folder)
    except CarpalError as error:
        if "no daemon runs" in error.message:
            action = f"start it: carpal hand run --state-dir {subject.settings.state_dir}"
            return [warn("daemon", "none runs here", action)], None
        return [refused("daemon", error)], None
    pid = told.get("pid")
    if told.get("state") == "linked":
        detail = f"linked to {told['brain']} at {told['address']} since {told['since']}"
        return [ok("daemon", detail)], pid
    detail = f"not linked since {told.get('since')}: {told.get('why')}"
    return [fail("daemon", detail, str(told.get("action")))], pid


def _next(subject: Subject, rows: list[Row]) -> Row:
    """What there is to do now."""
    failures = [row.target for row in rows if row.verdict is Verdict.FAIL]
    if failures:
        first = "do what the first row that failed says, and run this again: one may cause others"
        return skip("next", f"failed: {', '.join(failures)}", first)
    if not subject.enrolled:
        return skip("next", "this machine can be enrolled", files.next_step(subject, None))
    told = [row for row in rows if row.target == "daemon" and row.verdict is Verdict.WARN]
    if told:
        return skip("next", "this machine is ready", told[0].action)
    return skip("next", "nothing: the daemon runs and is linked")
