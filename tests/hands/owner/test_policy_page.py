"""The pages of the policy and of the audit say what the code does."""

import json
import re
import tomllib
from pathlib import Path

from hands.owner.policy import ENTRIES, LIMITS, MOUNTS
from hands.owner.policy_text import _ALL_LIMITS, read
from hands.owner.redact_pattern import LEAST, LONGEST_MAX, REQUIRED_MAX
from tests.hands.owner.test_policy import FULL

ROOT = Path(__file__).parents[3]
POLICY = (ROOT / "docs/reference/policy.md").read_text()
AUDIT = (ROOT / "docs/reference/audit.md").read_text()


def rows(page: str, heading: str) -> set[str]:
    """The words in code in the first cells of the table under that heading's row."""
    table = page.partition(heading)[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()]
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_the_example_is_a_policy() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", POLICY, re.DOTALL)
    found = read(example, "policy.toml")
    assert found.people == ("shell",)
    assert found.limits["hands_max"] == 8


def test_every_key_is_on_the_page_and_no_other() -> None:
    keys = set(tomllib.loads(FULL))
    assert rows(POLICY, "| key | allows |\n|---|---|\n") == keys - {"limits"}
    assert rows(POLICY, "| key in `[limits]` | bounds |\n|---|---|\n") == set(_ALL_LIMITS)
    assert set(LIMITS) < set(_ALL_LIMITS)
    for word in (*ENTRIES, *MOUNTS):
        assert f"`{word}`" in POLICY


def test_the_bounds_of_a_pattern_are_on_the_page() -> None:
    said = f"at least {LEAST} bytes, must have at most {REQUIRED_MAX}, and may have {LONGEST_MAX}"
    assert said in POLICY


def test_every_kind_of_line_is_on_the_page_and_no_other() -> None:
    named = rows(AUDIT, "| `what` | and | when |\n|---|---|---|\n")
    by = {
        "owner/gate": r"(?:_write|\.note)\(",
        "journal": r"\.told\(",
        "inventory": r"gate\.note\(",
        "people/tunnels": r"gate\.note\(",
        "owner/audit": r"_now\(\),",
    }
    written: set[str] = set()
    for name, call in by.items():
        text = (ROOT / f"hands/{name}.py").read_text()
        written |= set(re.findall(rf'{call}\s*"(\w+)"', text))
    assert written == named


def test_the_line_on_the_page_is_one() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", AUDIT, re.DOTALL)
    assert json.loads(example)["what"] == "call"
