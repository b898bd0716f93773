"""A harness that has its hand made before the model is asked, as if every task needed one.

Beside that it is the tool loop: what is measured against it differs in nothing else.
"""

from pathlib import Path

from brain.effects import Harness, HarnessType, Provision
from brain.harnesses.tool_loop import tool_loop
from brain.session.transcript import Transcript

NAME = "provision_first"


def provision_first(transcript: Transcript) -> Harness:
    """The default hand, then the tool loop."""
    name = transcript.default_hand
    if name and not any(hand.name == name for hand in transcript.live_hands()):
        yield Provision(name)
    yield from tool_loop(transcript)


HARNESS = HarnessType("1", provision_first)


def install(folder: Path) -> None:
    """Make it an entry point of whoever has that folder on their path."""
    info = folder / "carpal_bench-0.dist-info"
    info.mkdir(parents=True)
    entry = f"[carpal.harnesses]\n{NAME} = {__name__}:HARNESS\n"
    (info / "entry_points.txt").write_text(entry)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carpal-bench\nVersion: 0\n")
