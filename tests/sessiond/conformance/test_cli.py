"""`carpal sessiond check` as its page says it is used, against a sessiond that runs."""

import asyncio
import json
import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.identity import Role
from carpal.process import interpreter
from tests.command import ROOT, SECONDS, Command, Ended
from tests.pki import Pki
from tests.sessiond.test_contract_wire import issue
from tests.world import World

PAGE = ROOT / "docs" / "how-to" / "bring-your-own-session-store.md"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


@pytest.fixture
async def endpoint(tmp_path: Path, pki: Pki) -> AsyncIterator[str]:
    """Where a sessiond of this trust domain listens."""
    state = tmp_path / "state"
    pki.issue("sessiond", "sessiond", directory=state / "sessiond" / "identity")
    world = World(state, term=10.0)
    flags = ("--state-dir", str(state), "--listen", "127.0.0.1:0")
    try:
        running = await world.start("sessiond", "sessiond", "run", *flags)
        yield running.facts["address"]
    finally:
        await world.end()


async def check(tmp_path: Path, endpoint: str, *flags: str) -> Ended:
    identities = str(tmp_path / "as")
    return await Command(tmp_path)(
        "sessiond", "check", "--endpoint", endpoint, "--identities", identities, *flags
    )


def commands(page: Path) -> list[list[str]]:
    """The commands of a page, without what they export."""
    text = page.read_text()
    blocks = [block.split("```")[0] for block in text.split("```sh\n")[1:]]
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("carpal ")]


async def test_the_pages_commands_lead_to_checks_that_pass(tmp_path: Path) -> None:
    environ = {**Command(tmp_path).environ, "CARPAL_STATE": str(tmp_path / "trial")}

    async def run(arguments: list[str]) -> Ended:
        process = await asyncio.create_subprocess_exec(
            *interpreter(),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environ,
            cwd=tmp_path,
        )
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate()
        return Ended(process.returncode or 0, out.decode(), err.decode())

    making, *issuing, checking = commands(PAGE)
    assert (making[1], checking[1]) == ("init", "check")
    for ended in [await run(making), *await asyncio.gather(*map(run, issuing))]:
        assert ended.code == 0, ended.stderr
    world = World(tmp_path / "trial", term=10.0)
    flags = ("--state-dir", str(tmp_path / "trial"), "--listen", "127.0.0.1:0")
    try:
        mcp = ("--mcp-listen", "127.0.0.1:0")
        vault = await world.start("vault", "vault", "run", *flags, *mcp)
        trusting = ("--vault", vault.facts["address"])
        running = await world.start("sessiond", "sessiond", "run", *flags, *trusting)
        checking[checking.index("--endpoint") + 1] = running.facts["address"]
        ended = await run([*checking, "--only", "slices", "--only", "roles"])
    finally:
        await world.end()
    assert ended.code == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1].endswith(" pass, 0 fail, 0 skipped")


async def test_json_has_an_object_a_line_and_then_a_summary(
    tmp_path: Path, pki: Pki, endpoint: str
) -> None:
    issue(pki, tmp_path / "as")
    ended = await check(tmp_path, endpoint, "--only", "slices", "--json")
    assert ended.code == 0, ended.stdout + ended.stderr
    *lines, summary = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {tuple(line) for line in lines} == {("check", "group", "verdict", "detail")}
    assert {(line["group"], line["verdict"]) for line in lines} == {("slices", "pass")}
    assert summary == {"ok": True, "pass": len(lines), "fail": 0, "skipped": 0}


async def test_a_check_that_lacks_an_identity_is_skipped_with_the_reason(
    tmp_path: Path, pki: Pki, endpoint: str
) -> None:
    pki.issue(Role.BRAIN, "check-1", directory=tmp_path / "as" / "brain")
    ended = await check(tmp_path, endpoint, "--only", "roles")
    assert ended.code == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert any("needs an identity in operator/" in line for line in lines)
    assert any(line.startswith("pass     roles: A brain calls the methods") for line in lines)


async def test_nobody_who_answers_is_exit_code_3_in_one_line(tmp_path: Path, pki: Pki) -> None:
    issue(pki, tmp_path / "as")
    ended = await check(tmp_path, "127.0.0.1:1")
    assert ended.code == 3
    assert "the service at 127.0.0.1:1 does not answer" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


async def test_each_endpoint_must_answer(tmp_path: Path, pki: Pki, endpoint: str) -> None:
    issue(pki, tmp_path / "as")
    both = await check(tmp_path, endpoint, "--endpoint", endpoint, "--only", "documents")
    assert both.code == 0, both.stdout + both.stderr
    one = await check(tmp_path, endpoint, "--endpoint", "127.0.0.1:1", "--only", "documents")
    assert one.code == 3
    assert "the service at 127.0.0.1:1 does not answer" in one.stderr


async def test_unfit_identities_and_groups_are_named_in_one_line(tmp_path: Path, pki: Pki) -> None:
    folder = tmp_path / "as"
    folder.mkdir()
    for said in (
        "has none of the folders brain, brain-2",
        "holds spiffe://carpal.internal/operator/check-1, which is no brain",
        "are both of spiffe://carpal.internal/brain/check-1",
        "'everything' is none of sessions, append",
    ):
        flags = ["--only", "everything"] if "everything" in said else []
        ended = await check(tmp_path, "127.0.0.1:1", *flags)
        assert ended.code == 2
        assert said in ended.stderr
        assert ended.stderr.count("\n") == 1
        if "none of the folders" in said:
            pki.issue(Role.OPERATOR, "check-1", directory=folder / "brain")
        elif "no brain" in said:
            for seat in ("brain", "brain-2"):
                pki.issue(Role.BRAIN, "check-1", directory=folder / seat)


async def test_the_checks_are_listed_without_a_service(tmp_path: Path) -> None:
    (tmp_path / "as").mkdir()
    ended = await check(tmp_path, "127.0.0.1:1", "--list", "--only", "tail")
    assert ended.code == 0
    assert "tail: A tail of no session, or of 1,001, is refused" in ended.stdout.splitlines()
    assert os.linesep + os.linesep not in ended.stdout


async def test_the_checks_are_listed_without_a_service_or_identities(tmp_path: Path) -> None:
    carpal = Command(tmp_path)
    listed = await carpal("sessiond", "check", "--list")
    assert (listed.code, listed.stderr) == (0, "")
    assert "append: " in listed.stdout
    without = await carpal("sessiond", "check")
    assert (without.code, without.stdout) == (2, "")
    assert "Missing option '--endpoint'" in without.stderr
