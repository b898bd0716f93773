"""Every snippet of docs/how-to/prove-which-agent-asks.md does what the page says of it."""

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from carpal.errors import CarpalError
from tests.vault.test_cli import carpal_vault, serving
from vault.files import VaultFiles
from vault.guard.targets import Target
from vault.issuer import issuer
from vault.issuer.keys import PUBLISHED
from vault.issuer.tokens import Subject, token
from vault.opened import opened

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "prove-which-agent-asks.md").read_text()
COMMANDS = [
    shlex.split(line.removeprefix("carpal vault "))
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
SERVER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]


def test_the_page_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    carpal_vault("init", "--state-dir", state)
    monkeypatch.chdir(tmp_path)
    init, export, add, validate, rotate, again = COMMANDS
    carpal_vault(*init, "--state-dir", state)
    carpal_vault(*export, "--state-dir", state)
    with serving(state) as (_, at):
        more = ("--state-dir", state, "--vault", at["address"])
        assert "agent_identity" in carpal_vault(*add, *more)
        assert validate[:2] == ["credential", "validate"]  # nobody serves that name
    hosted = tmp_path / "issuer" / "jwks.json"
    monkeypatch.setattr(jwt.PyJWKClient, "fetch_data", lambda _: json.loads(hosted.read_bytes()))
    there: dict[str, Any] = {}
    exec(SERVER, there)
    with opened(VaultFiles(state)) as it:
        who = Subject("default", "fixer", "sesn_1")
        here, other = (Target.parse(f"https://{host}.example.com/mcp") for host in ("mcp", "b"))
        keys = issuer.load(it.safe)
        shown, elsewhere = (token(keys, who, to, int(time.time())).text for to in (here, other))
    claims = there["who"](shown.decode())
    assert {name: claims[name] for name in ("workspace", "agent", "session")} == {
        "workspace": "default", "agent": "fixer", "session": "sesn_1",
    }  # fmt: skip
    with pytest.raises(jwt.InvalidAudienceError):
        there["who"](elsewhere.decode())
    with pytest.raises(CarpalError, match="try again in 24 hours"):
        carpal_vault(*rotate, "--state-dir", state)
    later = time.time() + PUBLISHED
    with monkeypatch.context() as patch:
        patch.setattr("vault.commands.issuing.time.time", lambda: later)
        assert "signs" in carpal_vault(*rotate, "--state-dir", state)
        carpal_vault(*again, "--state-dir", state)
    assert there["who"](shown.decode()) == claims
