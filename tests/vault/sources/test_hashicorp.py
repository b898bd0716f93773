"""One value of HashiCorp Vault: what is asked, and what may come instead of an answer."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pace import SCALE
from tests.vault.guard.upstream import HOST, Answer, Asked, reply, says
from tests.vault.sources.manager import DELETED, TOKEN, Manager, managed, settings
from vault.guard.limits import Limits
from vault.sources.hashicorp import HashicorpSource
from vault.sources.reference import Reference
from vault.sources.source import Failure, SourceFailed

VALUE = "tok-CANARY-in-the-manager"
PATH = "agents/tracker"
LIMIT = 20.0 * SCALE


def reference(key: str = "token", version: int | None = None, path: str = PATH) -> Reference:
    return Reference("corp", path, key, version)


def store(**more: Any) -> Manager:
    return Manager({PATH: [{"token": "tok-the-first-one"}, {"token": VALUE, "n": 7}]}, **more)


async def fetched(
    folder: Path, manager: Manager, wanted: Reference | None = None, **more: Any
) -> str:
    async with asyncio.timeout(LIMIT), managed(folder, manager) as (guard, server):
        source = HashicorpSource(settings(folder, server.port, **more))
        source._limits = replace(source._limits, first_byte=1.0 * SCALE, idle=1.0 * SCALE)
        return (await source.fetch(wanted or reference(), guard)).reveal().decode()


async def failed(
    folder: Path, manager: Manager, wanted: Reference | None = None, **more: Any
) -> SourceFailed:
    with pytest.raises(SourceFailed) as caught:
        await fetched(folder, manager, wanted, **more)
    for said in (str(caught.value), caught.value.detail, repr(caught.value.__context__)):
        assert "CANARY" not in said
        assert "permission denied" not in said
    return caught.value


async def test_the_newest_version_is_read_and_nothing_else_is_asked(tmp_path: Path) -> None:
    manager = store()
    assert await fetched(tmp_path, manager) == VALUE
    assert manager.seen == [f"/v1/secret/data/{PATH}"]


async def test_a_version_that_is_named_is_read(tmp_path: Path) -> None:
    manager = store()
    assert await fetched(tmp_path, manager, reference(version=1)) == "tok-the-first-one"
    assert manager.seen == [f"/v1/secret/data/{PATH}?version=1"]


async def test_mount_and_namespace_are_those_of_the_settings(tmp_path: Path) -> None:
    manager = store(mount="kv/team", namespace="corp/eu")
    assert await fetched(tmp_path, manager, mount="kv/team", namespace="corp/eu") == VALUE
    assert (await failed(tmp_path, manager, mount="kv/team")).failure is Failure.REFUSED


MISSING = {
    "path": (reference(path="agents/nothing"), Failure.MISSING),
    "key": (reference("password", 2), Failure.MISSING),
    "version": (reference(version=9), Failure.MISSING),
    "deleted": (reference(version=3), Failure.DELETED),
    "no text": (reference("n", 2), Failure.UNUSABLE),
}


@pytest.mark.parametrize(("wanted", "failure"), MISSING.values(), ids=MISSING)
async def test_what_is_not_there_says_how_it_is_not(
    tmp_path: Path, wanted: Reference, failure: Failure
) -> None:
    manager = store()
    manager.entries[PATH].append(DELETED)
    assert (await failed(tmp_path, manager, wanted)).failure is failure


async def test_a_deleted_newest_version_gives_none_before_it(tmp_path: Path) -> None:
    manager = store()
    manager.entries[PATH].append(DELETED)
    assert (await failed(tmp_path, manager)).failure is Failure.DELETED


def answers(status: str, said: Any = None, *headers: str) -> Answer:
    body = json.dumps({"errors": [VALUE]} if said is None else said).encode()
    return says(reply(body, *headers, status=status))


async def _stalls(asked: Asked, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _stalls_within(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(b'{"data":' + b" " * 100)[:-50])
    await writer.drain()
    await asyncio.Event().wait()


async def _floods(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()


def entry(data: object, **metadata: object) -> dict[str, object]:
    return {"data": {"data": data, "metadata": {"version": 1, **metadata}}}


BAD = {
    "401": (answers("401 Unauthorized"), Failure.REFUSED),
    "403": (answers("403 Forbidden"), Failure.REFUSED),
    "404": (answers("404 Not Found"), Failure.MISSING),
    "429 of a standby": (answers("429 Too Many Requests"), Failure.UNAVAILABLE),
    "473 of a standby": (answers("473 Standby"), Failure.UNAVAILABLE),
    "503 sealed": (answers("503 Service Unavailable"), Failure.UNAVAILABLE),
    "a redirect": (
        answers("307 Temporary Redirect", None, "Location: https://evil.a.test/v1/x"),
        Failure.MALFORMED,
    ),
    "no JSON": (says(reply(f"<html>{VALUE}".encode())), Failure.MALFORMED),
    "a list": (answers("200 OK", [VALUE]), Failure.MALFORMED),
    "version 1 of the store": (answers("200 OK", {"data": {"token": VALUE}}), Failure.MALFORMED),
    "no data": (answers("200 OK", entry(None)), Failure.MALFORMED),
    "no HTTP": (says(VALUE.encode() + b"\r\n\r\n"), Failure.MALFORMED),
    "stalls": (_stalls, Failure.TIMEOUT),
    "stalls within": (_stalls_within, Failure.TIMEOUT),
    "floods": (_floods, Failure.MALFORMED),
}


@pytest.mark.parametrize(("answer", "failure"), BAD.values(), ids=BAD)
async def test_an_answer_that_is_none_is_a_failure_of_its_kind_and_no_word_of_it_is_told(
    tmp_path: Path, answer: Answer, failure: Failure
) -> None:
    manager = store(instead=answer)
    assert (await failed(tmp_path, manager)).failure is failure
    assert len(manager.seen) == 1, "nothing is asked twice"


async def test_another_version_than_was_asked_for_is_believed_in_nothing(tmp_path: Path) -> None:
    manager = store(instead=answers("200 OK", entry({"token": VALUE}, version=4)))
    assert (await failed(tmp_path, manager, reference(version=2))).failure is Failure.MALFORMED


async def test_a_manager_that_is_not_reached_had_nothing_sent_to_it(tmp_path: Path) -> None:
    async with managed(tmp_path, store()) as (guard, server):
        away = {**settings(tmp_path, server.port), "address": "https://nobody.a.test:1"}
        with pytest.raises(SourceFailed) as caught:
            await HashicorpSource(away).fetch(reference(), guard)
    assert caught.value.failure is Failure.UNREACHABLE


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620])
async def test_a_token_that_others_can_read_or_change_is_sent_nowhere(
    tmp_path: Path, mode: int
) -> None:
    manager = store()
    async with managed(tmp_path, manager) as (guard, server):
        source = HashicorpSource(settings(tmp_path, server.port))
        (tmp_path / "manager.token").chmod(mode)
        with pytest.raises(SourceFailed) as caught:
            await source.fetch(reference(), guard)
    assert caught.value.failure is Failure.REFUSED
    assert "chmod" in caught.value.detail
    assert manager.seen == []


async def test_a_token_that_is_replaced_is_used_from_the_next_fetch_on(tmp_path: Path) -> None:
    async with managed(tmp_path, store()) as (guard, server):
        source = HashicorpSource(settings(tmp_path, server.port))
        token = tmp_path / "manager.token"
        token.write_text("hvs.expired-token-1")
        with pytest.raises(SourceFailed):
            await source.fetch(reference(), guard)
        token.write_text(TOKEN)
        assert (await source.fetch(reference(), guard)).reveal().decode() == VALUE
        token.unlink()
        with pytest.raises(SourceFailed) as caught:
            await source.fetch(reference(), guard)
    assert caught.value.failure is Failure.REFUSED


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "http://vault.a.test"},
        {"address": "https://vault.a.test/v1"},
        {"address": "https://u:p@vault.a.test"},
        {"address": None},
        {"token_file": "manager.token"},
        {"mount": "../sys"},
        {"mount": ".."},
        {"mount": "kv/../sys"},
        {"namespace": "a b"},
        {"private_networks": ["127.0.0.0/8"]},
        {"token": "hvs.in-the-open"},
    ],
)
def test_settings_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    good = {"address": f"https://{HOST}", "token_file": "/run/token"}
    HashicorpSource(good)
    with pytest.raises(ValueError, match=r"address|token|mount|namespace|network"):
        HashicorpSource({**good, **wrong})


def test_limits_bound_a_fetch_to_ten_seconds_and_a_mebibyte() -> None:
    source = HashicorpSource({"address": f"https://{HOST}", "token_file": "/run/token"})
    limits: Limits = source._limits
    assert (limits.total, limits.reply_bytes) == (10.0, 1024 * 1024)
