"""`carpal vault credential`, as an operator runs it, against a vault that is a process."""

import json
import shlex
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from tests.vault.test_cli import carpal_vault, running

TOKEN = "tok-CANARY-81b0c4"
URL = "https://mcp.nowhere.invalid/mcp"


def test_a_credential_goes_in_and_is_listed_rotated_tried_and_destroyed(tmp_path: Path) -> None:
    state, secret = tmp_path / "state", tmp_path / "token"
    carpal_vault("init", "--state-dir", state)
    with running(state) as (_, address):
        at = ("--state-dir", state, "--vault", address)
        secret.write_text(f"{TOKEN}\n")
        read = ("--secret", f"token={secret}")
        said = carpal_vault(
            *("credential", "add", "c1", *at, "--mcp-server-url", URL, *read, "--json")
        )
        made = json.loads(said)
        assert (made["credential_id"], made["generation"], made["state"]) == ("c1", 1, "active")
        said += carpal_vault("credential", "list", *at)
        secret.write_text(f"{TOKEN}-2")
        rotated = carpal_vault("credential", "rotate", "c1", *at, *read, "--json")
        assert json.loads(rotated)["generation"] == 2
        tried = carpal_vault("credential", "validate", "c1", *at, "--json")
        assert (json.loads(tried)["verdict"], json.loads(tried)["step"]) == ("unknown", "reach")
        gone = carpal_vault("credential", "archive", "c1", *at)
        assert gone == f"default/c1  static_bearer  {URL}  generation 2  archived\n"
        assert TOKEN not in said + rotated + tried + gone
        secret.write_text("short")
        with pytest.raises(CarpalError, match=r"secrets\.token"):
            carpal_vault("credential", "add", "c2", *at, "--mcp-server-url", URL, *read)
        with pytest.raises(CarpalError, match="No such file"):
            carpal_vault("credential", "add", "c2", *at, "--secret", "token=/no/where")


def test_a_credential_may_lie_in_a_manager_that_the_vaults_own_settings_name(
    tmp_path: Path,
) -> None:
    state, prints = tmp_path / "state", tmp_path / "prints"
    prints.write_text(f"#!/bin/sh\n[ $1 = agents/tracker ] && echo {shlex.quote(TOKEN)}\n")
    prints.chmod(0o700)
    settings = tmp_path / "vault.toml"
    settings.write_text(
        f"""
        [sources.corp]
        plugin = "command"
        workspaces = ["default"]
        paths = ["agents/"]
        argv = ["{prints}", "{{path}}"]
        """
    )
    carpal_vault("init", "--state-dir", state)
    with running(state, "--config", str(settings)) as (_, address):
        at = ("--state-dir", state, "--vault", address)
        lies = ("--from", "corp", "--ref")
        url = ("--mcp-server-url", URL)
        made = json.loads(
            carpal_vault("credential", "add", "c1", *at, *url, *lies, "agents/tracker#t", "--json")
        )
        assert made["policy"]["sources"] == {"token": {"source": "corp", "ref": "agents/tracker#t"}}
        tried = json.loads(carpal_vault("credential", "validate", "c1", *at, "--json"))
        assert (tried["verdict"], tried["step"]) == ("unknown", "reach")
        with pytest.raises(CarpalError, match="replace it there"):
            carpal_vault("credential", "rotate", "c1", *at)
        moved = ("credential", "rotate", "c1", *at, *lies, "agents/nothing#t", "--json")
        assert json.loads(carpal_vault(*moved))["generation"] == 2
        tried = json.loads(carpal_vault("credential", "validate", "c1", *at, "--json"))
        assert (tried["verdict"], tried["step"], tried["detail"]) == ("unknown", "fetch", "failed")
        policy = tmp_path / "policy.json"
        policy.write_text(json.dumps({**made["policy"], "mcp_server_url": f"{URL}2"}))
        again = carpal_vault("credential", "add", "c2", *at, "--policy", policy, "--json")
        assert json.loads(again)["policy"]["sources"] == made["policy"]["sources"]
        for more, wrong in (
            (("--from", "corp"), "--from"),
            (("--from", "corp", "--ref", "finance/all#t"), "no source that"),
            (("--from", "corp", "--ref", "../all#t"), "must be PATH#KEY"),
        ):
            with pytest.raises(CarpalError, match=wrong):
                carpal_vault("credential", "add", "c3", *at, *url, *more)
    for path in state.rglob("*"):
        if path.is_file():
            assert TOKEN.encode() not in path.read_bytes(), path


def test_a_vault_whose_source_is_set_wrongly_says_which_and_does_not_start(tmp_path: Path) -> None:
    state, settings = tmp_path / "state", tmp_path / "vault.toml"
    settings.write_text('[sources.corp]\nplugin = "command"\nargv = ["cat"]\n')
    carpal_vault("init", "--state-dir", state)
    with pytest.raises(CarpalError, match=r"\[sources\.corp\]: workspaces"):
        carpal_vault("run", "--state-dir", state, "--config", settings)
