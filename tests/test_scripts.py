"""The scripts that take a name say how they are used, and what names there are."""

import subprocess

import pytest

from tests.command import ROOT, SECONDS


@pytest.mark.parametrize(
    ("script", "name"), [("soak", "log"), ("soak", "brain"), ("bench", "append")]
)
@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_a_script_says_its_usage_and_its_names(
    script: str, name: str, arguments: tuple[str, ...]
) -> None:
    ended = subprocess.run(
        [ROOT / "scripts" / script, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    assert ended.stderr == ""
    assert ended.stdout.startswith(f"usage: scripts/{script} NAME ")
    assert f"\n{name}: " in ended.stdout
