"""Harnesses of tests, installed where brains look for them: a folder on their path."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent


@dataclass(frozen=True)
class Installed:
    """A folder that holds harnesses, as packages hold them."""

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """What a brain must be started with to find them."""
        self.folder.mkdir(exist_ok=True)
        path = os.pathsep.join(filter(None, (str(self.folder), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path}

    def install(self, module: str, code: str, harnesses: Mapping[str, str]) -> None:
        """A module, and which of its names is the harness of which name. Brains may run."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{module}.py").write_text(dedent(code), encoding="utf-8")
        making, info = self.folder / f".{module}", self.folder / f"{module}-1.dist-info"
        making.mkdir()
        lines = [f"{name} = {module}:{what}" for name, what in harnesses.items()]
        text = "\n".join(["[carpal.harnesses]", *lines, ""])
        (making / "entry_points.txt").write_text(text, encoding="utf-8")
        metadata = f"Metadata-Version: 2.1\nName: {module}\nVersion: 1\n"
        (making / "METADATA").write_text(metadata, encoding="utf-8")
        making.rename(info)
