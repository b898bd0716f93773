"""What the pages on credentials and on backups show is typed as it stands there, by a reader."""

import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from tests.reader import Reader
from tests.vault.test_cli import carpal_vault, serving

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
TOKENS = {"tracker.token": "tok-CANARY-71c0b2", "new.token": "tok-CANARY-2b8d9e"}


def blocks(page: str, kind: str = "sh") -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    made.types("carpal vault init")
    yield made
    for path in (tmp_path / "state").rglob("*"):
        if path.is_file():
            assert not [each for each in TOKENS.values() if each.encode() in path.read_bytes()]


def test_the_page_on_credentials_is_right(reader: Reader, tmp_path: Path) -> None:
    state = tmp_path / "state"
    add, validate, rotate, destroy = blocks("give-an-agent-a-credential.md")
    (policy,) = blocks("give-an-agent-a-credential.md", "json")
    for name, token in TOKENS.items():
        reader.write(name, f"{token}\n")
    with serving(state) as (_, at):

        def types(lines: str, ends: str = "") -> str:
            told = re.sub(
                r"^carpal vault credential .*",
                rf"\g<0> --vault {at['address']}{ends}",
                lines,
                flags=re.M,
            )
            return reader.types(told)

        assert types(add).startswith("default/tracker  static_bearer  https://mcp.example.com/mcp")
        assert not (reader.folder / "tracker.token").exists()
        assert types(validate, " || true").startswith("tracker: unknown at ")  # nobody is there
        assert "generation 2" in types(rotate)
        archived, listed = types(destroy).splitlines()
        assert archived == listed
        assert "archived" in archived
        reader.write("policy.json", policy)
        private = add.splitlines()[0].replace("tracker ", "inside ").replace(
            "--mcp-server-url https://mcp.example.com/mcp", "--policy policy.json"
        ).replace("tracker.token", "new.token")  # fmt: skip
        assert "--policy policy.json" in private
        assert json.loads(policy)["mcp_server_url"] in types(private)


def test_the_page_on_backups_is_right(reader: Reader, tmp_path: Path) -> None:
    state, backups = tmp_path / "state", tmp_path / "backups"
    backups.mkdir()
    backup, restore, accept = blocks("back-up-the-vault.md")
    today = f"vault-{datetime.now(UTC):%F}.tar"

    def here(lines: str) -> str:
        """Without the machine's service manager, and with the backup of today."""
        told = re.sub(r"^systemctl .*\n", "", lines, flags=re.M)
        told = re.sub(r"vault-[\d-]+\.tar", today, told)
        return told.replace("/backups", shlex.quote(str(backups)))

    reader.types("export TZ=UTC; " + here(backup))
    assert [path.name for path in backups.iterdir()] == [today]
    reader.types(here(restore))
    with serving(state) as (_, at):
        reader.write("new.token", TOKENS["new.token"])
        reader.types(
            "carpal vault credential add later --mcp-server-url https://a.example.com/mcp "
            f"--secret token=new.token --vault {at['address']}"
        )
    with pytest.raises(CarpalError, match="accept-restore"):
        carpal_vault("restore", backups / today, "--state-dir", state)
    reader.types(here(accept))
    with serving(state) as (_, at):
        assert reader.types(f"carpal vault credential list --vault {at['address']}") == ""
