"""A patient: a machine that enrolled with a real vault, and the one brain that it dials."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from brain.daemons.gate import refused
from carpal.errors import CarpalError
from carpal.identity import BACKDATE, Role
from carpal.proof import Token
from carpal.proxy import EXCEPTIONS, VARIABLES
from hands import app
from hands.doctor.examination import examine
from hands.doctor.rows import Row, Verdict
from hands.doctor.subject import Subject, utc_now
from hands.enroll import Links, enroll, links_path
from hands.files import HandFiles
from tests.hands.fake_brain import FakeBrain, serving
from tests.hands.machine import Machine
from tests.hands.place import until
from tests.pace import SCALE
from tests.pki import Pki
from tests.trust import Trust, trust
from vault.authority.ca import Claims

AGE = timedelta(days=60)
"""Of the authority: longer than any certificate of these tests is over."""


class Seen(Machine):
    """A machine, and short ways to look at it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.files = HandFiles(state)
        self.subject = Subject(app.HandConfig(state_dir=state, sandbox="off"))

    async def rows(self, **changes: Any) -> dict[str, Row]:
        """What the doctor says, by target."""
        subject = replace(self.subject, **changes) if changes else self.subject
        return {row.target: row async for row in examine(subject)}

    async def fails(self, target: str, *words: str, **changes: Any) -> Row:
        """The row of `target` is a failure whose detail or action has these words."""
        return await self._is(Verdict.FAIL, target, *words, **changes)

    async def warns(self, target: str, *words: str, **changes: Any) -> Row:
        """The same, of a warning."""
        return await self._is(Verdict.WARN, target, *words, **changes)

    async def cured(self, target: str, **changes: Any) -> Row:
        """The row of `target` says that all is well."""
        return await self._is(Verdict.OK, target, **changes)

    async def _is(self, verdict: Verdict, target: str, *words: str, **changes: Any) -> Row:
        rows = await self.rows(**changes)
        assert target in rows, list(rows)
        row = rows[target]
        assert row.verdict is verdict, row.text()
        for word in words:
            assert word in row.text(), row.text()
        assert bool(row.action) == (verdict in (Verdict.FAIL, Verdict.WARN)), row.text()
        return row


class Patient(Seen):
    """One of a trust domain, with a brain."""

    def __init__(self, state: Path, domain: Trust, brain: FakeBrain) -> None:
        super().__init__(state)
        self.domain = domain
        self.brain = brain

    async def enrol(self) -> None:
        """With a new token."""
        await enroll(await self.domain.token("d"), self.files.identity_dir)

    def dials(self, *addresses: str, enrollment: str = "") -> None:
        """Where it dials."""
        links = Links(addresses, enrollment or self.domain.enrollment_address)
        links.save(links_path(self.files.identity_dir))

    def has_identity_of(self, age: timedelta) -> None:
        """One that the vault issued so long ago."""
        self.domain.clock.offset = -age
        made = self.domain.issue(Claims(Role.DAEMON, "d", "default")).load()
        self.domain.clock.offset = timedelta()
        self.files.identity.install(made.key_pem, made.chain, made.ca)

    async def renewed(self) -> None:
        """Until its certificate is valid."""
        await until(
            lambda: not self.files.identity.identity().expired(utc_now()), "it was not promoted"
        )


class Lone(Seen):
    """One whose brain is not there: what is on it can be seen all the same."""

    def __init__(self, pki: Pki, state: Path) -> None:
        super().__init__(state)
        self.pki = pki
        self.has_identity_of(timedelta())
        Links(("127.0.0.1:1",), "127.0.0.1:1").save(links_path(self.files.identity_dir))

    def has_identity_of(self, age: timedelta) -> None:
        """One that was issued so long ago, for a day."""
        begun = utc_now() - age - BACKDATE
        folder, until = self.files.identity_dir, begun + timedelta(days=1)
        self.pki.issue(Role.DAEMON, "d", directory=folder, not_before=begun, not_after=until)


def follow(row: Row) -> None:
    """Run the command that a row says to run."""
    _, found, command = row.action.partition("run: ")
    assert found, row.text()
    subprocess.run(["sh", "-c", command], check=True, timeout=20 * SCALE, capture_output=True)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings and no proxy of this machine's own; no engine that another one left either."""
    for name in (*VARIABLES, *EXCEPTIONS, "CARPAL_PROXY", "CARPAL_SANDBOX", "CARPAL_STATE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def lone(pki: Pki, tmp_path: Path) -> Iterator[Lone]:
    """A machine that is as it must be, and has no brain."""
    made = Lone(pki, tmp_path / "state")
    yield made
    made.kill_hands()


@pytest.fixture
def kept_out() -> list[str]:
    """The daemons that are in quarantine."""
    return []


@pytest.fixture
async def domain(tmp_path: Path, kept_out: list[str]) -> AsyncIterator[Trust]:
    """A vault, and a brain's enrolment port before it."""

    async def quarantine(name: str, _: str) -> CarpalError | None:
        return refused(name, "a copied machine") if name in kept_out else None

    async with trust(tmp_path / "trust", age=AGE, quarantine=quarantine) as served:
        yield served


@pytest.fixture
async def one(domain: Trust) -> AsyncIterator[FakeBrain]:
    """A brain of that domain."""

    class Told(FakeBrain):
        """Who is revoked, it knows from the vault."""

        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.revocations = domain.service.revocations

    brain = domain.identity(Role.BRAIN, "brain-1")
    async with serving(brain, domain.identity(Role.SESSIOND, "sessiond"), kind=Told) as served:
        yield served


@pytest.fixture
async def patient(tmp_path: Path, domain: Trust, one: FakeBrain) -> AsyncIterator[Patient]:
    """A machine that is as it must be."""
    made = Patient(tmp_path / "state", domain, one)
    await made.enrol()
    made.dials(one.address)
    yield made
    made.kill_hands()


@pytest.fixture
def token_of(domain: Trust) -> Any:
    """A new token, by the address at which it enrols."""

    async def make(address: str = "") -> Token:
        token = await domain.token("other")
        return replace(token, address=address) if address else token

    return make
