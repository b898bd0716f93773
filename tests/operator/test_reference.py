"""The pages say what the commands do: their agent files are read, their fields are given."""

import re
from pathlib import Path

import pytest

from carpal.agent import Agent, HandLimits, HandPlan, Limits, Permissions, Placement, Tools
from carpal.errors import CarpalError
from carpal.operator.agent import agent_of
from carpal.operator.findings import Findings
from carpal.operator.fleet_rows import daemon_row
from carpal.operator.overview import details, row
from carpal.v1 import orchestrator_pb2, types_pb2
from carpal.yaml_in import read_mapping

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "commands.md").read_text()


def yaml_in(page: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_agent_in_the_page_is_read_and_has_every_key() -> None:
    (text,) = yaml_in("agents.md")
    body = read_mapping(text).data
    agent_of(text, "page")
    assert set(body) == set(Agent.__struct_fields__) - {"version"}
    assert set(body["hands"]["shell"]) == set(HandPlan.__struct_fields__)
    assert set(body["hands"]["shell"]["placement"]) == set(Placement.__struct_fields__)
    assert set(body["hands"]["shell"]["limits"]) == set(HandLimits.__struct_fields__)
    assert set(body["tools"]) == set(Tools.__struct_fields__)
    assert set(body["permissions"]) == set(Permissions.__struct_fields__)
    assert set(body["limits"]) == set(Limits.__struct_fields__)


@pytest.mark.parametrize("page", ["reference/container-hand.md", "reference/egress.md"])
def test_the_agents_of_other_pages_are_read(page: str) -> None:
    for text in yaml_in(page):
        agent_of(text, page)


def test_the_mistake_in_the_page_is_told_as_it_says() -> None:
    page = (DOCS / "agents.md").read_text()
    (line,) = re.findall(r"^carpal: (fixer.yaml: line .*)$", page, re.MULTILINE)
    text = "name: fixer\n" + "\n" * 5 + "permissions:\n  tools:\n    bash: ask\n"
    with pytest.raises(CarpalError) as caught:
        agent_of(text, "fixer.yaml")
    assert str(caught.value) == line


def test_the_fields_in_the_page_are_those_of_the_output() -> None:
    listed = row(types_pb2.SessionInfo())
    shown = details(types_pb2.SessionInfo(), [])
    assert f"`{', '.join(listed)}`" in PAGE
    assert f"`{', '.join(key for key in shown if key not in listed)}`" in PAGE
    assert f"`{', '.join(daemon_row(orchestrator_pb2.DaemonInfo()))}`" in PAGE


def test_the_fields_in_the_page_are_those_of_a_verdict() -> None:
    page = " ".join(PAGE.split())
    report = Findings(types_pb2.SessionInfo()).report()
    assert f"`{', '.join(report)}`" in page
    assert f"`{', '.join(report['chain'])}`" in page
    assert f"`{', '.join(report['head'])}`" in page
