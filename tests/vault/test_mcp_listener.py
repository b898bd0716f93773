"""The listener for brains of a vault that is a process: shut with it, and closed to others."""

import json
import ssl
from pathlib import Path

import httpx2

from carpal.tls import IdentityFiles
from tests.vault.test_cli import carpal_vault, serving

ASKED = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {}}


def ask(state: Path, who: str, address: str) -> tuple[int, object]:
    files = IdentityFiles(state / who / "identity")
    context = ssl.create_default_context(cadata=files.ca.read_text())
    context.load_cert_chain(files.certificate, files.key)
    context.check_hostname = False  # it dials an address; the CA is this test's alone
    with httpx2.Client(verify=context, timeout=20, trust_env=False) as client:
        token = {"authorization": "Bearer avs_mcp_nothing"}
        reply = client.post(f"https://{address}/mcp/a", headers=token, json=ASKED)
    return reply.status_code, reply.json()["error"]["reason"]


def test_a_brain_without_a_grant_and_whoever_is_no_brain_are_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    carpal_vault("init", "--state-dir", state)
    with serving(state) as (_, at):
        assert ask(state, "brain/brain-1", at["mcp"]) == (403, "GRANT_REFUSED")
        assert ask(state, "operator", at["mcp"]) == (403, "ROLE_NOT_ALLOWED")
        more = ("--state-dir", state, "--vault", at["address"], "--json")
        lines = carpal_vault("audit", "show", *more).splitlines()
    assert "malformed" in [json.loads(each).get("reason") for each in lines]


def test_a_vault_that_is_sealed_says_so_to_brains_too(tmp_path: Path) -> None:
    state, passphrase = tmp_path / "state", tmp_path / "passphrase"
    passphrase.write_text("correct horse battery staple")
    seal = ("--seal", "passphrase", "--passphrase-file", passphrase)
    carpal_vault("init", "--state-dir", state, *seal)
    with serving(state) as (_, at):
        assert ask(state, "brain/brain-1", at["mcp"]) == (503, "VAULT_SEALED")
        opening = ("--state-dir", state, "--vault", at["address"])
        carpal_vault("unseal", *opening, "--passphrase-file", passphrase)
        assert ask(state, "brain/brain-1", at["mcp"]) == (403, "GRANT_REFUSED")
