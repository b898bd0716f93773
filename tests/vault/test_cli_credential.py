"""`carpal vault credential`, as an operator runs it, against a vault that is a process."""

import json
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
