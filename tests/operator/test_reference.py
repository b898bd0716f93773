"""The reference page says what the commands do: its agent file is read, its fields are given."""

import re
import tomllib
from pathlib import Path

from carpal.operator.agent import AgentFile, HandPlan, Placement, read_agent
from carpal.operator.findings import Findings
from carpal.operator.fleet import daemon_row
from carpal.operator.overview import details, row
from carpal.v1 import orchestrator_pb2, types_pb2

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "commands.md").read_text()


def test_the_agent_file_in_the_page_is_read_and_has_every_key() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    read_agent(text, "page")
    body = tomllib.loads(text)
    assert set(body) == set(AgentFile.__struct_fields__)
    assert set(body["hands"]["shell"]) == set(HandPlan.__struct_fields__)
    assert set(body["hands"]["shell"]["placement"]) == set(Placement.__struct_fields__)


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
