"""Every snippet of docs/how-to/keep-the-models-key-in-the-vault.md does what the page says."""

import re
import shlex
import tomllib
from pathlib import Path

import msgspec
import pytest

from brain.app import BrainConfig
from brain.models.settings import read_providers
from carpal.errors import CarpalError
from tests.vault.test_cli import carpal_vault
from vault.files import VaultFiles
from vault.model_key import aliases
from vault.opened import opened

PAGE = (
    Path(__file__).parents[3] / "docs" / "how-to" / "keep-the-models-key-in-the-vault.md"
).read_text()
COMMANDS = [
    shlex.split(line)
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
SETTINGS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
KEYS = {each: f"sk-CANARY-{each}-0123456789" for each in ("model.key", "gateway.key", "new.key")}


def test_the_page_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    carpal_vault("init", "--state-dir", state)
    monkeypatch.chdir(tmp_path)
    for name, key in KEYS.items():
        Path(name).write_text(f"{key}\n")
    said = []
    for command in COMMANDS:
        if command[0] == "rm":
            Path(command[1]).unlink()
            continue
        assert command[:3] == ["carpal", "vault", "model"]
        said.append(carpal_vault(*command[2:], "--state-dir", state))
    added, gateway, rotated, listed, removed = said
    assert added == 'claude: https://api.anthropic.com/; brains ask it by `vault = "claude"`\n'
    assert "https://models.intern.example.com/claude" in gateway
    assert rotated == "claude: generation 2\n"
    assert len(listed.splitlines()) == 2
    assert removed == "gateway: removed\n"
    with opened(VaultFiles(state)) as it:
        assert aliases.names(it.safe) == ["claude"]
        alias = aliases.load(it.safe, "claude")
        assert alias.key.reveal().decode() == KEYS["new.key"]
        assert alias.target("/v1/messages").path == "/v1/messages"
    for path in state.rglob("*"):
        if path.is_file():
            for key in KEYS.values():
                assert key.encode() not in path.read_bytes(), path


def test_the_pages_settings_are_a_brains() -> None:
    config = msgspec.convert(tomllib.loads(SETTINGS), BrainConfig)
    assert read_providers(config.providers)[config.provider].vault == "claude"


@pytest.mark.parametrize(
    "wrong",
    [
        ("A", "--url", "https://a.com"),
        ("a", "--url", "http://a.com"),
        ("a", "--url", "https://a.com/?key=x"),
        ("a", "--private-network", "127.0.0.0/8"),
    ],
)
def test_a_mistake_puts_nothing_in(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    state, key = tmp_path / "state", tmp_path / "key"
    carpal_vault("init", "--state-dir", state)
    key.write_text(KEYS["model.key"])
    with pytest.raises(CarpalError):
        carpal_vault("model", "add", *wrong, "--key", key, "--state-dir", state)
    key.write_text("short")
    with pytest.raises(CarpalError):
        carpal_vault("model", "add", "a", "--key", key, "--state-dir", state)
    assert carpal_vault("model", "list", "--state-dir", state) == ""


def test_an_alias_is_not_put_in_twice(tmp_path: Path) -> None:
    state, key = tmp_path / "state", tmp_path / "key"
    carpal_vault("init", "--state-dir", state)
    key.write_text(KEYS["model.key"])
    add = ("model", "add", "a", "--key", key, "--state-dir", state)
    carpal_vault(*add)
    with pytest.raises(CarpalError, match="there is an alias 'a'"):
        carpal_vault(*add)
