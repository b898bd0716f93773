"""`carpal session import|fork|redact|archive|delete`: an export comes back, and what is kept of it.

Held to a real sessiond; where one must misbehave, to one in memory.
"""

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from carpal.errors import refuse
from carpal.export import PART_BYTES, BlobPart, End, Entry, line_of
from carpal.identity import Role
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import server_credentials
from carpal.v1 import session_pb2_grpc, types_pb2
from tests.command import Command
from tests.logs import head, log, redact
from tests.operator.keeper import Keeper
from tests.operator.real import SESSION, lines, real_sessiond
from tests.pki import Pki

BLOB = bytes(range(256)) * 3000
"""Three parts of a line each."""
NAME = f"sha256:{sha256(BLOB).hexdigest()}"
NO_BLOB = f"sha256:{'0' * 64}"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[None]:
    """A real sessiond."""
    async with real_sessiond(tmp_path):
        yield


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    """One in memory, where an operator's commands find it."""
    operator = tmp_path / "state" / "operator"
    pki, keeper = Pki(tmp_path / "pki"), Keeper()  # type: ignore[abstract]
    pki.issue(Role.OPERATOR, "ann", directory=operator / "identity")
    async with serve(
        "127.0.0.1:0",
        server_credentials(pki.issue(Role.SESSIOND, "sessiond")),
        lambda server: session_pb2_grpc.add_SessionServicer_to_server(keeper, server),
    ) as server:
        (operator / "operator.toml").write_text(f'sessiond = "{server.address}"\n')
        yield keeper


def export(path: Path, *datas: bytes, redacted: int | None = None, chain_id: str = "") -> Path:
    """A file as `carpal session export` writes it; with the blob if an event names it."""
    events = log(*datas, chain_id=chain_id or SESSION)
    if redacted:
        redact(events[redacted - 1])
    info = types_pb2.SessionInfo(
        session_id=SESSION,
        workspace="elsewhere",
        title="to keep",
        metadata={"a": "b"},
        labels={"team": "x"},
        chain_id=chain_id,
        head=head(events),
        wake=1,
    )
    info.created.FromSeconds(1_700_000_000)
    blobs: list[Entry] = []
    if any(NAME.encode() in data for data in datas):
        blobs = [
            BlobPart(sha256(BLOB).digest(), len(BLOB), "image/png", at, BLOB[at : at + PART_BYTES])
            for at in range(0, len(BLOB), PART_BYTES)
        ]
    end = End(info.head, len(events), 1 if blobs else 0)
    entries: list[Entry] = [info, *events, *blobs, end]
    path.write_bytes(b"".join(line_of(entry) for entry in entries))
    return path


async def test_an_import_is_exported_as_it_came_but_for_who_has_it(
    server: None, carpal: Command, tmp_path: Path
) -> None:
    datas = (b"{}", f'{{"image":"{NAME}","not":"{NO_BLOB}"}}'.encode(), b'{ "odd": 1e2 }', b"[1]")
    path = export(tmp_path / "in.jsonl", *datas, redacted=4)
    ended = await carpal("session", "import", str(path), "--json")
    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout) == {"session_id": SESSION, "events": 4, "blobs": 1, "head": 4}
    back = await carpal("session", "export", SESSION)
    assert back.code == 0, back.stderr
    came, went = lines(path.read_text()), lines(back.stdout)
    assert went[1:-1] == came[1:-1]
    assert {**went[-1], "signed_head": 0} == {**came[-1], "signed_head": 0}
    for name in ("title", "metadata", "labels", "created", "head"):
        assert went[0]["session"][name] == came[0]["session"][name]
    assert went[0]["session"]["workspace"] == "default"
    verified = await carpal("session", "verify", SESSION, "--json")
    assert json.loads(verified.stdout)["chain"]["redacted"] == 1


async def test_an_import_from_stdin_under_another_id_keeps_its_chain(
    server: None, carpal: Command, tmp_path: Path
) -> None:
    path = export(tmp_path / "in.jsonl", b"{}", b"[]")
    text = path.read_text()
    ended = await carpal("session", "import", "-", "--as", "sesn_copy", stdin=text)
    assert (ended.code, ended.stdout) == (0, "sesn_copy\n"), ended.stderr
    end = lines(text)[-1]["head"]
    noted = f"{end['position']}:{end['hash']}"
    verified = await carpal("session", "verify", "sesn_copy", "--head", noted, "--json")
    report = json.loads(verified.stdout)
    assert (report["ok"], report["chain"]["chain_id"]) == (True, SESSION)
    again = tmp_path / "again.jsonl"
    await carpal("session", "export", "sesn_copy", "--out", str(again))
    third = await carpal("session", "import", str(again), "--as", "sesn_third")
    assert third.code == 0, third.stderr
    shown = await carpal("session", "head", "sesn_third", "--json")
    assert json.loads(shown.stdout)["chain_id"] == SESSION


async def test_an_import_again_changes_nothing_and_another_log_is_refused(
    server: None, carpal: Command, tmp_path: Path
) -> None:
    path = export(tmp_path / "in.jsonl", b"{}", b"[]")
    for _ in range(2):
        assert (await carpal("session", "import", str(path))).stdout == f"{SESSION}\n"
    other = export(tmp_path / "other.jsonl", b"{}", b"1")
    ended = await carpal("session", "import", str(other))
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "choose another id" in ended.stderr


async def test_a_long_log_comes_back_as_it_went(
    server: None, carpal: Command, tmp_path: Path
) -> None:
    large = (b'{"n":"%s"}' % (b"x" * 1_000_000),) * 5
    path = export(tmp_path / "in.jsonl", *large, *(b"{}",) * 1100)
    ended = await carpal("session", "import", str(path))
    assert ended.code == 0, ended.stderr
    back = tmp_path / "back.jsonl"
    await carpal("session", "export", SESSION, "--out", str(back))
    assert back.read_text().splitlines()[1:-1] == path.read_text().splitlines()[1:-1]


async def test_a_fork_shares_the_log_up_to_a_position(
    server: None, carpal: Command, tmp_path: Path
) -> None:
    await carpal("session", "import", str(export(tmp_path / "in.jsonl", b"{}", b"[]", b"1")))
    fork = (await carpal("session", "fork", SESSION, "--at", "2", "--title", "again")).stdout
    shown = json.loads((await carpal("session", "show", fork.strip(), "--json")).stdout)
    assert (shown["head"], shown["title"]) == (2, "again")
    verified = json.loads((await carpal("session", "verify", fork.strip(), "--json")).stdout)
    assert (verified["ok"], verified["chain"]["chain_id"]) == (True, SESSION)
    whole = json.loads((await carpal("session", "fork", SESSION, "--json")).stdout)
    assert (whole["forked_from"], whole["forked_at"]) == (SESSION, 3)
    beyond = await carpal("session", "fork", SESSION, "--at", "4")
    assert (beyond.code, beyond.stdout, beyond.stderr.count("\n")) == (2, "", 1)


async def test_a_redacted_event_keeps_who_and_why_and_the_log_whole(
    server: None, carpal: Command, tmp_path: Path
) -> None:
    await carpal("session", "import", str(export(tmp_path / "in.jsonl", b"{}", b'{"a":"secret"}')))
    ended = await carpal("session", "redact", SESSION, "2", "--reason", "a secret", "--json")
    assert ended.code == 0, ended.stderr
    (shown,) = lines(ended.stdout)
    assert (shown["position"], shown["data"], shown["redaction"]["reason"]) == (2, None, "a secret")
    again = await carpal("session", "redact", SESSION, "2", "--reason", "a secret")
    assert again.stdout == "user.message at position 2 is redacted\n"
    back = await carpal("session", "export", SESSION)
    assert "secret" not in back.stdout.replace("a secret", "")
    verified = json.loads((await carpal("session", "verify", SESSION, "--json")).stdout)
    assert (verified["ok"], verified["chain"]["redacted"]) == (True, 1)
    assert (await carpal("session", "redact", SESSION, "2")).code == 2


async def test_an_archived_session_is_read_and_a_deleted_one_is_gone(
    server: None, carpal: Command, tmp_path: Path
) -> None:
    await carpal("session", "import", str(export(tmp_path / "in.jsonl", b"{}")))
    archived = await carpal("session", "archive", SESSION, "--json")
    assert json.loads(archived.stdout)["status"] == "archived"
    assert (await carpal("session", "verify", SESSION)).code == 0
    asked = await carpal("session", "delete", SESSION)
    assert (asked.code, asked.stdout) == (2, "")
    assert asked.stderr == (
        "carpal: sesn_1 would be deleted for good: "
        "say so with --yes; `carpal session export` keeps a copy\n"
    )
    assert (await carpal("session", "head", SESSION)).code == 0
    deleted = await carpal("session", "delete", SESSION, "--yes")
    assert (deleted.code, deleted.stdout) == (0, "sesn_1 is deleted\n")
    assert (await carpal("session", "head", SESSION)).code == 5


@pytest.mark.parametrize("command", ["fork", "archive", "delete", "redact"])
async def test_an_unknown_session_is_one_line_and_exit_code_5(
    server: None, carpal: Command, command: str
) -> None:
    more = {"delete": ["--yes"], "redact": ["1", "--reason", "x"]}.get(command, [])
    ended = await carpal("session", command, "sesn_x", *more)
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (5, "", 1)


async def test_a_broken_export_is_refused_before_anything_is_sent(
    keeper: Keeper, carpal: Command, tmp_path: Path
) -> None:
    path = export(tmp_path / "in.jsonl", b"{}", b'{"a":1}', b"[]")
    whole = path.read_text()
    path.write_text(whole.replace('{"a": 1}', '{"a": 2}'))
    edited = await carpal("session", "import", str(path))
    assert edited.code == 2
    assert edited.stderr == (
        "carpal: the chain breaks at position 2: its data is not what was appended: "
        "get an export that was not changed\n"
    )
    path.write_text(whole[:-1].rpartition("\n")[0])
    cut = await carpal("session", "import", str(path))
    assert (cut.code, cut.stderr) == (
        2,
        f"carpal: {path} is cut short after line 4: export the session again\n",
    )
    assert (await carpal("session", "import", str(path), "--as", "a/b")).code == 2
    assert (keeper.sessions, keeper.frames) == ({}, [])


async def test_a_long_log_goes_in_messages_that_fit_and_after_its_blobs(
    keeper: Keeper, carpal: Command, tmp_path: Path
) -> None:
    large = (b'{"n":"%s"}' % (b"x" * 1_000_000),) * 7
    small = (b"{}",) * 1500
    path = export(tmp_path / "in.jsonl", *large, *small, f'"{NAME}"'.encode())
    ended = await carpal("session", "import", str(path))
    assert ended.code == 0, ended.stderr
    assert sum(count for _, count in keeper.frames) == 1508
    assert all(size <= 4 * 1024 * 1024 and count <= 1000 for size, count in keeper.frames)
    assert len(keeper.frames) == 4
    assert keeper.blobs_before_last_frame == 1
    ((info, data),) = keeper.blobs.values()
    assert (info.media_type, data) == ("image/png", BLOB)


async def test_a_refusal_in_the_middle_of_an_import_is_what_is_said(
    keeper: Keeper, carpal: Command, tmp_path: Path
) -> None:
    path = export(tmp_path / "in.jsonl", *(b'{"n":"%s"}' % (b"x" * 1_000_000),) * 12)
    keeper.refusal = refuse(Reason.STORE_FULL, "the disk is full")
    ended = await carpal("session", "import", str(path))
    assert (ended.code, ended.stderr) == (1, "carpal: the disk is full: free disk space\n")


async def test_an_import_again_sends_the_blobs_that_are_missing(
    keeper: Keeper, carpal: Command, tmp_path: Path
) -> None:
    large = (b'{"n":"%s"}' % (b"x" * 1_000_000),) * 9
    path = export(tmp_path / "in.jsonl", *large, f'"{NAME}"'.encode())
    assert (await carpal("session", "import", str(path))).code == 0
    keeper.blobs.clear()
    again = await carpal("session", "import", str(path))
    assert again.code == 0, again.stderr
    assert [data for _, data in keeper.blobs.values()] == [BLOB]


async def test_what_follows_the_end_of_an_export_is_refused(
    keeper: Keeper, carpal: Command, tmp_path: Path
) -> None:
    path = export(tmp_path / "in.jsonl", b"{}")
    path.write_text(path.read_text() + "{}\n")
    ended = await carpal("session", "import", str(path))
    assert ended.code == 2
    assert ended.stderr.startswith(f"carpal: line 4 of {path} follows the end: ")
    assert keeper.sessions == {}


async def test_a_blob_that_is_there_already_is_not_waited_for(
    keeper: Keeper, carpal: Command, tmp_path: Path
) -> None:
    path = export(tmp_path / "in.jsonl", f'"{NAME}"'.encode())
    for _ in range(2):
        ended = await carpal("session", "import", str(path))
        assert ended.code == 0, ended.stderr


async def test_a_blob_cut_short_is_an_error_either_way(
    keeper: Keeper, carpal: Command, tmp_path: Path
) -> None:
    path, out = export(tmp_path / "in.jsonl", f'"{NAME}"'.encode()), tmp_path / "out.jsonl"
    keeper.short = True
    ended = await carpal("session", "import", str(path))
    assert ended.code == 3
    assert "took 384000 of 768000 bytes of a blob" in ended.stderr
    assert keeper.sessions == {}
    keeper.short = False
    await carpal("session", "import", str(path))
    keeper.short = True
    cut = await carpal("session", "export", SESSION, "--out", str(out))
    assert (cut.code, cut.stdout) == (3, "")
    assert "ended a blob after 384000 bytes" in cut.stderr
    assert not out.exists()


@pytest.mark.parametrize("position", [2**63, 10**30])
async def test_a_position_that_no_log_has_is_bad_input(
    server: None, carpal: Command, position: int
) -> None:
    for arguments in (
        ("fork", SESSION, "--at", str(position)),
        ("redact", SESSION, str(position), "--reason", "x"),
    ):
        ended = await carpal("session", *arguments)
        assert (ended.code, ended.stdout) == (2, "")
        assert "is not in the range" in ended.stderr
