"""Claude Code at work on one conversation: what it asks, what it is told, how it ends."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    ResultMessage,
    project_key_for_directory,
)

from brain.harnesses.claude_code.endpoint import Ask, Ended, Endpoint, in_words
from brain.harnesses.claude_code.folder import Folder
from brain.harnesses.claude_code.hands import Hands
from brain.harnesses.claude_code.history import Opening, file_of, session_id
from brain.harnesses.claude_code.pictures import Pictures
from brain.harnesses.claude_code.process import Process, arguments, environment
from brain.harnesses.claude_code.wire import SERVER, Json

log = logging.getLogger(__name__)

_ENDS_WITHIN = 1.0
"""Seconds in which one that does not listen any more has ended."""
_WORDS_MAX = 500
"""Characters of what a session is told of its end."""
PATIENCE = 60.0
"""Seconds it may take to ask for something when it is its turn; then it hangs."""


class Claude:
    """One process and its conversation. `stop` it whatever happens."""

    def __init__(self, model: str, system: str, max_tokens: int, tools: list[Json]) -> None:
        """Nothing runs before `start`."""
        self._model = model
        self._system = system
        self._max_tokens = max_tokens
        self.hands = Hands(tools)
        self.pictures = Pictures()
        self._came: asyncio.Queue[Ask | Ended] = asyncio.Queue()
        self._endpoint = Endpoint(self._came.put_nowait)
        self._folder: Folder | None = None
        self.process: Process | None = None
        self._client: ClaudeSDKClient | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self, opening: Opening) -> None:
        """Start it on a conversation. OSError when that fails."""
        self._folder = folder = await asyncio.to_thread(Folder)
        session = session_id(str(folder.path))
        await asyncio.to_thread(self._write, folder, session, opening)
        await self._endpoint.start()
        resumed = bool(opening.entries)
        self.process = Process(
            arguments(self._model, folder, session, resumed=resumed),
            environment(folder, self._endpoint.url, self._endpoint.token, self._max_tokens),
            folder,
        )
        options = ClaudeAgentOptions(
            mcp_servers={SERVER: {"type": "sdk", "name": SERVER, "instance": self.hands.server}},
            verbatim_prompts=True,
            skills=[],
        )
        self._client = ClaudeSDKClient(options, transport=self.process)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._client.connect()
        except TimeoutError as error:
            raise OSError(f"it was not ready within {PATIENCE:.0f} s") from error
        except (ClaudeSDKError, OSError) as error:
            raise OSError(await self._fallen(error)) from error
        self._reader = asyncio.create_task(self._read(self._client))
        if opening.prompt:
            await self.tell(opening.prompt)

    def _write(self, folder: Folder, session: str, opening: Opening) -> None:
        (folder.path / "system").write_text(self._system)
        if opening.entries:
            work = str(folder.work)
            home = folder.config / "projects" / project_key_for_directory(work)
            home.mkdir(parents=True)
            now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            entries = [
                {**each, "content": self.pictures.hidden(each["content"])}
                for each in opening.entries
            ]
            text = file_of(entries, session, work, self._model, now)
            (home / f"{session}.jsonl").write_text(text)

    async def tell(self, content: list[Json]) -> None:
        """Say something as the user, in a new turn or the running one. OSError when it is gone."""
        if self._client is None:
            return
        try:
            await self._client.query(_message(self.pictures.hidden(content)))
        except (ClaudeSDKError, OSError) as error:
            raise OSError(await self._fallen(error)) from error

    async def next(self) -> Ask | Ended:
        """What it asks next."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._came.get()
        except TimeoutError:
            return Ended(f"it asked for nothing for {PATIENCE:.0f} s")

    async def _read(self, client: ClaudeSDKClient) -> None:
        """See how it ends. What it says is in the log already: we said it to it."""
        try:
            async for message in client.receive_messages():
                if isinstance(message, ResultMessage) and message.is_error:
                    why = message.result or ", ".join(message.errors or ()) or message.subtype
                    self._came.put_nowait(Ended(self._struck(f"it gave up: {why}")))
        except (ClaudeSDKError, OSError, ValueError) as error:
            self._came.put_nowait(Ended(self._words(error)))

    async def _fallen(self, error: Exception) -> str:
        """The same of one that may just have ended, which is then the reason."""
        ended = self.process is not None and await self.process.ends_within(_ENDS_WITHIN)
        words = self._words(error)
        return f"it ended: {self.process.how_it_ended()}" if ended and self.process else words

    def _words(self, error: Exception) -> str:
        """What a session is told of an error; the brain's log has it as it is."""
        said = "" if self.process is None else self.process.complaint()
        log.warning("claude code fell", extra={"why": str(error), "stderr": said})
        return self._struck(in_words(error))

    def _struck(self, text: str) -> str:
        """Without its folder, whose name says something of this machine alone."""
        if self._folder is not None:
            text = text.replace(str(self._folder.path), "its folder")
        return text[:_WORDS_MAX]

    async def stop(self) -> None:
        """End it, and leave nothing: no process, no folder, no port."""
        if self.process is not None:
            # First, and before any wait: whoever stops us may not let us finish.
            self.process.kill()
        rest = asyncio.ensure_future(self._stop())
        try:
            await asyncio.shield(rest)
        except asyncio.CancelledError:
            await asyncio.wait({rest})
            raise

    async def _stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        if self._client is not None:
            with suppress(ClaudeSDKError, OSError):
                await self._client.disconnect()
        if self.process is not None:
            await self.process.close()
        await self._endpoint.stop()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)

    @property
    def refused(self) -> bool:
        """Whether it ended by itself, with an error, as where it cannot make out its file."""
        return self.process is not None and (self.process.exit_code or 0) > 0

    @property
    def strays(self) -> list[str]:
        """What it reached for beside the model, and did not get."""
        return self._endpoint.strays


async def _message(content: list[Json]) -> AsyncIterator[dict[str, Any]]:
    yield {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
    }
