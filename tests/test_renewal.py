"""An identity renews at half-life; whatever fails on the way, a usable one is there."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal import pending, tls
from carpal.backoff import Backoff
from carpal.errors import CarpalError, Denied, refuse
from carpal.fault_points import FOLDER
from carpal.identity import Role
from carpal.renewal import Answer, Renewal, due
from carpal.status import Reason
from carpal.tls import Held, IdentityFiles, Loaded, Shown, key_pem, new_key
from tests.hands.place import PATIENCE, until
from tests.pki import Pki
from vault.authority import ca

NOW = datetime.now(UTC).replace(microsecond=0)
HOURS = timedelta(hours=1)


class Signs:
    """Whoever signs, and whoever is connected to, of one trust domain; and the clock."""

    def __init__(self, pki: Pki) -> None:
        self.pki = pki
        self.now = NOW
        self.requests: list[bytes] = []
        self.shown: list[Shown] = []
        self.refuses: Exception | None = None
        self.issue: Callable[[bytes], bytes] = self.chain

    def clock(self) -> datetime:
        """What time it is."""
        return self.now

    def chain(self, request: bytes, uri_name: str = "d") -> bytes:
        """A day's certificate for the request."""
        leaf = ca.issue(
            self.pki.authority,
            ca.Claims(Role.DAEMON, uri_name, "default"),
            public_key=ca.requested_key(request),
            not_before=self.now - timedelta(minutes=5),
            not_after=self.now + 24 * HOURS,
        )
        return ca.chain_pem(self.pki.authority, leaf)

    async def ask(self, old: Loaded, request: bytes) -> Answer:
        """See Ask."""
        self.requests.append(request)
        return Answer(self.issue(request), self.pki.ca_pem, self.now)

    async def connect(self, candidate: Shown) -> None:
        """See Connect."""
        if self.refuses is not None:
            raise self.refuses
        self.shown.append(candidate)

    def renewal(self, files: IdentityFiles) -> Renewal:
        """What keeps it renewed, impatiently."""
        quick = Backoff(first=0.001, cap=0.01)
        return Renewal(files, self.ask, self.connect, now=self.clock, backoff=quick, look=0.001)


@pytest.fixture
def signs(tmp_path: Path) -> Signs:
    """Whoever signs."""
    pki = Pki(tmp_path / "pki")
    pki.authority = ca.new_authority(new_key(), pki.trust_domain, NOW - 48 * HOURS)
    return Signs(pki)


@pytest.fixture
def files(signs: Signs) -> IdentityFiles:
    """A daemon's identity, issued now for a day."""
    end = NOW + 24 * HOURS
    return signs.pki.issue(Role.DAEMON, "d", not_before=NOW - timedelta(minutes=5), not_after=end)


def test_it_is_due_at_half_life_give_or_take_a_tenth(tmp_path: Path) -> None:
    made = Pki(tmp_path).issue(Role.DAEMON, "d", not_before=NOW, not_after=NOW + 20 * HOURS)
    me = made.identity()
    assert due(me, NOW, 0.0) == 10 * HOURS
    assert due(me, NOW, 1.0) == 11 * HOURS
    assert due(me, NOW, -1.0) == 9 * HOURS
    assert due(me, NOW + 12 * HOURS, 0.0) == timedelta(0)


async def test_time_a_machine_slept_through_counts(signs: Signs, files: IdentityFiles) -> None:
    looks = iter([NOW, NOW, NOW + 13 * HOURS])
    renewal = Renewal(files, signs.ask, signs.connect, now=lambda: next(looks), look=0.001)
    async with asyncio.timeout(PATIENCE):
        await renewal.until_due()


async def test_a_new_key_is_saved_connected_with_and_only_then_promoted(
    signs: Signs, files: IdentityFiles
) -> None:
    old = files.load()
    signs.now = NOW + 12 * HOURS
    await signs.renewal(files).renew()
    (candidate,) = signs.shown
    assert candidate == files.candidate
    new = files.load()
    assert new.key_pem != old.key_pem
    assert new.identity.uri == old.identity.uri
    assert new.identity.not_after == signs.now + 24 * HOURS
    assert names(files) == ["ca.pem", "cert.pem", "key.pem"]


async def test_what_does_not_connect_is_tried_again_and_the_old_one_stays(
    signs: Signs, files: IdentityFiles
) -> None:
    signs.now = NOW + 14 * HOURS
    signs.refuses = refuse(Reason.UNREACHABLE, "no brain")
    old = files.load()
    running = asyncio.create_task(signs.renewal(files).run())
    await until(lambda: len(signs.requests) >= 3, "it was not tried again")
    assert files.load() == old
    assert len(set(signs.requests)) == 1, "one machine asks with one request"
    signs.refuses = None
    await until(lambda: files.identity() != old.identity, "it was not renewed")
    running.cancel()


async def test_one_that_was_hurried_is_tried_until_it_works_not_until_half_of_its_life_is_over(
    signs: Signs, files: IdentityFiles
) -> None:
    """After a switch of the CA, say: what fails then must not wait for hours."""
    signs.now = NOW + 1 * HOURS
    signs.refuses = refuse(Reason.UNREACHABLE, "no vault")
    old = files.load()
    renewal = signs.renewal(files)
    running = asyncio.create_task(renewal.run())
    renewal.hurry()
    await until(lambda: len(signs.requests) >= 3, "it was not tried again")
    signs.refuses = None
    await until(lambda: files.identity() != old.identity, "it was not renewed")
    asked = len(signs.requests)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await running
    assert len(signs.requests) == asked, "once it worked, it rests"


async def test_a_fault_of_whoever_signs_does_not_end_renewing(
    signs: Signs, files: IdentityFiles
) -> None:
    """A vault signs its own by its store, whose full disk is no OSError."""
    signs.now = NOW + 14 * HOURS
    old = files.identity()

    def fails(request: bytes) -> bytes:
        signs.issue = signs.chain
        raise RuntimeError("database or disk is full")

    signs.issue = fails
    running = asyncio.create_task(signs.renewal(files).run())
    await until(lambda: running.done() or files.identity() != old, "it was not renewed")
    assert not running.done()
    running.cancel()


@pytest.mark.parametrize("saved", range(8))
async def test_a_disk_that_is_full_leaves_a_usable_identity_and_it_is_tried_again_s13(
    signs: Signs, files: IdentityFiles, saved: int
) -> None:
    """S13: the key fails to be saved; or the certificate, here or in its place."""
    old = files.load()
    signs.now = NOW + 14 * HOURS
    with full_after(saved), pytest.raises(OSError, match="No space"):
        await signs.renewal(files).renew()
    with full_after(0):  # and after a reboot
        kept = IdentityFiles(files.directory).load()
        assert not kept.identity.expired(signs.now)
        assert kept.key.public_key() == _public_key(kept)
        # Once the new key is in place, it is the new one, which has been connected with.
        assert (kept == old) == (saved < 7)
    await signs.renewal(files).renew()
    assert files.load().identity.not_after == signs.now + 24 * HOURS
    assert names(files) == ["ca.pem", "cert.pem", "key.pem"]


def _public_key(loaded: Loaded) -> object:
    from cryptography import x509

    return x509.load_pem_x509_certificate(loaded.chain).public_key()


@pytest.mark.parametrize("saved", [0, 3])
async def test_what_expires_unsaved_is_renewed_by_the_old_key_and_used_from_memory_s13(
    signs: Signs, files: IdentityFiles, saved: int
) -> None:
    """S13: the certificate expires while nothing can be saved; the old key reconnects it."""
    old = files.load()
    signs.now = NOW + 25 * HOURS
    renewal = signs.renewal(files)
    with full_after(saved), pytest.raises(OSError, match="used unsaved"):
        await renewal.renew()
    shown = renewal.shown()
    assert isinstance(shown, Held)
    assert signs.shown == [shown]
    assert shown.identity().not_after == signs.now + 24 * HOURS
    with full_after(0):  # after a reboot: what is on the disk is still proof
        again = signs.renewal(IdentityFiles(files.directory))
        assert IdentityFiles(files.directory).load() == old
        with pytest.raises(OSError, match="used unsaved"):
            await again.renew()
    # There is room again: what was in use is saved, and nobody is asked.
    asked = len(signs.requests)
    await again.renew()
    assert files.load() == again.shown().load_valid(signs.now)
    assert again.shown() == files
    assert len(signs.requests) == asked


async def test_what_is_nearly_over_is_urgent_however_long_it_waited_before(
    signs: Signs, files: IdentityFiles
) -> None:
    signs.now = NOW + 24 * HOURS
    patient = Backoff(first=900.0, cap=900.0, uniform=lambda _low, high: high)
    renewal = Renewal(files, signs.ask, signs.connect, now=signs.clock, backoff=patient)
    signs.refuses = refuse(Reason.UNREACHABLE, "no brain")
    running = asyncio.create_task(renewal.run())
    await until(lambda: signs.requests, "it was not asked for")
    signs.refuses = None
    renewal.hurry()  # somebody says that it is over
    await until(lambda: files.identity().not_after > signs.now, "it waited")
    running.cancel()


@pytest.mark.parametrize("trick", ["another key", "another ca", "another name", "junk"])
async def test_an_answer_that_is_not_ours_is_not_written(
    signs: Signs, files: IdentityFiles, tmp_path: Path, trick: str
) -> None:
    def issue(request: bytes) -> bytes:
        if trick == "another key":
            return signs.chain(tls.certificate_request(new_key()))
        if trick == "another ca":
            return Signs(Pki(tmp_path / "x")).chain(request)
        return b"junk" if trick == "junk" else signs.chain(request, "e")

    signs.issue = issue
    old = files.load()
    with pytest.raises(Denied) as refused:
        await signs.renewal(files).renew()
    assert refused.value.reason is Reason.IDENTITY_INVALID
    assert files.load() == old


@pytest.mark.parametrize("hours", [-3, 30])
async def test_a_clock_that_is_wrong_is_the_reason_with_both_clocks(
    signs: Signs, files: IdentityFiles, hours: int
) -> None:
    here = NOW + hours * HOURS
    renewal = Renewal(files, signs.ask, signs.connect, now=lambda: here)
    with pytest.raises(CarpalError, match="set this machine's clock") as refused:
        await renewal.renew()
    assert refused.value.reason is Reason.CLOCK_WRONG
    assert f"it is {here:%F %TZ} here, {NOW:%F %TZ} there" in refused.value.message


async def test_two_processes_do_not_renew_one_identity_at_once(
    signs: Signs, files: IdentityFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_TURN", 0.1)
    with files.writing(), pytest.raises(CarpalError, match="by another process"):
        await signs.renewal(files).renew()
    assert not signs.requests


STEPS = [
    "renewal.pending",
    "renewal.before_asked",
    "renewal.answered",
    "candidate.key",
    "candidate.written",
    "renewal.staged",
    "renewal.connected",
    "promotion.ca",
    "promotion.key",
    "promotion.cert",
    "renewal.done",
]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_killed_at_any_step_a_usable_identity_is_left_and_renews(
    signs: Signs, files: IdentityFiles, tmp_path: Path, step: str
) -> None:
    """SIGKILL between any two writes: the old one or the new one, whole, and it goes on."""
    old = files.load()
    ca_key = tmp_path / "ca.key"
    ca_key.write_bytes(key_pem(signs.pki.authority.key))
    faults = tmp_path / "faults"
    faults.mkdir()
    (faults / f"identity.{step}").write_text("kill")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, str(files.directory), str(ca_key),
        env={**os.environ, FOLDER: str(faults)},
    )  # fmt: skip
    async with asyncio.timeout(PATIENCE):
        assert await child.wait() == -signal.SIGKILL
    left = IdentityFiles(files.directory).load_valid()
    assert left.identity.uri == old.identity.uri
    signs.now = datetime.now(UTC)
    await signs.renewal(files).renew()
    assert files.load_valid().key_pem not in (old.key_pem, left.key_pem)
    assert names(files) == ["ca.pem", "cert.pem", "key.pem"]


def names(files: IdentityFiles) -> list[str]:
    """What is in the folder."""
    return sorted(path.name for path in files.directory.iterdir())


@contextmanager
def full_after(saved: int) -> Iterator[None]:
    """A disk with room for so many more files."""
    real = tls.write_file
    room = iter(range(saved))

    def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
        if next(room, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, data, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tls, "write_file", write_file)
        patch.setattr(pending, "write_file", write_file)
        yield


def main(directory: Path, ca_key: Path) -> None:
    """Renew once, by the authority whose key is in a file: to be killed on the way."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    files = IdentityFiles(directory)
    key = serialization.load_pem_private_key(ca_key.read_bytes(), password=None)
    pki = Pki(directory)
    certificate = x509.load_pem_x509_certificate(files.ca.read_bytes())
    pki.authority = ca.Authority(key, certificate)  # type: ignore[arg-type]
    signs = Signs(pki)
    asyncio.run(Renewal(files, signs.ask, signs.connect).renew())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
