"""A project in a folder, as Python finds it once it is installed."""

import os
import tomllib
from pathlib import Path

GROUP = "carpal.hand_types"


def installed(project_folder: Path, scratch: Path) -> str:
    """A path by which Python finds the project's hand types and modules."""
    project = tomllib.loads((project_folder / "pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_")  # as installers do
    info = scratch / "found" / f"{name}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    entries = project["entry-points"][GROUP]
    lines = [f"[{GROUP}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    return os.pathsep.join((str(info.parent), str(project_folder)))
