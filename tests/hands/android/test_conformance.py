"""Phones are held to the contract by the very checks that anyone's type is."""

import json
from pathlib import Path

import pytest

from tests.hands.android.conftest import Rack
from tests.hands.conformance.test_cli import checked


@pytest.mark.slow
@pytest.mark.timeout(580)
async def test_it_passes_every_check_of_what_it_claims(tmp_path: Path, rack: Rack) -> None:
    for each in range(3):
        rack.phone(f"more{each}")  # a hand has one alone, and a check makes some at once
    long = ("--long", "wait", json.dumps({"duration": 100}))
    code, (*verdicts, _), stderr = await checked(tmp_path, "--type", "android", *long, limit=560)
    assert [one for one in verdicts if one["verdict"] == "fail"] == []
    assert (code, stderr) == (0, "")
    skipped = [one for one in verdicts if one["verdict"] == "skipped"]
    claims = {one["detail"] for one in skipped if "does not claim" not in one["detail"]}
    # It says nothing unasked, and its units are the daemon's to reset.
    assert claims == {
        "the checks know no call that has it say something: say one with --says",
        "a daemon resets units by itself, and answers no ResetUnit",
    }
    assert any(one["capability"] == "visual" and one["verdict"] == "pass" for one in verdicts)
    await rack.nothing_runs()
