"""The session's hands as Claude Code is given them: tools of an MCP server in this process.

Nothing runs here. Claude Code calls a tool once it has the reply with the
call; by then the harness has the call run, once, and this hands the logged
result over when there is one, to whoever asks, however often.
"""

import asyncio
from typing import Any

from mcp import types
from mcp.server import Server
from mcp.server.context import ServerRequestContext

from brain.harnesses.claude_code.wire import PREFIX, SERVER, Json

_CALL_ID = "claudecode/toolUseId"
"""In a call's `_meta`: the id of its `tool_use`, which is the call's id in the log."""


class Hands:
    """Tools to offer, and results as they come."""

    def __init__(self, tools: list[Json]) -> None:
        """`tools`: as the Messages API has them."""
        self._tools = [
            types.Tool(
                name=tool["name"],
                description=tool["description"],
                input_schema=tool["input_schema"],
            )
            for tool in tools
        ]
        self.names = frozenset(PREFIX + tool["name"] for tool in tools)
        self._results: dict[str, asyncio.Future[Json]] = {}
        self._unasked: list[tuple[str, str, Any]] = []
        """Calls nobody has asked for: id, name, input. For those that do not say their id."""
        self.server: Server[Any] = Server(SERVER, on_list_tools=self._list, on_call_tool=self._call)

    def called(self, call_id: str, name: str, given: Any) -> None:
        """The model made a call: it will be asked for."""
        self._unasked.append((call_id, name.removeprefix(PREFIX), given))

    def settled(self, block: Json) -> None:
        """A call has its result, a `tool_result` block."""
        future = self._result(block["tool_use_id"])
        if not future.done():
            future.set_result(block)

    def results(self) -> dict[str, Json]:
        """What it was given so far, by the calls' ids."""
        return {key: each.result() for key, each in self._results.items() if each.done()}

    def _result(self, call_id: str) -> "asyncio.Future[Json]":
        if call_id not in self._results:
            self._results[call_id] = asyncio.get_running_loop().create_future()
        return self._results[call_id]

    async def _list(
        self, _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools)

    async def _call(
        self, _: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        call_id = self._meant(params)
        if call_id is None:
            return _told("this call is not in the log, so it does not run", is_error=True)
        block = await asyncio.shield(self._result(call_id))
        # A picture stands in the request all the same: results are put in as the log has them.
        texts = (each.get("text", f"[{each['type']}]") for each in block["content"])
        return _told(*texts, is_error=bool(block.get("is_error")))

    def _meant(self, params: types.CallToolRequestParams) -> str | None:
        """The call's id: as it says, else the oldest of its name and input."""
        said = dict(params.meta or {}).get(_CALL_ID)
        for index, (call_id, name, given) in enumerate(self._unasked):
            if call_id == said or (
                said is None and (name, given or {}) == (params.name, params.arguments or {})
            ):
                del self._unasked[index]
                return call_id
        return said if isinstance(said, str) and said in self._results else None


def _told(*texts: str, is_error: bool) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(type="text", text=t) for t in texts]
    return types.CallToolResult(content=content, is_error=is_error)
