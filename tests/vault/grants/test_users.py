"""A user's credential: of use in sessions for that user alone, and missed before a call is sent."""

import json
import sqlite3

import pytest

from carpal.status import Reason
from carpal.v1 import vault_pb2 as pb
from tests.vault.audit.desk import lines
from tests.vault.credentials.test_rpc import bearer, create, refused
from tests.vault.grants.test_end_to_end import There
from tests.vault.grants.test_end_to_end import there as there  # noqa: PLC0414
from tests.vault.mcp.world import CANARY, HOST


async def owned(there: There, name: str, owner: str | None, token: str = CANARY) -> None:
    policy = {"mcp_server_url": f"https://{HOST}:{there.port}/mcp"}
    if owner is not None:
        policy["owner"] = owner
    said = bearer(name, policy=json.dumps(policy).encode(), secrets={"token": token.encode()})
    await create(await there.domain.vault(), said)


async def granted(there: There, user: str, *, session: str = "s1", per_user: bool = True) -> str:
    server = {"url": f"https://{HOST}:{there.port}/mcp", "allow": ["*"], "per_user": per_user}
    ticket = there.vault.ticket(session=session, user=user)
    policy = json.dumps({"mcp": {"a": server}}).encode()
    return await there.vault.give(
        ticket, policy=policy, grant_id=f"g-{session}", credential_ids=[], vault_ids=["default"]
    )


async def why(there: There, token: str, call: str) -> dict[str, str]:
    error = (await there.call(token, call)).json()["error"]
    return {key: str(value) for key, value in error["data"].items()}


NEEDED = {"reason": "CONSENT_REQUIRED", "user": "alice"}


async def test_a_call_that_lacks_a_user_s_credential_is_refused_unsent_and_goes_once_with_it(
    there: There,
) -> None:
    token = await granted(there, "alice")
    assert await why(there, token, "c1") == NEEDED
    assert there.server.seen == []
    await owned(there, "hers", "alice")
    reply = await there.call(token, "c1")
    assert reply.json()["result"]["content"] == [{"type": "text", "text": "5"}]
    assert (await why(there, token, "c1"))["reason"] == "CALL_SENT"
    assert len(there.server.added) == 1
    assert there.domain.service.door.parts.audit.flush()
    told = [each for each in lines(there.domain.files.audit) if each.get("call") == "c1"]
    assert [each["reason"] for each in told if each["what"] == "denied"] == ["CONSENT_REQUIRED"]
    assert {each["user"] for each in told if each["what"] != "outcome"} == {"alice"}


async def test_a_user_s_credential_is_of_no_use_to_a_session_of_another_user_or_of_nobody(
    there: There,
) -> None:
    await owned(there, "hers", "alice")
    assert await why(there, await granted(there, "bob"), "c1") == NEEDED | {"user": "bob"}
    nobody = await why(there, await granted(there, "", session="s2"), "c2")
    assert nobody["reason"] == "CREDENTIAL_UNAVAILABLE"
    assert there.server.seen == []
    shared = await granted(there, "alice", session="s3", per_user=False)
    assert (await why(there, shared, "c3"))["reason"] == "AUTHENTICATION_FAILED"
    assert {seen.get("authorization") for seen in there.server.seen} == {None}
    assert there.server.added == []
    assert there.domain.service.door.parts.audit.flush()
    told = lines(there.domain.files.audit)
    (denied,) = [e for e in told if e["what"] == "denied" and e.get("call") == "c1"]
    assert (denied["user"], denied["session"]) == ("bob", "s1")


async def test_a_brain_that_names_the_credential_of_another_user_gets_no_use_of_it(
    there: There,
) -> None:
    await owned(there, "hers", "alice")
    server = {"url": f"https://{HOST}:{there.port}/mcp", "allow": ["*"], "per_user": True}
    token = await there.vault.give(
        there.vault.ticket(user="bob"),
        policy=json.dumps({"mcp": {"a": server}}).encode(),
        credential_ids=["hers"],
    )
    assert await why(there, token, "c1") == NEEDED | {"user": "bob"}
    assert there.server.seen == []


async def test_a_shared_credential_does_not_stand_in_for_a_user_s(there: There) -> None:
    await owned(there, "everybodys", None)
    assert await why(there, await granted(there, "alice"), "c1") == NEEDED
    assert there.server.seen == []


async def test_a_call_that_was_sent_is_never_said_to_wait_for_consent(there: There) -> None:
    await owned(there, "hers", "alice")
    token = await granted(there, "alice")
    await there.call(token, "c1")
    archive = pb.ArchiveCredentialRequest(credential_id="hers")
    await (await there.domain.vault()).ArchiveCredential(archive, timeout=10)
    assert await why(there, token, "c1") == {"reason": "CALL_SENT", "outcome": "ok"}
    assert await why(there, token, "c2") == NEEDED


async def test_a_user_whose_credential_the_server_takes_no_more_is_asked_for_another(
    there: There,
) -> None:
    await owned(there, "hers", "alice", "tok-not-the-right-one")
    token = await granted(there, "alice")
    assert await why(there, token, "c1") == NEEDED
    assert there.server.added == []
    archive = pb.ArchiveCredentialRequest(credential_id="hers")
    await (await there.domain.vault()).ArchiveCredential(archive, timeout=10)
    await owned(there, "hers-anew", "alice")
    assert "result" in (await there.call(token, "c1")).json()


async def test_an_owner_that_was_changed_in_the_database_opens_nothing(there: There) -> None:
    await owned(there, "hers", "alice")
    with sqlite3.connect(there.domain.files.store) as database:
        change = "replace(CAST(policy AS TEXT), 'alice', 'mallo')"
        database.execute(f"UPDATE credentials SET policy = CAST({change} AS BLOB)")
    told = await why(there, await granted(there, "mallo"), "c1")
    assert told == {"reason": "CREDENTIAL_UNAVAILABLE", "credential": "CREDENTIAL_CORRUPT"}
    assert there.server.seen == []


async def test_each_user_has_one_credential_of_a_server_in_a_vault(there: There) -> None:
    await owned(there, "hers", "alice")
    await owned(there, "his", "bob")
    policy = {"mcp_server_url": f"https://{HOST}:{there.port}/mcp", "owner": "alice"}
    again = bearer("second", policy=json.dumps(policy).encode())
    assert await refused(await there.domain.vault(), "CreateCredential", again) is Reason.ID_REUSED


@pytest.mark.parametrize("owner", ["two words", "", "x" * 129, 7, "ä"])
async def test_an_owner_is_a_word_of_visible_ascii(there: There, owner: object) -> None:
    policy = {"mcp_server_url": "https://mcp.a.com/mcp", "owner": owner}
    said = bearer("x", policy=json.dumps(policy).encode())
    stub = await there.domain.vault()
    assert await refused(stub, "CreateCredential", said) is Reason.INVALID_FIELD


@pytest.mark.parametrize("before", [None, "alice"])
async def test_whose_a_credential_is_cannot_be_changed(there: There, before: str | None) -> None:
    await owned(there, "c1", before)
    policy = json.dumps({"owner": "bob"}).encode()
    said = pb.UpdateCredentialRequest(credential_id="c1", expected_generation=1, policy=policy)
    stub = await there.domain.vault()
    assert await refused(stub, "UpdateCredential", said) is Reason.INVALID_FIELD
