"""Carpal at work: an agent fixes a bug; then a brain dies in the middle of a call.

Starts the real processes on loopback (`carpal dev`, two brains, the practice
model), shows both sessions live and their timelines, checks what it claims,
stops everything and removes what it wrote. Its last line is JSON.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from carpal.children import all_pids, arguments_of, end_stranger
from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.operator.connection import Operator, connect, find
from carpal.process import interpreter
from carpal.v1 import session_pb2, types_pb2

HERE = Path(__file__).parent
BUG = HERE / "01_fix_a_bug"
SIDE_EFFECT = (
    '$ touch started; sleep 12; echo "effect $(date +%s%N)-$$" | tee -a effects; echo finished'
)
"""Appends a line nobody can guess, so that the log must have it from this very run."""


TAKEOVER_SECONDS = 12.0
"""A brain's lease of 10 seconds, and 2."""


class Failed(Exception):
    """It cannot be shown; says why in one line."""


def main() -> int:
    """Both sessions; 0 when everything claimed was seen to be true."""
    try:
        return asyncio.run(show())
    except (Failed, CarpalError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


async def show() -> int:
    """Start, show, check, stop; the exit code."""
    with tempfile.TemporaryDirectory(prefix="carpal-demo-") as scratch:
        root = Path(scratch)
        async with carpal_dev(root) as facts, connect(find(state=root / "state")) as operator:
            fixed, first = await fix_a_bug(root, facts)
            first_ms = await first_request_ms(operator, facts, first)
            survived = await kill_the_brain(root, facts, operator)
    say(f"removed {root}, the state too")
    once = survived["side_effects"] == 1 and survived["true_output"]
    swift = survived["takeover_seconds"] <= TAKEOVER_SECONDS
    say(f"the first model request left {first_ms} ms after the message was accepted")
    report = {
        "ok": fixed and once and swift,
        "sessions": [first, survived["session_id"]],
        "side_effects": survived["side_effects"],
        "takeover_seconds": survived["takeover_seconds"],
        "first_request_ms": first_ms,
    }
    print(json.dumps(report))
    return 0 if report["ok"] else 1


@asynccontextmanager
async def carpal_dev(root: Path) -> AsyncIterator[dict[str, Any]]:
    """`carpal dev` with two brains, while the block lasts; what its ready file says."""
    ready = root / "ready.json"
    title("carpal dev: vault, sessiond, two brains, a daemon, the practice model")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ANTHROPIC_")}
    dev = await asyncio.create_subprocess_exec(
        *interpreter(), "dev", "--state-dir", str(root / "state"), "--brains", "2",
        "--script", str(BUG / "script.yaml"), "--ready-file", str(ready),
        env=environment, start_new_session=True,
    )  # fmt: skip
    started = time.monotonic()
    try:
        await until(lambda: ready.exists() or dev.returncode is not None, 60, "carpal dev")
        if not ready.exists():
            raise Failed(f"carpal dev ended with {dev.returncode} before it was ready: see above")
        say(f"up in {time.monotonic() - started:.1f} s")
        yield json.loads(ready.read_text("utf-8"))
    finally:
        await end(dev, root)


async def end(dev: asyncio.subprocess.Process, root: Path) -> None:
    """Stop `carpal dev`; should it not stop, kill it and all it started."""
    if dev.returncode is None:
        dev.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(30):
            await dev.wait()
    except TimeoutError:
        dev.kill()
        await dev.wait()
        ours = str(root / "state")
        for pid in all_pids():
            await end_stranger(pid, lambda it: any(ours in text for text in arguments_of(it)))
        raise Failed("carpal dev did not stop within 30 s and was killed") from None


async def fix_a_bug(root: Path, facts: dict[str, Any]) -> tuple[bool, str]:
    """The agent reads, edits and tests a copy of the repository."""
    title("1. An agent fixes a bug")
    work = workspace(root, "repository")
    for name in ("stats.py", "test_stats.py"):
        give(Path(shutil.copy(BUG / name, work)))
    say(f"before: {tests_say(work)}")
    task = (BUG / "task.txt").read_text("utf-8").strip()
    output = await command(root, "run", "--agent", str(agent_file(root, work)), task)
    say(f"after: {tests_say(work)}")
    return tests_say(work).startswith("OK"), output.split()[1]


async def kill_the_brain(root: Path, facts: dict[str, Any], operator: Operator) -> dict[str, Any]:
    """SIGKILL the driving brain in the middle of a call with a side effect."""
    title("2. A brain is killed in the middle of a call")
    work = workspace(root, "effects")
    detached = await command(
        root, "run", "--agent", str(agent_file(root, work)), "--detach", SIDE_EFFECT
    )
    session_id = detached.strip()
    await until((work / "started").exists, 30, "the call to start")
    driver = (await lease_of(operator, session_id)).holder.rpartition("/")[2]
    pid = next(brain["pid"] for brain in facts["brains"] if brain["name"] == driver)
    say(f"the call runs; kill -9 {pid} ({driver}, which drives the session)")
    os.kill(pid, signal.SIGKILL)
    takeover = await takeover_seconds(operator, session_id, driver)
    say(f"another brain drives after {takeover:.1f} s (lease term 10 s)")
    await command(root, "session", "tail", session_id)
    log = await events(operator, session_id)
    effects = (work / "effects").read_text("utf-8").splitlines()
    results = [json.loads(e.data) for e in log if e.type == "agent.tool_result"]
    told = results[0]["content"][0]["text"] if len(results) == 1 else ""
    say(f"side effects on disk: {len(effects)}; results in the log: {len(results)}")
    say(f"the log has the call's true output: {told.splitlines()}")
    return {
        "session_id": session_id,
        "side_effects": len(effects),
        "true_output": told.splitlines() == [*effects, "finished"],
        "takeover_seconds": round(takeover, 2),
    }


async def takeover_seconds(operator: Operator, session_id: str, dead: str) -> float:
    """How long from now until another brain holds the session's lease."""
    killed = time.monotonic()
    watch = session_pb2.WatchLeasesRequest(prefix=f"session/{session_id}")
    with rpc_errors("sessiond"):
        async for answer in operator.sessions.WatchLeases(watch, timeout=30):
            for lease in answer.leases:
                if lease.HasField("expires_in") and lease.holder.rpartition("/")[2] != dead:
                    return time.monotonic() - killed
    raise Failed("nobody took the session over")


async def first_request_ms(operator: Operator, facts: dict[str, Any], session_id: str) -> float:
    """From the message's commit to the first model request's arrival, in milliseconds."""
    log = await events(operator, session_id)
    said = next(e for e in log if e.type == "user.message").time.ToMicroseconds() / 1e6
    asked = await asyncio.to_thread(requests_of, facts["practice"])
    first = min(r["arrived"] for r in asked["requests"] if r["path"] == "/v1/messages")
    # The record's clock is the machine's monotonic one; events have wall time.
    arrived = first + time.time() - time.monotonic()
    return float(round((arrived - said) * 1000, 1))


def requests_of(practice: str) -> Any:
    """What the practice model was asked."""
    try:
        with urllib.request.urlopen(practice + "/practice/requests", timeout=10) as answer:
            return json.load(answer)
    except OSError as error:
        raise Failed(
            f"the practice model at {practice} does not say what it got: {error}"
        ) from None


async def lease_of(operator: Operator, session_id: str) -> types_pb2.LeaseInfo:
    """The lease of a session."""
    request = session_pb2.GetSessionRequest(session_id=session_id)
    with rpc_errors("sessiond"):
        return (await operator.sessions.GetSession(request, timeout=10)).session.lease


async def events(operator: Operator, session_id: str) -> list[types_pb2.Event]:
    """A session's log."""
    request = session_pb2.GetEventsRequest(session_id=session_id, limit=1000)
    with rpc_errors("sessiond"):
        return list((await operator.sessions.GetEvents(request, timeout=10)).events)


async def command(root: Path, *arguments: str) -> str:
    """Run a `carpal` command, showing what it prints; its stdout."""
    say("$ carpal " + " ".join(a if " " not in a else repr(a) for a in arguments))
    process = await asyncio.create_subprocess_exec(
        *interpreter(), *arguments, "--state-dir", str(root / "state"),
        stdout=asyncio.subprocess.PIPE, limit=1 << 20,
    )  # fmt: skip
    lines: list[str] = []
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            async for line in process.stdout:
                lines.append(line.decode())
                print(lines[-1], end="", flush=True)
            code = await process.wait()
    except TimeoutError:
        raise Failed(f"carpal {arguments[0]} did not end within 60 s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code != 0:
        raise Failed(f"carpal {arguments[0]} ended with {code}: see above")
    return "".join(lines)


async def until(holds: Any, seconds: float, what: str) -> None:
    """Wait for something outside this process, which no event announces."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failed(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.02)


def workspace(root: Path, name: str) -> Path:
    """A folder for a hand to work in."""
    folder = root / name
    folder.mkdir()
    give(folder)
    return folder


def give(path: Path) -> None:
    """Root's files are no hand's, for no hand is root: they become nobody's."""
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)


def agent_file(root: Path, work: Path) -> Path:
    """An agent whose hand works in a folder."""
    path = root / f"{work.name}.yaml"
    path.write_text(
        "name: demo\n"
        "hands:\n"
        "  shell:\n"
        "    type: process\n"
        f"    config: {{workspace: {json.dumps(str(work))}}}\n",
        "utf-8",
    )
    return path


def tests_say(work: Path) -> str:
    """The last line of the repository's own tests."""
    tests = [sys.executable, "-m", "unittest"]
    ran = subprocess.run(tests, cwd=work, capture_output=True, text=True, check=False, timeout=30)
    return ran.stderr.strip().splitlines()[-1]


def title(text: str) -> None:
    print(f"\n== {text}", flush=True)


def say(text: str) -> None:
    print(f"-- {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
