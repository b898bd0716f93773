"""The emulator is held to the contract by the very checks that anyone's type is."""

import json
from pathlib import Path

import pytest

from tests.cartridge import cartridge
from tests.hands.conformance.test_cli import checked


@pytest.mark.slow
@pytest.mark.timeout(280)
async def test_it_passes_every_check_of_what_it_claims(tmp_path: Path) -> None:
    game = tmp_path / "game.gb"
    game.write_bytes(cartridge())
    config = json.dumps({"cartridge": str(game)})
    flags = ("--type", "emulator", "--hand-config", config)
    code, (*verdicts, _), stderr = await checked(tmp_path, *flags)
    assert [one for one in verdicts if one["verdict"] == "fail"] == []
    assert (code, stderr) == (0, "")
    skipped = [one for one in verdicts if one["verdict"] == "skipped"]
    claims = [one for one in skipped if "does not claim" not in one["detail"]]
    # It has no call that lasts a minute: a game's hundred seconds are over in one. Nor does it
    # say anything unasked.
    assert {one["detail"] for one in claims} == {
        "the checks know no call of it that lasts: say one with --long",
        "the checks know no call that has it say something: say one with --says",
    }
    assert any(one["capability"] == "visual" and one["verdict"] == "pass" for one in verdicts)
    assert [path.name for path in game.parent.glob("*.gb*")] == ["game.gb"]
