"""Bad input gets one clear line, what and what to do, a documented code, and loses nothing."""

import json
import shutil
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from carpal.client import from_rpc
from carpal.identity import Role
from carpal.ids import new_id
from carpal.proof import Token, parse_token
from carpal.status import Reason
from carpal.tls import IdentityFiles
from tests.command import Command, Ended
from tests.interaction.play import session
from tests.pki import Pki
from tests.world import World, world


@pytest.fixture
def carpal(whole: World, tmp_path: Path) -> Command:
    """The command, as the world's operator."""
    addresses = {
        f"CARPAL_{name.upper()}": whole.running[name].facts["address"]
        for name in ("sessiond", "vault")
    }
    return Command(tmp_path, {"CARPAL_STATE": str(whole.state), **addresses})


def refused(ended: Ended, code: int, *words: str) -> None:
    """It ended with a code, and one line with these words; no traceback."""
    assert ended.code == code, ended.stderr
    assert "Traceback" not in ended.stderr
    lines = [line for line in ended.stderr.splitlines() if line.startswith("carpal: ")]
    assert len(lines) == 1, ended.stderr
    assert all(word in lines[0] for word in words), lines[0]


async def test_a_token_that_is_wrong_used_mangled_or_of_another_ca_is_refused_in_one_line(
    whole: World, carpal: Command, tmp_path: Path
) -> None:
    async def enrol(text: str, name: str) -> Ended:
        state = ("--state-dir", str(tmp_path / name))
        return await carpal("hand", "enroll", *state, "--token-file", "-", stdin=text)

    made = await carpal("fleet", "token", "--name", "box")
    good = parse_token(made.stdout.strip())
    wrong = Token(good.address, good.pins, good.token_id, b"\0" * 32)
    refused(await enrol(wrong.text(), "wrong"), 4, "token", "carpal fleet token")
    elsewhere = Token(good.address, (b"\0" * 32,), good.token_id, good.secret)
    refused(await enrol(elsewhere.text(), "elsewhere"), 4, good.address)
    refused(await enrol(good.text()[:-9], "mangled"), 2, "paste the whole line again")
    # None of that spent it; its first use does.
    assert (await enrol(good.text(), "first")).code == 0
    refused(await enrol(good.text(), "second"), 4, "token", "carpal fleet token")
    assert not (tmp_path / "second" / "hand" / "identity" / "cert.pem").exists()


async def test_an_identity_that_is_expired_foreign_or_of_the_wrong_role_is_refused_in_one_line(
    whole: World, carpal: Command, tmp_path: Path
) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    foreign = Pki(tmp_path / "foreign")
    expired = foreign.issue(
        Role.OPERATOR, "old", not_before=yesterday - timedelta(days=1), not_after=yesterday
    )
    stranger = foreign.issue(Role.OPERATOR, "stranger")
    daemon = whole.state / "hand" / "identity"
    ls = ("session", "ls", "--identity")
    refused(await carpal(*ls, str(expired.directory)), 4, "expired")
    refused(await carpal(*ls, str(stranger.directory)), 3, "sessiond at")
    refused(await carpal(*ls, str(daemon)), 2, "daemon", "operator")
    refused(await carpal(*ls, str(tmp_path / "nowhere")), 2, "nowhere", "--identity")


async def test_what_does_not_exist_is_too_large_or_has_no_address_is_refused_in_one_line(
    whole: World, carpal: Command
) -> None:
    refused(await carpal("session", "show", "sesn_nowhere"), 5, "sesn_nowhere")
    refused(await carpal("session", "tail", "sesn_nowhere"), 5, "sesn_nowhere")
    async with session(whole, "hello") as made:
        await made.until_type("session.status_idle")
        head = len(made.log)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await made.say("x" * 1_100_000)
        error = from_rpc(raised.value, "sessiond")
        assert error.reason is Reason.EVENT_TOO_LARGE
        assert "blob" in str(error)
        await made.say("still here")
        await made.until_type("session.status_idle", after=head)
    refused(await carpal("session", "ls", "--sessiond", "127.0.0.1:9"), 3, "127.0.0.1:9")
    refused(await carpal("session", "ls", "--sessiond", "nonsense"), 2, "nonsense")
    refused(await carpal("run", ""), 2, "empty")


@pytest.mark.parametrize("process", ["vault", "sessiond", "brain", "hand", "practice"])
async def test_an_unknown_key_in_a_configuration_file_is_named(
    tmp_path: Path, process: str
) -> None:
    config = tmp_path / "typo.toml"
    config.write_text('lisen = "127.0.0.1:1"\n')
    verb = "serve" if process == "practice" else "run"
    ended = await Command(tmp_path)(process, verb, "--config", str(config))
    refused(ended, 2, "typo.toml", "lisen")


@pytest.mark.parametrize("process", ["vault", "sessiond", "brain", "practice"])
async def test_a_port_in_use_is_said(tmp_path: Path, process: str) -> None:
    carpal = Command(tmp_path, {"CARPAL_STATE": str(tmp_path / "state")})
    assert (await carpal("vault", "init")).code == 0
    verb = "serve" if process == "practice" else "run"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(await carpal(process, verb, "--listen", address), 2, address, "in use")


async def test_an_unknown_tool_or_input_that_does_not_fit_is_a_result_the_model_can_act_on(
    tmp_path: Path,
) -> None:
    script = tmp_path / "wrong.yaml"
    turns = [
        {"tools": [{"name": "teleport", "input": {}}]},
        {"tools": [{"name": "bash", "input": {"comand": "true"}}]},
        {"text": "I see."},
    ]
    script.write_text(json.dumps({"match": "do the wrong things", "turns": turns}))
    async with (
        world(tmp_path / "state", scripts=(script,)) as it,
        session(it, "do the wrong things") as made,
    ):
        await made.until_type("session.status_idle")
    unknown, unfit = made.data("agent.tool_result")
    assert (unknown["outcome"], unfit["outcome"]) == ("error", "error")
    assert "not run" in unknown["content"][0]["text"]
    assert "teleport" in unknown["content"][0]["text"]
    assert "comand" in unfit["content"][0]["text"]


async def test_a_hand_type_nobody_offers_is_said_and_the_session_goes_on(whole: World) -> None:
    async with session(whole, "$ true", hands=("shell",)) as made:
        await made.until_type("session.status_idle")
    listing = await Command(whole.state, {"CARPAL_STATE": str(whole.state)})(
        "run", "--hand", "x=nope", "hello", "--sessiond", whole.running["sessiond"].facts["address"]
    )
    assert listing.code == 1
    assert "no connected daemon offers a 'nope' hand" in listing.stdout + listing.stderr


async def test_identity_files_that_are_corrupt_or_readable_by_others_are_refused(
    whole: World, carpal: Command, tmp_path: Path
) -> None:
    copy = IdentityFiles(tmp_path / new_id("copy"))
    shutil.copytree(whole.state / "operator" / "identity", copy.directory)
    copy.key.chmod(0o644)
    refused(await carpal("session", "ls", "--identity", str(copy.directory)), 2, "key.pem")
    copy.key.chmod(0o600)
    copy.certificate.write_text("not a certificate")
    refused(await carpal("session", "ls", "--identity", str(copy.directory)), 2, "cert.pem")
