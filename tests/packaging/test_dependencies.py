"""What the code imports, what pyproject declares and what the decision record explains agree."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
PACKAGES = ("carpal", "brain", "hands", "sessiond", "vault")
PARTS = {
    "brain": ("brain", "bedrock", "vertex", "claude-code"),
    "hands": ("browser", "container", "emulator", "images", "mcp"),
    "sessiond": ("sessiond", "postgres"),
}
"""The extras of a package that has others than its own name's."""
BY_EXTRA = {"pyyaml": "carpal/yaml_in.py"}
"""What one file of `carpal` imports, which itself is imported only where its extra is asked for."""
NAMESPACES = {
    "google.auth": "google-auth",
    "google.protobuf": "protobuf",
}
"""Modules of `google`, a namespace that several distributions share."""


def names(requirements: list[str]) -> set[str]:
    """Distribution names, without versions and without our own extras."""
    found = {re.split(r"[\[<>=~! ]", requirement)[0].lower() for requirement in requirements}
    return found - {"carpal"}


def required(tree: ast.AST) -> Iterator[str]:
    """Modules a file cannot do without: those it tries and may miss are left out."""
    match tree:
        case ast.Try(handlers=handlers) if any("Import" in ast.dump(each) for each in handlers):
            return
        case ast.Import(names=aliases):
            yield from (alias.name for alias in aliases)
        case ast.ImportFrom(module=str(module), level=0):
            yield module
    for child in ast.iter_child_nodes(tree):
        yield from required(child)


def imported(package: str) -> dict[str, str]:
    """Distributions that a package needs, each with a file that imports it."""
    distributions = packages_distributions()
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        for module in required(ast.parse(path.read_text())):
            top, *_ = module.split(".")
            if top in sys.stdlib_module_names or top in PACKAGES:
                continue
            name = NAMESPACES.get(".".join(module.split(".")[:2])) or distributions[top][0]
            found[name.lower()] = str(path.relative_to(ROOT))
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_its_install_brings(package: str) -> None:
    extras = PARTS.get(package, (package,))
    declared = names(PROJECT["dependencies"]).union(*(names(EXTRAS.get(e, [])) for e in extras))
    missing = {name: path for name, path in imported(package).items() if name not in declared}
    assert missing.items() <= BY_EXTRA.items()


def test_the_decision_record_says_why_each_dependency_is_there() -> None:
    record = (ROOT / "docs/adr/0002-dependencies.md").read_text().lower()
    declared = names(PROJECT["dependencies"]).union(*map(names, EXTRAS.values()))
    explained = set(re.findall(r"`([a-z0-9-]+)`", record))
    assert declared - explained == set()
