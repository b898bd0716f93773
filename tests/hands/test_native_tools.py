"""The tools are those Claude knows: their inputs are held against the client's own."""

from typing import Any

import pytest
from anthropic.lib.tools import agent_toolset
from anthropic.types import beta
from pydantic import BaseModel

from hands.inside.toolset import TOOLS, check_more

MEMORY: dict[str, type[BaseModel]] = {
    "view": beta.BetaMemoryTool20250818ViewCommand,
    "create": beta.BetaMemoryTool20250818CreateCommand,
    "str_replace": beta.BetaMemoryTool20250818StrReplaceCommand,
    "insert": beta.BetaMemoryTool20250818InsertCommand,
    "delete": beta.BetaMemoryTool20250818DeleteCommand,
    "rename": beta.BetaMemoryTool20250818RenameCommand,
}


@pytest.mark.parametrize("name", ["bash", "read", "write", "edit", "glob", "grep"])
def test_the_tools_of_the_agent_toolset_take_what_claude_gives_h22(name: str) -> None:
    known: type[BaseModel] = getattr(
        agent_toolset, f"BetaManagedAgentsAgentToolset20260401{name.capitalize()}Input"
    )
    schema: Any = TOOLS[name][1]
    assert set(schema["properties"]) == set(known.model_fields)
    required = {field for field, info in known.model_fields.items() if info.is_required()}
    assert set(schema["required"]) == required


def test_the_commands_of_memory_take_what_claude_gives_h22() -> None:
    schema: Any = TOOLS["memory"][1]
    assert schema["properties"]["command"]["enum"] == list(MEMORY)
    for command, known in MEMORY.items():
        given: dict[str, object] = dict.fromkeys(known.model_fields, "/memories/x")
        given["command"] = command
        assert check_more("memory", given) is None
        for field, info in known.model_fields.items():
            less = {name: value for name, value in given.items() if name != field}
            if field != "command" and info.is_required():
                problem = check_more("memory", less)
                assert problem
                assert problem.field == field


def test_the_names_are_those_claude_calls_them_by_h22() -> None:
    editor = beta.BetaToolTextEditor20250728Param
    memory = beta.BetaMemoryTool20250818Param
    for known in (editor, memory):
        name = known.__annotations__["name"].__forward_arg__
        assert any(repr(tool) in name for tool in TOOLS), name
