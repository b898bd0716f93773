"""`carpal vault`: what it makes, what it never does twice, and how it says no."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from carpal.client import dial
from carpal.errors import BadInput, CarpalError
from carpal.identity import Role
from carpal.process import interpreter
from carpal.tls import IdentityFiles, write_file
from carpal.trust_watch import REVOCATIONS
from carpal.v1 import vault_pb2, vault_pb2_grpc
from tests.pki import Pki
from vault.cli import vault
from vault.files import VaultFiles
from vault.opened import authority_of

WAIT = 20


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def carpal_vault(*arguments: str | Path, environ: dict[str, str] | None = None) -> str:
    """What the command printed; CarpalErrors come out as they are raised."""
    result = CliRunner().invoke(
        vault, [str(one) for one in arguments], standalone_mode=False, env=environ
    )
    if result.exception is not None:
        raise result.exception
    return result.output


def test_init_makes_the_ca_and_an_identity_for_every_process(state: Path) -> None:
    said = carpal_vault("init", "--state-dir", state, "--brain", "a", "--brain", "b")
    folders = ["vault", "sessiond", "brain/a", "brain/b", "operator"]
    loaded = [IdentityFiles(state / folder / "identity").load_valid() for folder in folders]
    assert [one.identity.uri.removeprefix("spiffe://carpal.internal/") for one in loaded] == [
        "vault/vault",
        "sessiond/sessiond",
        "brain/a",
        "brain/b",
        "operator/operator",
    ]
    assert loaded[-1].identity.workspace == "default"
    assert all(one.identity.uri in said for one in loaded)
    # What is for another day does not read as a step of now.
    _, after = said.split("next:\n")
    assert [line for line in after.splitlines() if "vault issue" in line] == [
        f"not now, but should all of it be off for more than 24 hours, then before the vault runs: "
        f"carpal vault issue vault vault sessiond sessiond brain a brain b operator operator "
        f"--state-dir {state}"
    ]
    (state / "operator" / "operator.toml").read_text()
    steps = ["vault run", "sessiond run", "brain run --name a", "brain run --name b", "fleet token"]
    places = [said.index(f"  carpal {step}") for step in steps]
    assert places == sorted(places)
    # A server's chain ends with the CA, for machines that enrol.
    assert loaded[2].chain.endswith(authority_of(VaultFiles(state)).pem)


def test_what_init_writes_is_for_the_owner_alone(state: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    assert all(path.stat().st_mode & 0o077 == 0 for path in [state, *state.rglob("*")])


def test_init_never_makes_a_ca_twice(state: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    before = snapshot(state)
    with pytest.raises(BadInput, match="already; nothing was changed") as raised:
        carpal_vault("init", "--state-dir", state, "--brain", "another")
    assert raised.value.exit_code == 2
    assert snapshot(state) == before


def test_init_does_not_write_over_identities_of_another_vault(state: Path) -> None:
    Pki(state / "elsewhere").issue("sessiond", "s", directory=state / "sessiond" / "identity")
    before = snapshot(state / "sessiond")
    with pytest.raises(BadInput, match="another vault"):
        carpal_vault("init", "--state-dir", state)
    assert snapshot(state / "sessiond") == before
    assert not VaultFiles(state).has_authority()


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--brain", "Brain One"), ("--operator", ""), ("--workspace", "a/b"), ("--trust-domain", "X")],
)
def test_a_bad_name_makes_nothing(state: Path, flag: str, value: str) -> None:
    with pytest.raises(CarpalError, match=f"^{flag}: ") as raised:
        carpal_vault("init", "--state-dir", state, flag, value)
    assert raised.value.exit_code == 2
    assert not VaultFiles(state).has_authority()


def test_the_state_folder_may_come_from_the_environment(state: Path) -> None:
    carpal_vault("init", environ={"CARPAL_STATE": str(state)})
    assert VaultFiles(state).has_authority()


def test_issue_renews_an_identity_with_its_claims(state: Path, tmp_path: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    out = tmp_path / "daemon"
    common = ("issue", "daemon", "build-1", "--state-dir", state, "--out", out)
    carpal_vault(*common, "--workspace", "acme", "--pool", "gpu")
    first = IdentityFiles(out).load_valid()
    said = carpal_vault(*common)
    second = IdentityFiles(out).load_valid()
    assert (second.identity.workspace, second.identity.pool) == ("acme", "gpu")
    assert second.identity.serial != first.identity.serial
    assert second.key_pem != first.key_pem
    assert second.identity.uri in said


def test_init_keeps_the_addresses_an_operator_was_told(state: Path) -> None:
    write_file(state / "operator" / "operator.toml", b'sessiond = "h:1"\n')
    carpal_vault("init", "--state-dir", state)
    assert (state / "operator" / "operator.toml").read_text() == 'sessiond = "h:1"\n'


def test_several_are_issued_at_once_or_none(state: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    carpal_vault("issue", "brain", "b", "vault", "vault", "--state-dir", state)
    assert IdentityFiles(state / "brain" / "b" / "identity").load_valid()
    before = snapshot(state)
    for words in (
        ["brain", "c", "vault"],
        ["brain", "c", "cook", "x"],
        ["brain", "c", "brain", "X"],
    ):
        with pytest.raises(BadInput):
            carpal_vault("issue", *words, "--state-dir", state)
    assert snapshot(state) == before


def test_issue_writes_where_the_process_looks(state: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    carpal_vault("issue", "brain", "brain-9", "--state-dir", state)
    assert IdentityFiles(state / "brain" / "brain-9" / "identity").load_valid()


def test_a_server_of_this_machine_knows_who_is_revoked_before_the_vault_runs(state: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    listed = [state / "sessiond" / REVOCATIONS, state / "brain" / "brain-1" / REVOCATIONS]
    assert all(path.read_bytes() for path in listed)
    assert not list((state / "operator").glob(REVOCATIONS))


def test_issue_does_not_write_over_another_identity(state: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    before = snapshot(state / "operator")
    with pytest.raises(BadInput, match="nothing was changed"):
        carpal_vault("issue", "operator", "eve", "--state-dir", state)
    assert snapshot(state / "operator") == before


def test_a_name_of_another_workspace_is_not_issued(state: Path, tmp_path: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    common = ("issue", "daemon", "d", "--state-dir", state)
    carpal_vault(*common, "--out", tmp_path / "a", "--workspace", "acme")
    with pytest.raises(BadInput, match="'acme'"):
        carpal_vault(*common, "--out", tmp_path / "b", "--workspace", "other")


def test_commands_before_init_say_so(state: Path) -> None:
    with pytest.raises(BadInput, match="carpal vault init"):
        carpal_vault("issue", "brain", "b", "--state-dir", state)
    for step in ("prepare", "switch", "retire", "status"):
        with pytest.raises(BadInput, match="carpal vault init"):
            carpal_vault("ca", step, "--state-dir", state)
    code, said = refused("run", "--state-dir", state, "--listen", "127.0.0.1:0")
    assert (code, "carpal vault init" in said) == (2, True)
    assert not state.exists(), "a mistyped folder is not made"


def test_v07_an_open_or_damaged_seal_key_is_refused(state: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    key = VaultFiles(state).seal_key
    key.chmod(0o644)
    with pytest.raises(BadInput, match="chmod 400"):
        carpal_vault("issue", "brain", "b", "--state-dir", state)
    key.write_bytes(b"junk")
    key.chmod(0o400)
    with pytest.raises(BadInput, match="4 bytes"):
        carpal_vault("issue", "brain", "b", "--state-dir", state)


def test_an_unknown_key_of_the_config_file_is_named(state: Path, tmp_path: Path) -> None:
    config = tmp_path / "vault.toml"
    config.write_text('lisen = "127.0.0.1:0"\n')
    code, said = refused("run", "--state-dir", state, "--config", config)
    assert (code, "'lisen'" in said) == (2, True)


def test_v09_run_serves_until_a_signal_and_keeps_others_out(state: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    with running(state) as (process, address):
        files = VaultFiles(state).identity(Role.OPERATOR, "operator")
        assert asyncio.run(trust_domain(address, files)) == "carpal.internal"
        code, said = refused("run", "--state-dir", state, "--listen", "127.0.0.1:0")
        assert (code, "in use by another vault" in said) == (2, True)
        carpal_vault("issue", "brain", "brain-1", "--state-dir", state)  # works meanwhile
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_port_in_use_is_one_clear_line(state: Path, tmp_path: Path) -> None:
    carpal_vault("init", "--state-dir", state)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = refused("run", "--state-dir", state, "--listen", listen)
    assert (code, listen in said) == (2, True)


def test_a_clock_that_is_behind_is_one_clear_line(state: Path) -> None:
    """One that has expired is renewed by the vault itself; one of the future is a wrong clock."""
    carpal_vault("init", "--state-dir", state)
    pki = Pki(state)
    pki.authority = authority_of(VaultFiles(state))
    start = datetime.now(UTC) + timedelta(hours=5)
    pki.issue("vault", "vault", not_before=start, directory=state / "vault" / "identity")
    code, said = refused("run", "--state-dir", state, "--listen", "127.0.0.1:0")
    assert (code, "valid only from" in said, "set this machine's clock" in said) == (2, True, True)


async def trust_domain(address: str, files: IdentityFiles) -> str:
    async with dial(address, Role.VAULT, files) as channel:
        stub = vault_pb2_grpc.VaultStub(channel)
        status = await stub.GetStatus(vault_pb2.GetStatusRequest(), timeout=WAIT)
    return status.trust_domain


def refused(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and the one line of a command that must say no."""
    done = subprocess.run(
        [*interpreter(), "vault", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("carpal: ")
    return done.returncode, line


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def running(state: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`carpal vault run`, once it said that it serves."""
    with serving(state, *more) as (process, at):
        yield process, at["address"]


@contextmanager
def serving(state: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """The same, with all its addresses."""
    reader, writer = os.pipe()
    arguments = ["vault", "run", "--state-dir", str(state)]
    arguments += ["--listen", "127.0.0.1:0", "--mcp-listen", "127.0.0.1:0", *more]
    process = subprocess.Popen(
        [*interpreter(), *arguments, "--ready-fd", str(writer)],
        pass_fds=[writer],
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    try:
        with os.fdopen(reader) as pipe:
            yield process, json.loads(pipe.readline())
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
