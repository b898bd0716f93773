"""A vault that is sealed answers two things, and one that is open leaves its keys nowhere."""

import asyncio
import base64
import json
import os
import re
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from carpal.authz import METHODS
from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.process import interpreter
from carpal.status import Reason
from carpal.v1 import vault_pb2 as pb
from carpal.v1 import vault_pb2_grpc
from tests.command import Command
from tests.vault.audit.desk import lines
from vault.files import VaultFiles
from vault.seal.kek import new_kek

WAIT = 30.0
PASSPHRASE = "four words at random"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def carpal(tmp_path: Path, state: Path) -> Command:
    return Command(tmp_path, {"CARPAL_STATE": str(state)})


@contextmanager
def serving(
    carpal: Command, state: Path, *flags: str, stdin: str = ""
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`carpal vault run`, once it said that it serves; its address."""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [*interpreter(), "vault", "run", "--listen", "127.0.0.1:0", "--ready-fd", str(writer),
         "--mcp-listen", "127.0.0.1:0",
         *flags],
        env=carpal.environ,
        pass_fds=[writer],
        stdin=subprocess.PIPE,
        stderr=(log := (state.parent / "vault.log").open("a")),
        text=True,
    )  # fmt: skip
    os.close(writer)
    try:
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
        with os.fdopen(reader) as pipe:
            line = pipe.readline()
        assert line, (state.parent / "vault.log").read_text()
        yield json.loads(line)["address"], process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(WAIT)
        log.close()


async def ask(state: Path, address: str, method: str, request: object = None) -> object:
    files = VaultFiles(state).identity(Role.OPERATOR, "operator")
    kind = getattr(pb, f"{method}Request")
    async with dial(address, Role.VAULT, files, retry=False) as channel:
        with rpc_errors("the vault"):
            stub = vault_pb2_grpc.VaultStub(channel)
            return await getattr(stub, method)(request or kind(), timeout=WAIT)


async def test_a_sealed_vault_answers_two_methods_and_opens_by_its_passphrase_alone(
    carpal: Command, state: Path
) -> None:
    made = await carpal(
        "vault", "init", "--seal", "passphrase", "--passphrase-file", "-", stdin=PASSPHRASE
    )
    assert made.code == 0, made.stderr
    refused = await carpal("vault", "issue", "brain", "b")
    assert (refused.code, "--passphrase-file" in refused.stderr) == (3, True)
    with serving(carpal, state) as (address, _):
        status = await ask(state, address, "GetStatus")
        assert isinstance(status, pb.GetStatusResponse)
        assert (status.sealed, status.seal) == (True, "passphrase")
        assert status.trust_domain == "carpal.internal"
        assert status.sealed_because
        operators = [
            name.rpartition("/")[2]
            for name, who in METHODS.items()
            if "/carpal.v1.Vault/" in name and isinstance(who, frozenset) and Role.OPERATOR in who
        ]
        built = {"Sign", "CreateToken", "ListTokens", "RevokeToken", "RevokeIdentity", "GetTrust"}
        assert built < set(operators)
        for method in (*built, "ReadAudit"):
            with pytest.raises(CarpalError) as raised:
                await ask(state, address, method)
            assert raised.value.reason is Reason.VAULT_SEALED, method
        # The operator's commands.
        at = ("--vault", address)
        shut = await carpal("vault", "status", "--json", *at)
        assert json.loads(shut.stdout)["sealed"] is True
        nothing = await carpal("vault", "unseal", *at)
        assert nothing.code == 3
        wrong = await carpal("vault", "unseal", *at, "--passphrase-file", "-", stdin="wrong words")
        assert (wrong.code, "wrong seal key" in wrong.stderr) == (4, True)
        opened = await carpal("vault", "unseal", *at, "--passphrase-file", "-", stdin=PASSPHRASE)
        assert (opened.code, opened.stdout) == (0, "open\n")
        again = await carpal("vault", "unseal", *at, "--passphrase-file", "-", stdin="whatever")
        assert again.code == 0, "unsealing twice is the first answer"
        token = await ask(
            state, address, "CreateToken",
            pb.CreateTokenRequest(token_id="tok_1", secret=os.urandom(32), name="d"),
        )  # fmt: skip
        assert isinstance(token, pb.CreateTokenResponse)
        shown = await carpal("vault", "audit", "show", *at, "-n", "2")
        assert "outcome token.create" in shown.stdout, shown.stderr
        verified = await carpal("vault", "audit", "verify", "--json")
        assert json.loads(verified.stdout)["ok"], verified.stdout
    assert PASSPHRASE not in (state.parent / "vault.log").read_text()


async def test_v01_a_wrong_seal_key_ends_the_start_in_one_line_and_touches_nothing(
    carpal: Command, state: Path
) -> None:
    assert (await carpal("vault", "init")).code == 0
    files = VaultFiles(state)
    right = files.seal_key.read_bytes()
    files.seal_key.chmod(0o600)
    files.seal_key.write_bytes(new_kek())
    before = files.store.read_bytes()
    refused = await carpal("vault", "run", "--listen", "127.0.0.1:0", "--mcp-listen", "127.0.0.1:0")
    (line,) = refused.stderr.splitlines()
    assert (refused.code, "wrong seal key" in line) == (4, True)
    files.seal_key.unlink()
    missing = await carpal("vault", "run", "--listen", "127.0.0.1:0", "--mcp-listen", "127.0.0.1:0")
    assert (missing.code, "vault.key" in missing.stderr) == (2, True)
    assert not files.seal_key.exists(), "no key is made anew over a sealed vault"
    assert files.store.read_bytes() == before
    files.seal_key.write_bytes(right)
    files.seal_key.chmod(0o400)
    with serving(carpal, state) as (address, _):
        assert await ask(state, address, "GetTrust")


async def test_v03_a_vault_that_was_rolled_back_serves_sealed_and_says_why(
    carpal: Command, state: Path
) -> None:
    assert (await carpal("vault", "init")).code == 0
    VaultFiles(state).anchor.write_text('{"epoch": 900, "manifest": "00"}')
    with serving(carpal, state) as (address, _):
        status = await ask(state, address, "GetStatus")
        assert isinstance(status, pb.GetStatusResponse)
        assert "was at 900" in status.sealed_because
        with pytest.raises(CarpalError) as raised:
            await ask(state, address, "Unseal")
        assert raised.value.reason is Reason.VAULT_ROLLED_BACK
    accepted = await carpal("vault", "restore", "--accept-restore")
    assert accepted.code == 0, accepted.stderr
    with serving(carpal, state) as (address, _):
        assert await ask(state, address, "GetTrust")


async def test_another_seal_and_other_terms_open_what_was_sealed_before(
    carpal: Command, state: Path, tmp_path: Path
) -> None:
    assert (await carpal("vault", "init", "--audit-key-out", str(tmp_path / "first"))).code == 0
    with serving(carpal, state) as (address, _):
        rotated = await carpal("vault", "rotate-keys")
        assert (rotated.code, rotated.stdout) == (0, "rotated: term 2 wraps now\n")
        assert await ask(state, address, "GetTrust"), "while it serves"
        busy = await carpal("vault", "reseal", "--seal-key", str(tmp_path / "other.key"))
        assert (busy.code, "in use by another vault" in busy.stderr) == (2, True)
    done = await carpal("vault", "reseal", "--seal-key", str(tmp_path / "other.key"))
    assert done.code == 0, done.stderr
    VaultFiles(state).seal_key.unlink()
    with serving(carpal, state) as (address, _):
        assert await ask(state, address, "GetTrust")
    verified = await carpal("vault", "audit", "verify", "--key", str(tmp_path / "first"), "--json")
    told = json.loads(verified.stdout)
    assert (told["ok"], told["marked"]) == (True, told["lines"])


async def test_v10_canaries_are_in_no_file_no_log_and_nowhere_in_the_process(
    carpal: Command, state: Path
) -> None:
    """The token's secret and the seal's key, in five encodings; the CA's key by its shape."""
    key = new_kek()
    reader, writer = os.pipe()
    os.write(writer, key)
    os.close(writer)
    made = await asyncio.to_thread(
        subprocess.run,
        [*interpreter(), "vault", "init", "--seal", "descriptor", "--seal-fd", str(reader)],
        env=carpal.environ, pass_fds=[reader], capture_output=True, timeout=WAIT, check=True,
    )  # fmt: skip
    os.close(reader)
    secret = os.urandom(32)
    with serving(carpal, state) as (address, process):
        await ask(state, address, "Unseal", pb.UnsealRequest(key=key))
        await ask(
            state, address, "CreateToken",
            pb.CreateTokenRequest(token_id="tok_1", secret=secret, name="d"),
        )  # fmt: skip
        with pytest.raises(CarpalError):
            await ask(
                state, address, "CreateToken",
                pb.CreateTokenRequest(token_id="tok_1", secret=secret, name="other"),
            )  # fmt: skip
        proc = Path(f"/proc/{process.pid}")
        limits = (proc / "limits").read_text()
        assert re.search(r"Max core file size\s+0\s+0\s", limits), limits
        told = [(proc / name).read_bytes() for name in ("environ", "cmdline")]
        process.send_signal(signal.SIGQUIT)  # dumps core where it may
        process.wait(WAIT)
    assert not list(Path.cwd().glob("core*"))
    files = [path for path in state.parent.rglob("*") if path.is_file()]
    assert [path for path in files if path.name == "vault.log"]
    everything = [*told, made.stdout, made.stderr, *(path.read_bytes() for path in files)]
    for canary in (secret, key):
        plain = base64.b64encode(canary).rstrip(b"=")
        for form in (canary, plain, base64.urlsafe_b64encode(canary).rstrip(b"="),
                     canary.hex().encode(), canary.hex().upper().encode()):  # fmt: skip
            assert not [each for each in everything if form in each]
    names = [path.name for path in files if b"PRIVATE KEY" in path.read_bytes()]
    assert set(names) == {"key.pem"}, "each process has its own, and the CA's is sealed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
@pytest.mark.parametrize(
    "command",
    [
        ("vault", "unseal", "--passphrase-file"),
        ("vault", "credential", "add", "c", "--mcp-server-url", "https://a.test", "--secret"),
    ],
    ids=["unseal", "credential"],
)
async def test_a_command_that_is_given_a_secret_leaves_no_core(
    carpal: Command, state: Path, command: tuple[str, ...]
) -> None:
    await carpal("vault", "init")
    pipe = state.parent / "pipe"
    os.mkfifo(pipe)
    where = f"token={pipe}" if "--secret" in command else str(pipe)
    limits = await asyncio.to_thread(limits_while_reading, carpal, [*command, where], pipe)
    assert re.search(r"Max core file size\s+0\s+0\s", limits), limits


def limits_while_reading(carpal: Command, command: list[str], pipe: Path) -> str:
    with subprocess.Popen([*interpreter(), *command], env=carpal.environ) as process:
        try:
            with pipe.open("wb"):  # which is once the command opened it to read
                return Path(f"/proc/{process.pid}/limits").read_text()
        finally:
            process.kill()


def test_v10_no_process_of_the_same_user_may_read_the_vault(tmp_path: Path) -> None:
    code = (
        "import os; from vault.hardening import harden; os.setuid(65534); harden()\n"
        "try: open('/proc/self/environ').read(); print('read')\n"
        "except PermissionError: print('refused')"
    )
    done = subprocess.run(
        [*interpreter()[:-2], "-c", code],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=WAIT, check=False,
    )  # fmt: skip
    assert done.stdout == "refused\n", done.stderr


async def test_a_request_that_cannot_be_audited_is_refused(carpal: Command, state: Path) -> None:
    """V32: a process whose files may not grow is one whose disk is full."""
    assert (await carpal("vault", "init")).code == 0
    with serving(carpal, state) as (address, process):
        size = (VaultFiles(state).audit / "audit.log").stat().st_size
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        with pytest.raises(CarpalError) as raised:
            await ask(
                state, address, "CreateToken",
                pb.CreateTokenRequest(token_id="tok_1", secret=bytes(32), name="d"),
            )  # fmt: skip
        assert raised.value.reason is Reason.AUDIT_NOT_WRITTEN
        limits = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        answer = await ask(state, address, "ListTokens")
        assert isinstance(answer, pb.ListTokensResponse)
        assert not answer.tokens
    said = {(line["what"], line.get("action")) for line in lines(VaultFiles(state).audit)}
    assert ("intent", "token.create") not in said


async def test_an_audit_is_read_a_slice_at_a_time(carpal: Command, state: Path) -> None:
    assert (await carpal("vault", "init")).code == 0
    with serving(carpal, state) as (address, _):
        first = await ask(state, address, "ReadAudit", pb.ReadAuditRequest(limit=2))
        assert isinstance(first, pb.ReadAuditResponse)
        assert [entry.sequence for entry in first.entries] == [1, 2]
        rest = await ask(state, address, "ReadAudit", pb.ReadAuditRequest(after=2, limit=1_000))
        assert isinstance(rest, pb.ReadAuditResponse)
        assert rest.entries[0].sequence == 3
        assert rest.entries[-1].sequence == first.head.position
        assert json.loads(first.entries[0].detail)["action"] == first.entries[0].action
        with pytest.raises(CarpalError) as raised:
            await ask(state, address, "ReadAudit", pb.ReadAuditRequest(limit=1_001))
        assert raised.value.reason is Reason.INVALID_FIELD
    await asyncio.sleep(0)
