"""One process of Claude Code: started apart from the machine it is on, and killed with its brain.

Of the machine it has no settings, no environment, no tools and no network but
our endpoint. Nothing of it must survive, so it is not asked to end but killed.
"""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import CLIConnectionError, Transport

from brain.harnesses.claude_code.folder import Folder
from brain.harnesses.claude_code.wire import GO_ON, PREFIX, SERVER, Json
from carpal.errors import refuse
from carpal.status import Reason

_LINE_BYTES = 256 * 1024 * 1024
"""Of one message it prints: a reply, or a tool's result."""
_LONG_MS = str(7 * 24 * 3600 * 1000)
"""Nothing is over for it because it takes long: how long to wait is ours to say."""
_STDERR_BYTES = 2000

_OFF = (
    "CLAUDE_CODE_ATTRIBUTION_HEADER",
    "CLAUDE_CODE_ENABLE_TELEMETRY",
    "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION",
    "API_FORCE_IDLE_TIMEOUT",
)
_ON = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS",
    "CLAUDE_CODE_DISABLE_ATTACHMENTS",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    "CLAUDE_CODE_DISABLE_CRON",
    "CLAUDE_CODE_DISABLE_FEATURE_FLAGS",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL",
    "CLAUDE_CODE_DISABLE_REFUSAL_FALLBACK",
    "CLAUDE_CODE_DISABLE_REFUSAL_RETRY",
    "CLAUDE_CODE_RESUME_INTERRUPTED_TURN",
    "DISABLE_TELEMETRY",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_AUTOUPDATER",
    "DISABLE_UPDATES",
    "DISABLE_AUTO_COMPACT",
    "DISABLE_COMPACT",
    "DISABLE_BUG_COMMAND",
    "DISABLE_FEEDBACK_COMMAND",
    "DISABLE_INSTALLATION_CHECKS",
    "DISABLE_GROWTHBOOK",
    "DISABLE_COST_WARNINGS",
)
_LONG = (
    "API_TIMEOUT_MS",
    "MCP_TOOL_TIMEOUT",
    "CLAUDE_CODE_MCP_TOOL_IDLE_TIMEOUT",
    "CLAUDE_CODE_SDK_MCP_TOOL_IDLE_TIMEOUT",
    "CLAUDE_STREAM_IDLE_TIMEOUT_MS",
    "CLAUDE_STREAM_FIRST_BYTE_TIMEOUT_MS",
    "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS",
    "CLAUDE_CODE_RESUME_INTERRUPTED_TURN_MAX_AGE_MS",
)


def program() -> str:
    """Where Claude Code is: in the package, else on the path. EXTRA_MISSING else."""
    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    found = str(bundled) if bundled.is_file() else shutil.which("claude")
    if found is None:
        raise refuse(
            Reason.EXTRA_MISSING,
            "this build of claude-agent-sdk has no Claude Code in it, and none is on the path",
            action="install the package from a wheel for this platform, or Claude Code itself",
        )
    return found


def arguments(model: str, folder: Folder, session: str, *, resumed: bool) -> list[str]:
    """Its command line."""
    servers = {"mcpServers": {SERVER: {"type": "sdk", "name": SERVER}}}
    return [
        *_dies_with_us(),
        program(),
        *("--output-format", "stream-json", "--input-format", "stream-json", "--verbose"),
        *("--bare", "--strict-mcp-config", "--setting-sources=", "--disable-slash-commands"),
        *("--tools", "", "--permission-mode", "dontAsk", "--allowedTools", PREFIX + "*"),
        *("--mcp-config", json.dumps(servers)),
        *("--system-prompt-file", str(folder.path / "system")),
        f"--model={model}",
        f"--resume={session}" if resumed else f"--session-id={session}",
    ]


def _dies_with_us() -> list[str]:
    """What makes the kernel kill it as soon as this brain is gone, where there is that.

    It ends by itself, too, when its standard input does; this is for one that hangs.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def environment(folder: Folder, url: str, token: str, max_tokens: int) -> dict[str, str]:
    """All that it has of one: nothing of ours, which may hold keys."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "HOME": str(folder.path),
        "PWD": str(folder.work),
        "TMPDIR": str(folder.path / "tmp"),
        "CLAUDE_CODE_TMPDIR": str(folder.path / "tmp"),
        "CLAUDE_CONFIG_DIR": str(folder.config),
        "CLAUDE_CODE_MANAGED_SETTINGS_PATH": str(folder.path / "none"),
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "CLAUDE_AGENT_SDK_VERSION": claude_agent_sdk.__version__,
        "CLAUDE_CODE_RESUME_PROMPT": GO_ON,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(max_tokens),
        "MAX_MCP_OUTPUT_TOKENS": "100000000",
        "ENABLE_MCP_LARGE_OUTPUT_FILES": "false",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": token,
        "HTTP_PROXY": url,
        "HTTPS_PROXY": url,
        "NO_PROXY": "127.0.0.1",
        **dict.fromkeys(_OFF, "0"),
        **dict.fromkeys(_ON, "1"),
        **dict.fromkeys(_LONG, _LONG_MS),
    }


class Process(Transport):
    """Its standard input and output, as the SDK speaks over them."""

    def __init__(self, command: list[str], env: dict[str, str], folder: Folder) -> None:
        self._command = command
        self._env = env
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._killed = False

    async def connect(self) -> None:
        """Start it."""
        with (self._folder.path / "stderr").open("wb") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=self._env,
                cwd=self._folder.work,
                limit=_LINE_BYTES,
                start_new_session=True,
            )

    async def write(self, data: str) -> None:
        """Send a line."""
        if self._process is None or self._process.stdin is None:
            raise BrokenPipeError("it has not started")
        self._process.stdin.write(data.encode())
        await self._process.stdin.drain()

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        """What it prints, until it ends. CLIConnectionError when it does by itself."""
        if self._process is None or self._process.stdout is None:
            return
        async for line in self._process.stdout:
            if line.startswith(b"{"):
                message: Json = json.loads(line)
                yield message
        if not self._killed:
            await self._process.wait()
            raise CLIConnectionError(f"it ended: {self.how_it_ended()}")

    def is_ready(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.returncode is None

    async def end_input(self) -> None:
        """The SDK has nothing more to say: nor do we, and it is killed in a moment."""

    async def close(self) -> None:
        """Kill it and whatever it started, and wait until it is gone."""
        self.kill()
        if self._process is not None:
            await self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()

    def kill(self) -> None:
        """Kill it and whatever it started, now."""
        self._killed = True
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """As Python has it: negative where a signal ended it, None while it runs."""
        return None if self._process is None else self._process.returncode

    async def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does in that time."""
        if self._process is None:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._process.wait()
        return self._process.returncode is not None

    def how_it_ended(self) -> str:
        """Its exit code."""
        return f"exit code {self.exit_code}; the log of its brain has what it said of it"

    def complaint(self) -> str:
        """The end of what it complained of, as it is: with paths of this machine."""
        path = self._folder.path / "stderr"
        if not path.exists():
            return ""
        return path.read_bytes()[-_STDERR_BYTES:].decode(errors="replace").strip()
