"""`carpal practice serve` as a process: ready, refusals in one line, a clean stop."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.process import interpreter
from tests.practice import client_of, text_in, user


@asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process, and the line it announced itself with ('' when it died first)."""
    read, write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *interpreter(),
        "practice",
        "serve",
        "--ready-fd",
        str(write),
        *arguments,
        pass_fds=[write],
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(write)
    try:
        with os.fdopen(read, encoding="utf-8") as pipe:
            async with asyncio.timeout(20):
                line = await asyncio.to_thread(pipe.readline)
        yield process, line
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def refusal(*arguments: str) -> tuple[int, str]:
    async with serving(*arguments) as (process, line):
        assert line == ""
        async with asyncio.timeout(20):
            _, errors = await process.communicate()
        assert process.returncode is not None
        return process.returncode, errors.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_announces_where_it_serves_and_stops_when_told(number: signal.Signals) -> None:
    async with serving("--listen", "127.0.0.1:0") as (process, line):
        facts = json.loads(line)
        assert facts["url"] == f"http://{facts['address']}"
        async with client_of(facts["url"]) as client:
            await client.messages.create(model="m", max_tokens=9, messages=[user("hi")])
        process.send_signal(number)
        async with asyncio.timeout(10):
            _, errors = await process.communicate()
        assert process.returncode == 0
    (told,) = errors.decode().splitlines()
    assert "not a model" in told
    assert f"ANTHROPIC_BASE_URL={facts['url']}" in told


async def test_scripts_are_played_in_the_order_given(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("{match: alpha, turns: [{text: one}]}")
    second.write_text("{turns: [{text: two}]}")
    scripts = ["--script", str(first), "--script", str(second)]
    async with (
        serving("--listen", "127.0.0.1:0", "--latency", "1", *scripts) as (_, line),
        client_of(json.loads(line)["url"]) as client,
    ):
        replies = [
            await client.messages.create(model="m", max_tokens=9, messages=[user(text)])
            for text in ("alpha", "beta")
        ]
        texts = [text_in(reply) for reply in replies]
    assert texts == ["one", "two"]


async def test_a_wrong_script_is_one_line_and_exit_code_two(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("turns: [{txt: hi}]")
    code, errors = await refusal("--script", str(path))
    (line,) = errors.splitlines()
    assert code == 2
    assert line.startswith(f"carpal: {path}: turns[0]: unknown key 'txt': use one of: ")


async def test_a_port_in_use_is_one_line_and_exit_code_two() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, errors = await refusal("--listen", listen)
    assert (code, errors) == (
        2,
        f"carpal: cannot listen on {listen}: in use: stop what listens there or choose another\n",
    )


@pytest.mark.parametrize("listen", ["8790", "127.0.0.1", "127.0.0.1:x", ":1", "127.0.0.1:70000"])
async def test_an_address_that_is_none_is_refused(listen: str) -> None:
    code, errors = await refusal("--listen", listen)
    (line,) = errors.splitlines()
    assert code == 2
    assert "is not HOST:PORT" in line


async def test_an_unknown_key_in_the_configuration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "practice.toml"
    path.write_text("listn = '127.0.0.1:0'")
    code, errors = await refusal("--config", str(path))
    assert (code, errors) == (
        2,
        f"carpal: {path}: unknown key 'listn': use one of: latency, listen, script\n",
    )
