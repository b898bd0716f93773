"""A hand with a network of its own, and its one way out. Case H38 of the hands.

The supervisor is the real one, in a network namespace that has nothing but
loopback; around it is no other sandbox.
"""

import asyncio
import json
import os
import shlex
import shutil
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from hands.builtin import egress
from hands.builtin.supervised import SupervisedHand
from hands.contract import Call, HandLost, Result
from hands.forwarder.rules import parse
from hands.inside import relay, tree
from tests.hands.forwarder.place import host
from tests.hands.place import PATIENCE, until

SUPERVISOR = Path(__file__).parents[2] / "hands/supervisor.py"


class Alone:
    """A hand in a network namespace."""

    def __init__(self, folder: Path, hand: SupervisedHand) -> None:
        self.folder = folder
        self.hand = hand
        self._calls = 0

    async def sh(self, command: str) -> str:
        """What a command says."""
        self._calls += 1
        call = Call(f"c{self._calls}", "bash", {"command": command})
        async with asyncio.timeout(PATIENCE):
            async for step in self.hand.execute(call):
                if isinstance(step, Result):
                    return step.content
        raise AssertionError("no result")

    async def get(self, url: str, *options: str) -> str:
        """What Python's own client makes of a URL, by the variables that are set."""
        program = (
            "import sys, urllib.request, urllib.error\n"
            "try: print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())\n"
            "except urllib.error.HTTPError as e: print(e.code, e.reason)\n"
            "except OSError as e: print('failed', e)\n"
        )
        run = [sys.executable, "-I", "-c", program, url]
        return await self.sh(" ".join([*options, shlex.join(run)]))


@asynccontextmanager
async def alone(tmp_path: Path, *rules: object) -> AsyncIterator[Alone]:
    """A hand whose supervisor has no network but its own loopback."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    folder, workspace = tmp_path / "f", tmp_path / "w"
    folder.mkdir(mode=0o700)
    workspace.mkdir()
    allowed = parse(list(rules))
    command = [
        *("bwrap", "--dev-bind", "/", "/", "--unshare-net"),
        *(sys.executable, "-I", "-S", str(SUPERVISOR), "--hand-id", "h", "--stay"),
        *("--folder", str(folder), "--workspace", str(workspace), "--deadline", "60"),
        *egress.ARGUMENTS,
    ]
    environment = {"PATH": os.environ["PATH"], **egress.environment(allowed)}
    forwarder = egress.provide(folder, "h", allowed)
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            assert process.stdout is not None
            assert json.loads(await process.stdout.readline())["pid"] > 0
            hand = await SupervisedHand.connect(folder)
        hand.forwarder = forwarder
        made = Alone(folder, hand)
        yield made
        async with asyncio.timeout(PATIENCE):
            await made.hand.release()
    finally:
        await forwarder.close()
        tree.kill_tree(process.pid, tree.start_time(process.pid))
        async with asyncio.timeout(PATIENCE):
            await process.wait()


async def test_h38_without_rules_nothing_goes_out_and_the_hand_is_told_why(tmp_path: Path) -> None:
    async with host() as there, alone(tmp_path) as hand:
        said = await hand.get("http://example.com/")
        assert "403 example.com:80: this hand has no egress rules" in said
        for address in ("127.0.0.1", "169.254.169.254", "8.8.8.8"):
            port = there.port if address == "127.0.0.1" else 80
            said = await hand.sh(f"exec 3<>/dev/tcp/{address}/{port} && echo reached")
            assert "reached" not in said
        said = await hand.get("http://example.com/", "env", "-u", "http_proxy", "-u", "HTTP_PROXY")
        assert said.startswith("failed")  # not even its name is known
        assert not there.heads


async def test_h38_an_allowed_host_is_reached_by_what_programs_do_by_themselves(
    tmp_path: Path,
) -> None:
    async with host() as there, host() as other:
        rule = {"host": f"127.0.0.1:{there.port}", "methods": ["GET"], "paths": ["/ok/*"]}
        async with alone(tmp_path, rule) as hand:
            assert await hand.get(f"http://127.0.0.1:{there.port}/ok/x") == "hi\n\n"
            assert "403 the path is" in await hand.get(f"http://127.0.0.1:{there.port}/x")
            assert "403 " in await hand.get(f"http://127.0.0.1:{other.port}/ok/x")
        assert [head.split()[1] for head in there.heads] == [b"/ok/x"]
        assert not other.heads


async def test_a_hands_own_servers_are_reached_without_the_forwarder(tmp_path: Path) -> None:
    async with alone(tmp_path) as hand:
        serve = f"{sys.executable} -I -m http.server -b 127.0.0.1 8123 >log 2>&1 &"
        await hand.sh(f"echo mine > index.html; {serve} true")
        said = ""
        async with asyncio.timeout(PATIENCE):
            while "mine" not in said:
                said = await hand.get("http://127.0.0.1:8123/index.html")
        assert "mine" in await hand.get("http://localhost:8123/index.html")


async def test_the_relay_is_no_background_process_and_ends_with_the_hand(tmp_path: Path) -> None:
    async with alone(tmp_path) as hand:
        supervisor = hand.hand.pid
        await until(lambda: tree.descendants(supervisor), "no relay")
        below = tree.descendants(supervisor)
        assert "background" not in await hand.sh("true")
    assert not [process for process in below if tree.alive(process.pid, process.start)]


async def test_a_hand_that_kills_its_relay_or_blocks_its_way_harms_itself_alone(
    tmp_path: Path,
) -> None:
    async with host() as there, alone(tmp_path, {"host": f"127.0.0.1:{there.port}"}) as hand:
        url = f"http://127.0.0.1:{there.port}/"
        assert "hi" in await hand.get(url)
        pid = hand.hand.pid
        await until(lambda: len(tree.descendants(pid)) == 1, "the call's processes are still there")
        (process,) = tree.descendants(pid)
        tree.send(process, 9)
        assert "hi" in await hand.get(url)  # another one was started
        await hand.sh(f"rm {hand.folder}/egress; ln -s /etc/passwd {hand.folder}/egress")
        assert "503" in await hand.get(url)
        assert hand.hand.forwarder is not None
        await hand.hand.forwarder.close()
        state = egress.kept(parse([{"host": f"127.0.0.1:{there.port}"}]))
        hand.hand.forwarder = egress.adopt(hand.folder, "h", state)
        assert "hi" in await hand.get(url)


async def test_a_daemon_that_comes_back_opens_the_same_way_out(tmp_path: Path) -> None:
    rule = {"host": "127.0.0.1:9", "methods": ["GET"]}
    url = "http://127.0.0.1:9/"
    async with alone(tmp_path, rule) as hand:
        assert "502 127.0.0.1:9 is not reached" in await hand.get(url)
        await hand.hand.detach()
        hand.hand = await SupervisedHand.connect(hand.folder)
        assert "503 The daemon is away" in await hand.get(url)
        hand.hand.forwarder = egress.adopt(hand.folder, "h", egress.kept(parse([rule])))
        assert "502 127.0.0.1:9 is not reached" in await hand.get(url)


def test_a_hand_without_a_sandbox_refuses_rules_it_cannot_keep() -> None:
    egress.refuse_without_sandbox({})
    with pytest.raises(CarpalError) as refused:
        egress.refuse_without_sandbox({"egress": []})
    assert refused.value.reason is Reason.LIMIT_NOT_ENFORCEABLE
    assert refused.value.fields["field"] == "config.egress"


@pytest.mark.parametrize(
    ("hosts", "direct"),
    [
        ([], "localhost,127.0.0.1,::1"),
        (["127.0.0.1:80"], "localhost,::1"),
        (["pypi.org"], "localhost,127.0.0.1,::1"),
    ],
)
def test_the_machines_loopback_is_asked_of_the_forwarder_where_a_rule_names_it(
    hosts: Sequence[str], direct: str
) -> None:
    found = egress.environment(parse([{"host": host} for host in hosts]))
    assert found["no_proxy"] == found["NO_PROXY"] == direct
    assert found["HTTPS_PROXY"] == found["http_proxy"] == "http://127.0.0.1:3128"


def test_a_hand_is_told_what_it_may_reach() -> None:
    assert egress.note(()) == "There is no network."
    rules = [{"host": "pypi.org"}, {"host": "a.b:81", "methods": ["GET"], "paths": ["/x/*"]}]
    told = egress.note(parse(rules))
    assert told.endswith("HTTPS_PROXY, which allows: pypi.org, a.b:81 (GET /x/*).")
    assert egress.note(parse(rules * 6)).endswith(" and more.")


async def test_a_port_that_is_taken_is_a_hand_that_does_not_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        relay.listen(taken.getsockname()[1])
    with pytest.raises(HandLost):
        egress.adopt(tmp_path / "gone", "h", {})
