"""What process hands in their sandbox reach, by their rules. Case H38 of the hands."""

import asyncio
import functools
import http.server
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.process import ProcessType
from hands.isolation import probe
from tests.hands.forwarder.place import Host, host, self_signed
from tests.hands.place import Place, open_place

_PROBLEM = probe.problem()
pytestmark = pytest.mark.skipif(bool(_PROBLEM), reason=_PROBLEM)

_GET = """
import ssl, sys, urllib.request, urllib.error
anyone = ssl._create_unverified_context()
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10, context=anyone).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.reason)
except OSError as error:
    print("failed", error)
"""


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Place]:
    async with open_place(tmp_path / "state", process=ProcessType(sandbox="required")) as place:
        yield place


async def get(place: Place, hand: str, url: str, before: str = "") -> str:
    """What a program in the hand makes of a URL."""
    command = f"{before} python3 -I - {url} <<'E'\n{_GET}\nE"
    return (await place.sh(hand, command)).content


def url(one: Host, path: str = "/") -> str:
    return f"http://127.0.0.1:{one.port}{path}"


def rule(one: Host, **more: object) -> dict[str, object]:
    return {"host": f"127.0.0.1:{one.port}", **more}


async def test_h38_a_hand_without_rules_reaches_nothing_and_is_told_so(box: Place) -> None:
    hand = await box.hand()
    async with host() as there:
        assert "403" in await get(box, hand, "http://example.com/")
        said = await box.sh(hand, f"exec 3<>/dev/tcp/127.0.0.1/{there.port} && echo reached")
        assert "reached" not in said.content
        said = await box.sh(hand, "getent hosts example.com || echo unknown")
        assert "unknown" in said.content
        assert not there.heads


async def test_h38_a_hand_reaches_what_its_rules_allow_and_nothing_else(box: Place) -> None:
    async with host() as there, host() as other:
        allowed = [rule(there, methods=["GET"], paths=["/ok/*"])]
        hand = await box.hand(egress=allowed)
        assert "hi" in await get(box, hand, url(there, "/ok/x"))
        assert "403 the path is not allowed" in await get(box, hand, url(there, "/no"))
        assert "403 127.0.0.1" in await get(box, hand, url(other))
        assert len(there.heads) == 1
        assert not other.heads


async def test_https_goes_through_connect_and_the_host_is_checked_before_it_is_dialled(
    box: Place, tmp_path: Path
) -> None:
    key = tmp_path / "host.pem"
    key.write_bytes(self_signed("127.0.0.1"))
    speaking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    speaking.load_cert_chain(key)
    async with host(tls=speaking) as there, host(tls=speaking) as other:
        hand = await box.hand(egress=[rule(there)])
        assert "hi" in await get(box, hand, url(there).replace("http:", "https:"))
        assert "403 127.0.0.1" in await get(box, hand, url(other).replace("http:", "https:"))
        assert not other.heads


async def test_git_finds_the_way_out_by_itself(box: Place, tmp_path: Path) -> None:
    source = tmp_path / "served"
    source.mkdir()
    (source / "a.txt").write_text("from the repository\n")
    for command in (
        ["init", "-q"],
        ["add", "a.txt"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
        ["update-server-info"],  # so that any web server is a server of it
    ):
        git = await asyncio.create_subprocess_exec("git", *command, cwd=source)
        assert await git.wait() == 0
    serve = functools.partial(_Quiet, directory=str(source))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        serving = asyncio.create_task(asyncio.to_thread(server.serve_forever))
        port = server.server_port
        hand = await box.hand(egress=[{"host": f"127.0.0.1:{port}", "methods": ["GET"]}])
        said = await box.sh(hand, f"git clone -q http://127.0.0.1:{port}/.git r && cat r/a.txt")
        server.shutdown()
        await serving
    assert said.content == "from the repository\n"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


async def test_what_one_hand_may_reach_another_may_not(box: Place) -> None:
    async with host() as there:
        one, other = await box.hand(egress=[rule(there)]), await box.hand()
        assert "hi" in await get(box, one, url(there))
        assert "refused" in await get(box, other, url(there))  # its own loopback
        assert "403" in await get(box, other, url(there), "no_proxy= NO_PROXY=")


async def test_a_daemon_that_comes_back_opens_every_hands_way_out_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    kind = ProcessType(sandbox="required")
    async with host() as there:
        async with open_place(state, end=False, process=kind) as place:
            hand = await place.hand(egress=[rule(there)])
        async with open_place(state, process=kind) as place:
            assert "hi" in await get(place, hand, url(there))
            assert await place.release(hand)
        assert not (state / "hands" / hand).exists()


async def test_a_released_hand_has_no_way_out_left(box: Place) -> None:
    hand = await box.hand()
    folder = box.inventory.folder_of(hand)
    assert (folder / "egress").is_socket()
    await box.release(hand)
    assert not folder.exists()


async def test_rules_that_are_wrong_are_refused_with_the_field_and_nothing_is_made(
    box: Place,
) -> None:
    with pytest.raises(CarpalError) as refused:
        await box.hand(egress=[{"host": "pypi.org"}, {"host": "a b"}])
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.fields["field"] == "config.egress[1].host"
    assert not box.inventory.keepers


async def test_a_hand_is_told_in_its_note_what_it_may_reach(box: Place) -> None:
    request = pb.ProvisionRequest(
        driver=box.driver(),
        hand_id="noted",
        type="process",
        config=json.dumps({"egress": [{"host": "pypi.org"}]}).encode(),
    )
    assert "allows: pypi.org." in (await box.provision(request)).note


async def test_a_hand_without_a_sandbox_refuses_rules_and_says_that_its_network_is_open(
    tmp_path: Path,
) -> None:
    async with open_place(tmp_path / "state", process=ProcessType(sandbox="off")) as place:
        with pytest.raises(CarpalError) as refused:
            await place.hand(egress=[])
        assert refused.value.reason is Reason.LIMIT_NOT_ENFORCEABLE
        request = pb.ProvisionRequest(driver=place.driver(), hand_id="open", type="process")
        result = await place.provision(request)
        assert any("network" in told for told in result.not_enforced)
