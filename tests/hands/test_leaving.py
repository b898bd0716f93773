"""A machine asks why it is refused, and can have itself revoked."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from carpal.errors import CarpalError, Unreachable
from carpal.status import Reason
from hands.enroll import enroll
from hands.files import HandFiles
from hands.leaving import diagnose, retire
from tests.command import Command
from tests.hands.place import until
from tests.hands.test_enroll import token_info
from tests.trust import Trust, trust
from vault.authority.revoking import Revoker


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path / "state") as served:
        yield served


async def test_a_machine_that_retires_is_told_so_and_comes_back_with_a_new_token_only(
    domain: Trust, tmp_path: Path
) -> None:
    state = tmp_path / "machine"
    command = Command(tmp_path)
    folder = state / "hand" / "identity"
    await enroll(await domain.token("build-1"), folder)
    where = ("--state-dir", str(state))
    good = await command("hand", "diagnose", *where)
    assert (good.stdout.split(":")[0], good.code) == ("ok", 0), good.stderr
    undecided = await command("hand", "retire", *where)
    assert undecided.code == 2
    assert (await diagnose(folder, domain.enrollment_address)).verdict == "ok"

    gone = await command("hand", "retire", "--yes", *where)
    assert "revoked spiffe://carpal.internal/daemon/build-1" in gone.stdout
    told = await command("hand", "diagnose", *where)
    assert ("IDENTITY_REVOKED" in told.stdout, told.code) == (True, 4)
    await retire(folder, domain.enrollment_address)  # again is the first answer

    await enroll(await domain.token("build-1"), folder)
    assert (await diagnose(folder, domain.enrollment_address)).verdict == "ok"


async def test_a_retirement_without_an_answer_is_said_to_be_unknown_and_may_be_repeated(
    domain: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vault may have done it and died before it said so."""
    folder = tmp_path / "machine" / "hand" / "identity"
    await enroll(await domain.token("build-1"), folder)
    does = Revoker.by_itself

    def does_and_breaks(self: Revoker, certificate: bytes, nonce: bytes, signature: bytes) -> None:
        does(self, certificate, nonce, signature)
        raise OSError("the disk went away")

    monkeypatch.setattr(Revoker, "by_itself", does_and_breaks)
    for where in (domain.enrollment_address, "127.0.0.1:1"):
        with pytest.raises(Unreachable, match="unknown whether") as caught:
            await retire(folder, where)
        assert "diagnose" in str(caught.value)


async def test_a_token_of_one_pool_gives_no_certificate_of_another(
    domain: Trust, tmp_path: Path
) -> None:
    """The claims are the token's, which the vault keeps: nothing that a machine sends has any."""
    token = await domain.token("build-1", pool="cpu")
    enrolled = await enroll(token, tmp_path / "identity")
    assert (enrolled.identity.name, enrolled.identity.pool) == ("build-1", "cpu")
    assert (await token_info(domain, token)).pool == "cpu"
    # Nor does a later token, of another pool, change what was issued: it makes another one.
    other = await enroll(await domain.token("build-1", pool="gpu"), tmp_path / "other")
    assert other.identity.pool == "gpu"
    with pytest.raises(CarpalError) as caught:
        await enroll(token, tmp_path / "third")
    assert caught.value.reason is Reason.TOKEN_REFUSED


async def test_a_daemon_that_is_to_enrol_ends_with_3_where_nobody_is_and_4_where_it_is_refused(
    domain: Trust, tmp_path: Path
) -> None:
    command, token = Command(tmp_path), await domain.token("build-1")
    await enroll(token, tmp_path / "first")
    nobody = replace(await domain.token("build-2"), address="127.0.0.1:1")
    for each, code in ((nobody, 3), (token, 4)):
        run = ("hand", "run", "--state-dir", str(tmp_path / "state"), "--token-file", "-")
        ran = await command(*run, stdin=each.text())
        assert (ran.code, "Traceback" in ran.stderr) == (code, False), ran.stderr


async def test_a_token_that_a_service_manager_hands_over_enrols_the_machine_at_its_first_start(
    domain: Trust, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text((await domain.token("build-1")).text())
    command = Command(tmp_path, {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    identity = HandFiles(tmp_path / "state").identity
    async with command.start("hand", "run", "--state-dir", str(tmp_path / "state")):
        await until(identity.exists, "it does not enrol")
    assert identity.load().identity.name == "build-1"


async def test_a_used_token_on_a_machine_that_is_enrolled_is_told_that_it_is_and_to_just_run(
    domain: Trust, tmp_path: Path
) -> None:
    state, token = tmp_path / "machine", await domain.token("build-1")
    command = Command(tmp_path)
    enrol = ("hand", "enroll", "--state-dir", str(state), "--token-file", "-")
    first = await command(*enrol, stdin=token.text())
    assert first.code == 0, first.stderr
    again = await command(*enrol, stdin=token.text())
    assert again.code == 4
    assert "is enrolled already, as build-1" in again.stderr
    assert f"carpal hand run --state-dir {state}" in again.stderr
    assert not (state / "hand" / "identity" / "pending").exists(), "nor is a key left there"
