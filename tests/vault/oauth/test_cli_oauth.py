"""The command asks a person for consent, in the machine's browser or by paste, and says why not."""

import asyncio
import json
import os
import sys
from pathlib import Path

import httpx2
import pytest

from carpal.errors import CarpalError
from tests.command import Command
from tests.pace import SCALE
from tests.vault.oauth.server import AS_HOST
from tests.vault.oauth.test_enrol import consented, mcp
from tests.vault.oauth.world import World
from vault.commands import oauth as cli_oauth

LIMIT = 30.0 * SCALE


@pytest.mark.parametrize("pasted", [False, True])
async def test_consent_comes_by_the_machine_s_browser_or_by_paste(
    there: World, tmp_path: Path, pasted: bool
) -> None:
    bundle, opened, browser = (tmp_path / name for name in ("bundle.pem", "opened", "browser"))
    bundle.write_text(there.bundle)
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {opened}\n')
    browser.chmod(0o700)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.vault.oauth.consenting"),
        *(mcp(there), AS_HOST, str(there.port), str(bundle)),
        *(["--no-browser"] if pasted else []),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "BROWSER": f"{browser} %s"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(LIMIT):
            await process.stderr.readline()
            url = (await process.stderr.readline()).decode().strip()
            back = await consented(there, url)
            if pasted:
                process.stdin.write(f"{back}\n".encode())
            else:
                async with httpx2.AsyncClient(trust_env=False) as http:
                    assert (await http.get(back)).status_code == 200
            made = json.loads(await process.stdout.read())
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    assert {"access_token", "refresh_token"} <= set(made["secrets"])
    assert made["policy"]["mcp_server_url"] == mcp(there)
    assert opened.exists() is not pasted
    if not pasted:
        assert opened.read_text() == url


NOTHING = dict.fromkeys(cli_oauth.OPTIONS) | {"private_networks": ()}


@pytest.mark.parametrize(
    ("secrets", "options", "field"),
    [
        ({"access_token": b"0123456789abcdef"}, {}, "--secret"),
        ({"client_secret": b"0123456789abcdef"}, {}, "--client-id"),
        ({"client_secret": b"short"}, {"client_id": "x"}, "client_secret"),
        ({}, {"client_auth": "none"}, "--client-id"),
        ({}, {"client_id": "x", "client_auth": "client_secret_post"}, "--client-auth"),
        ({}, {"private_networks": ("8.8.8.0/24",)}, "--private-network"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anybody_is_asked(
    secrets: dict[str, bytes], options: dict[str, object], field: str
) -> None:
    with pytest.raises(CarpalError) as caught:
        cli_oauth.consented("https://mcp.a.test/mcp", secrets, {**NOTHING, **options})
    assert field in caught.value.message


async def test_a_server_of_this_machine_is_not_asked_and_the_command_says_so(
    tmp_path: Path,
) -> None:
    carpal = Command(tmp_path)
    state = ("--state-dir", str(tmp_path / "state"))
    assert (await carpal("vault", "init", *state)).code == 0
    add = ("vault", "credential", "add", "linear", *state, "--vault", "127.0.0.1:1")
    done = await carpal(*add, "--oauth", "https://127.0.0.1:1/mcp")
    assert done.code == 1, done.stderr
    assert "not one that is dialled" in done.stderr
    assert "Traceback" not in done.stderr
    for wrong in (("--scope", "read"), ("--oauth", "https://a.com/", "--mcp-server-url", "x")):
        done = await carpal(*add, *wrong)
        assert done.code == 2
        assert "--oauth" in done.stderr
