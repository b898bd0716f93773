"""`carpal session head|verify`: a log that is whole, and every way in which it is not."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command
from tests.operator.real import SESSION, create, events_of, lines, real_sessiond
from tests.pki import Pki
from tests.sessiond.serving import Serving


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    """A sessiond with one session of three events."""
    async with real_sessiond(tmp_path) as server:
        await create(server)
        yield server


@pytest.fixture
def stranger(tmp_path: Path) -> Command:
    """The command of somebody who has no identity and knows no address."""
    (tmp_path / "stranger").mkdir()
    return Command(tmp_path / "stranger", {"CARPAL_STATE": str(tmp_path / "stranger" / "state")})


async def exported(carpal: Command, tmp_path: Path) -> Path:
    path = tmp_path / "export.jsonl"
    ended = await carpal("session", "export", SESSION, "--out", str(path))
    assert (ended.code, ended.stdout) == (0, f"3 events and 0 blobs in {path}\n"), ended.stderr
    return path


async def test_a_noted_head_is_found_again(server: Serving, carpal: Command) -> None:
    noted = (await carpal("session", "head", SESSION)).stdout.strip()
    last = (await events_of(server))[-1]
    assert noted == f"3:{last.hash.hex()}"
    ended = await carpal("session", "verify", SESSION, "--head", noted)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout == (
        f"sesn_1 is whole: 3 events\nhead {noted}\nas noted at position 3\n"
    )  # fmt: skip


async def test_verify_as_json_says_what_was_checked(server: Serving, carpal: Command) -> None:
    last = (await events_of(server))[-1]
    ended = await carpal("session", "verify", SESSION, "--json")
    assert ended.code == 0
    assert json.loads(ended.stdout) == {
        "session_id": "sesn_1",
        "ok": True,
        "head": {"position": 3, "hash": last.hash.hex()},
        "chain": {
            "chain_id": "sesn_1",
            "redacted": 0,
            "noted": [],
            "signed": [],
            "broken_at": None,
            "problem": None,
        },
    }
    assert "compared with no head that was kept before" in ended.stderr


async def test_a_log_without_the_noted_head_is_not_what_it_was(
    server: Serving, carpal: Command
) -> None:
    ended = await carpal("session", "verify", SESSION, "--head", f"2:{'0' * 64}", "--json")
    report = json.loads(ended.stdout)
    assert (ended.code, report["ok"], report["chain"]["broken_at"]) == (1, False, 2)
    beyond = await carpal("session", "verify", SESSION, "--head", f"4:{'0' * 64}")
    assert beyond.code == 1
    assert beyond.stdout == (
        "sesn_1 is not what it was: the chain breaks at position 3: "
        "the log ends here, before the noted 4\n"
    )


async def test_a_signed_head_is_found_again_and_names_its_signer(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    signed = tmp_path / "head.json"
    await carpal("session", "head", SESSION, "--out", str(signed))
    ended = await carpal("session", "verify", SESSION, "--signed", str(signed), "--json")
    chain = json.loads(ended.stdout)["chain"]
    (proof,) = chain["signed"]
    assert (ended.code, chain["noted"]) == (0, [])
    assert (proof["position"], proof["by"]) == (3, "spiffe://carpal.internal/sessiond/sessiond")
    other = tmp_path / "other.pem"
    other.write_bytes(Pki(tmp_path / "other").ca_pem)
    by_other = await carpal(
        "session", "verify", SESSION, "--signed", str(signed), "--ca", str(other)
    )
    assert (by_other.code, by_other.stdout, by_other.stderr.count("\n")) == (2, "", 1)
    assert "sesn_1 cannot be judged by the signed head" in by_other.stderr
    exported_by_other = await carpal(
        "session", "verify", "--file", str(await exported(carpal, tmp_path)), "--ca", str(other)
    )
    assert (exported_by_other.code, exported_by_other.stdout) == (2, "")


async def test_each_proof_is_reported_once_with_its_own_time(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    ca, signed = tmp_path / "ca.pem", tmp_path / "head.json"
    ca.write_bytes(server.pki.ca_pem)
    noted = (await carpal("session", "head", SESSION, "--out", str(signed))).stdout.strip()
    server.clock.step_wall(5)
    path = await exported(carpal, tmp_path)
    arguments = ("session", "verify", "--file", str(path), "--ca", str(ca))
    ended = await carpal(*arguments, "--signed", str(signed), "--head", noted, "--json")
    chain = json.loads(ended.stdout)["chain"]
    assert (ended.code, chain["noted"]) == (0, [3])
    assert [proof["position"] for proof in chain["signed"]] == [3, 3]
    assert len({proof["at"] for proof in chain["signed"]}) == 2
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"signed_head": lines(path.read_text())[-1]["signed_head"]}))
    twice = await carpal(*arguments, "--signed", str(own))
    assert twice.stdout.count("as signed at position 3") == 1
    assert "as noted" not in twice.stdout


async def test_who_knows_no_authority_is_told_to_name_one(
    server: Serving, carpal: Command, stranger: Command, tmp_path: Path
) -> None:
    path, signed = await exported(carpal, tmp_path), tmp_path / "head.json"
    await carpal("session", "head", SESSION, "--out", str(signed))
    arguments = ("session", "verify", "--file", str(path), "--signed", str(signed))
    ended = await stranger(*arguments)
    assert (ended.code, ended.stderr.count("\n")) == (2, 1)
    assert ended.stderr.endswith(": say with --ca FILE who may have signed\n")
    ca = tmp_path / "ca.pem"
    ca.write_bytes(server.pki.ca_pem)
    assert (await stranger(*arguments, "--ca", str(ca))).code == 0


async def test_the_signed_head_of_another_session_is_no_proof_of_this_one(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await create(server, session_id="sesn_2")
    signed = tmp_path / "head.json"
    await carpal("session", "head", "sesn_2", "--out", str(signed))
    ended = await carpal("session", "verify", SESSION, "--signed", str(signed))
    assert ended.code == 1
    assert "the signed head is of the chain 'sesn_2', not 'sesn_1'" in ended.stdout


async def test_an_export_is_verified_by_who_has_nothing_but_the_file_and_the_ca(
    server: Serving, carpal: Command, stranger: Command, tmp_path: Path
) -> None:
    path = await exported(carpal, tmp_path)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(server.pki.ca_pem)
    ended = await stranger("session", "verify", "--file", str(path), "--ca", str(ca), "--json")
    report = json.loads(ended.stdout)
    assert (ended.code, ended.stderr) == (0, "")
    (proof,) = report["chain"]["signed"]
    assert proof["by"] == "spiffe://carpal.internal/sessiond/sessiond"
    assert report["head"]["position"] == 3
    plain = await stranger("session", "verify", "--file", "-", stdin=path.read_text())
    assert plain.code == 0
    assert "compared with no head" in plain.stderr


def edit(number: int, **change: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda entries: entries[number].update(change)


TAMPERING: dict[str, tuple[Callable[[list[dict[str, Any]]], Any], str]] = {
    "data": (edit(2, data={"content": []}), "position 2: its data is not what was appended"),
    "type": (edit(2, type="user.interrupt"), "position 2: its hash does not follow"),
    "time": (edit(2, time="2026-01-01T00:00:00Z"), "position 2: its hash does not follow"),
    "dropped": (lambda entries: entries.pop(2), "position 2: position 3 is there in its place"),
    "swapped": (
        lambda entries: entries.insert(2, entries.pop(1)),
        "position 1: position 2 is there in its place",
    ),
    "repeated": (
        lambda entries: entries.insert(2, entries[1]),
        "position 2: position 1 is there in its place",
    ),
    "cut at the end": (
        lambda entries: (entries.pop(3), entries[-1].update(events=2)),
        "position 2: the log ends here, not at 3",
    ),
    "cut, and the end says so": (
        lambda entries: (
            entries.pop(3),
            entries[-1].update(events=2, head={"position": 2, "hash": entries[2]["hash"]}),
        ),
        "position 2: the log ends here, before the noted 3",
    ),
    "another chain": (
        lambda entries: entries[0]["session"].update(chain_id="sesn_x"),
        "position 1: its hash does not follow",
    ),
    "no end": (lambda entries: entries.pop(), "is cut short after line 4"),
    "no signature": (
        lambda entries: entries[-1].pop("signed_head"),
        "the export has no signed head",
    ),
}


@pytest.mark.parametrize(("tamper", "problem"), TAMPERING.values(), ids=TAMPERING)
async def test_an_export_that_was_changed_is_found_out(
    server: Serving,
    carpal: Command,
    tmp_path: Path,
    tamper: Callable[[list[dict[str, Any]]], Any],
    problem: str,
) -> None:
    noted = (await carpal("session", "head", SESSION)).stdout.strip()
    path = await exported(carpal, tmp_path)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(server.pki.ca_pem)
    entries = lines(path.read_text())
    tamper(entries)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    ended = await carpal(
        "session", "verify", "--file", str(path), "--ca", str(ca), "--head", noted, "--json"
    )
    report = json.loads(ended.stdout)
    assert (ended.code, report["ok"]) == (1, False)
    assert problem in report["chain"]["problem"]


async def test_a_file_that_is_no_export_is_bad_input_and_names_the_line(
    carpal: Command, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("garbage\n")
    ended = await carpal("session", "verify", "--file", str(path))
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"carpal: line 1 of {path} is not JSON, or is cut short: export the session again\n"
    )
    path.write_text("")
    empty = await carpal("session", "verify", "--file", str(path))
    assert (empty.code, empty.stderr.count("\n")) == (2, 1)
    absent = await carpal("session", "verify", "--file", str(tmp_path / "absent"))
    assert (absent.code, absent.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (SESSION, "--file", "x"),
        (SESSION, "--head", "3"),
        (SESSION, "--head", "3:abc"),
        (SESSION, "--signed", "/nowhere"),
        (SESSION, "--ca", "/nowhere"),
        (SESSION, "--ca", __file__),
        (SESSION, "--signed", __file__),
    ],
)
async def test_what_cannot_be_verified_is_bad_input(
    carpal: Command, arguments: tuple[str, ...]
) -> None:
    ended = await carpal("session", "verify", *arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr


async def test_an_unknown_session_has_neither_head_nor_export(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    path = tmp_path / "x.jsonl"
    for arguments in (("head",), ("verify",), ("export", "--out", str(path))):
        ended = await carpal("session", *arguments, "sesn_x")
        assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (5, "", 1)
    assert not path.exists()


async def test_a_session_and_a_file_are_not_both_verified(carpal: Command) -> None:
    ended = await carpal("session", "verify", SESSION, "--file", "x")
    assert "not both" in ended.stderr


async def test_a_signed_head_is_not_written_over_one_that_is_there(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    path = tmp_path / "head.json"
    path.write_text("kept")
    command = ("session", "head", SESSION, "--out", str(path))
    ended = await carpal(*command)
    assert (ended.code, ended.stdout, path.read_text()) == (2, "", "kept")
    assert (await carpal(*command, "--force")).code == 0
    assert path.read_text() != "kept"
