"""Grants over real mutual TLS, with tickets that a real sessiond's key signed."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from carpal.client import rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Identity, Role
from carpal.signed import sign
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import types_pb2
from carpal.v1 import vault_pb2 as pb
from tests.trust import Trust, trust
from tests.vault.audit.desk import lines
from tests.vault.credentials.test_rpc import bearer, create
from vault.authority.ca import Claims
from vault.grants.grant import Grant, Terms
from vault.grants.grants import FAILURES, Grants
from vault.grants.ticket import Driver

TIMEOUT = 10
POLICY = b'{"mcp": {"a": {"url": "https://mcp.a.com/mcp", "allow": ["*"]}}}'


class Vault:
    """A vault with a credential and two brains."""

    def __init__(self, domain: Trust) -> None:
        self.domain = domain
        self.files = {
            "brain-1": domain.identity(Role.BRAIN, "brain-1"),
            "brain-2": domain.issue(Claims(Role.BRAIN, "brain-2")),
        }

    def who(self, brain: str = "brain-1") -> Identity:
        return self.files[brain].identity()

    def ticket(
        self,
        epoch: int = 1,
        brain: str = "brain-1",
        *,
        age: float = 0.0,
        signer: IdentityFiles | None = None,
        session: str = "s1",
        user: str = "",
    ) -> types_pb2.SignedBytes:
        told = types_pb2.LeaseTicket(
            resource=f"session/{session}", epoch=epoch, holder=self.who(brain).uri,
            workspace="default", user=user,
        )  # fmt: skip
        told.expires.FromDatetime(datetime.now(UTC) + timedelta(seconds=10 - age))
        own = (signer or self.domain.identity(Role.SESSIOND, "sessiond")).load()
        return sign(own.key, own.chain, told.SerializeToString())

    async def give(
        self, ticket: types_pb2.SignedBytes, brain: str = "brain-1", **changes: Any
    ) -> str:
        stub = await self.domain.vault(self.files[brain])
        values: dict[str, Any] = {
            "ticket": ticket,
            "grant_id": "g1",
            "credential_ids": ["c1"],
            "bound_to": self.who(brain).uri,
            "audience": "mcp",
            "policy": POLICY,
        }
        with rpc_errors("the vault"):
            answer = await stub.GrantSession(
                pb.GrantSessionRequest(**{**values, **changes}), timeout=TIMEOUT
            )
        assert answer.expires_in.seconds == 900
        return str(answer.grant)

    async def not_given(self, *args: Any, **named: Any) -> Reason:
        with pytest.raises(CarpalError) as caught:
            await self.give(*args, **named)
        return caught.value.reason

    async def check(self, token: str, brain: str = "brain-1", audience: str = "mcp") -> Grant:
        return await self.domain.service.grants.check(token, self.who(brain), audience)

    async def refused(self, token: str, brain: str = "brain-1", audience: str = "mcp") -> str:
        """Why, as the audit has it; the caller is told the same whatever it is."""
        with pytest.raises(CarpalError) as caught:
            await self.check(token, brain, audience)
        assert (caught.value.reason, caught.value.message, caught.value.fields) == (
            Reason.GRANT_REFUSED, "the grant is refused", {},
        )  # fmt: skip
        assert self.domain.service.door.parts.audit.flush()
        return str(lines(self.domain.files.audit)[-1]["reason"])


@pytest.fixture
async def vault(tmp_path: Path) -> AsyncIterator[Vault]:
    async with trust(tmp_path / "state") as domain:
        await create(await domain.vault(), bearer())
        yield Vault(domain)


async def test_a_ticket_buys_a_grant_and_the_same_again_is_the_same(vault: Vault) -> None:
    token = await vault.give(vault.ticket())
    assert token.startswith("avs_mcp_")
    grant = await vault.check(token)
    assert (grant.session, grant.workspace, grant.credentials) == ("s1", "default", ("c1",))
    assert list(grant.servers) == ["a"]
    assert await vault.give(vault.ticket()) == token
    assert await vault.not_given(vault.ticket(), policy=b"{}") is Reason.ID_REUSED
    secret = token.rpartition(".")[2].encode()
    for path in vault.domain.files.state.rglob("*"):
        if path.is_file():
            assert secret not in path.read_bytes(), path


async def test_a_ticket_that_is_not_sessionds_not_ones_own_or_over_buys_nothing(
    vault: Vault,
) -> None:
    forged = vault.ticket(signer=vault.files["brain-1"])
    assert await vault.not_given(forged) is Reason.TICKET_REFUSED
    broken = vault.ticket()
    broken.payload += b"\x10\x09"
    assert await vault.not_given(broken) is Reason.TICKET_REFUSED
    assert await vault.not_given(vault.ticket(), brain="brain-2") is Reason.TICKET_REFUSED
    assert await vault.not_given(vault.ticket(age=11)) is Reason.TICKET_REFUSED
    assert await vault.not_given(types_pb2.SignedBytes()) is Reason.TICKET_REFUSED


async def test_a_ticket_that_was_exchanged_in_time_renews_what_it_bought(vault: Vault) -> None:
    token = await vault.give(vault.ticket())
    assert await vault.give(vault.ticket(age=600)) == token
    assert await vault.not_given(vault.ticket(2, age=600)) is Reason.TICKET_REFUSED


async def test_a_grant_dies_at_takeover_and_the_driver_before_gets_no_other(
    vault: Vault,
) -> None:
    first = await vault.give(vault.ticket(1))
    held = await vault.check(first)
    second = await vault.give(vault.ticket(2, "brain-2"), "brain-2")
    assert held.revoked.is_set()
    assert await vault.refused(first) == "unknown"
    assert await vault.not_given(vault.ticket(1)) is Reason.STALE_EPOCH
    assert (await vault.check(second, "brain-2")).session == "s1"


async def test_a_takeover_counts_even_if_the_new_driver_gets_nothing(vault: Vault) -> None:
    held = await vault.check(await vault.give(vault.ticket(1)))
    missing = {"credential_ids": ["none"]}
    reason = await vault.not_given(vault.ticket(2, "brain-2"), "brain-2", **missing)
    assert reason is Reason.CREDENTIAL_NOT_FOUND
    assert held.revoked.is_set()


async def test_v12_a_grant_of_one_brain_is_useless_to_another(vault: Vault) -> None:
    token = await vault.give(vault.ticket())
    assert await vault.refused(token, "brain-2") == "cnf_mismatch"
    assert await vault.not_given(vault.ticket(), bound_to=vault.who("brain-2").uri) is (
        Reason.INVALID_FIELD
    )


async def test_v11_whatever_is_wrong_with_a_token_its_caller_is_told_the_same(
    vault: Vault,
) -> None:
    token = await vault.give(vault.ticket())
    assert await vault.refused(token, audience="egress") == "audience_mismatch"
    assert await vault.refused("") == "malformed"
    assert await vault.refused(token[:-1]) == "malformed"
    assert await vault.refused(token.replace("_mcp_", "_git_")) == "audience_mismatch"
    assert await vault.refused(f"avs_mcp_{'a' * 16}.{'A' * 43}") == "unknown"
    assert await vault.refused(token[:-3] + "AAA") == "unknown"
    assert vault.domain.service.grants.revoke("s1") == 1
    assert await vault.refused(token) == "unknown"


async def test_a_grant_that_was_revoked_never_comes_back(vault: Vault) -> None:
    token = await vault.give(vault.ticket())
    brain = await vault.domain.vault(vault.files["brain-1"])
    await brain.RevokeSession(pb.RevokeSessionRequest(ticket=vault.ticket()), timeout=TIMEOUT)
    assert await vault.refused(token) == "unknown"
    assert await vault.give(vault.ticket()) != token


async def test_an_operator_ends_the_grants_of_its_own_workspace_alone(vault: Vault) -> None:
    token = await vault.give(vault.ticket())
    stranger = await vault.domain.vault(vault.domain.issue(Claims(Role.OPERATOR, "eve", "evil")))
    await stranger.RevokeSession(pb.RevokeSessionRequest(session_id="s1"), timeout=TIMEOUT)
    grant = await vault.check(token)
    operator = await vault.domain.vault()
    await operator.RevokeSession(pb.RevokeSessionRequest(session_id="s1"), timeout=TIMEOUT)
    assert grant.revoked.is_set()


async def test_a_hands_grant_is_its_daemons_and_survives_takeover(vault: Vault) -> None:
    daemon = vault.domain.issue(Claims(Role.DAEMON, "box", "default")).identity()
    more: dict[str, Any] = {
        "grant_id": "h1",
        "audience": "egress",
        "bound_to": daemon.uri,
        "hand_id": "hand-1",
    }
    more |= {"policy": b""}
    token = await vault.give(vault.ticket(1), **more)
    grants = vault.domain.service.grants
    grant = await grants.check(token, daemon, "egress")
    assert grant.terms.hand == "hand-1"
    assert await vault.give(vault.ticket(2, "brain-2"), "brain-2", **more) == token
    assert not grant.revoked.is_set()
    assert await vault.refused(token, audience="egress") == "cnf_mismatch"
    assert await vault.not_given(
        vault.ticket(2, "brain-2"), "brain-2", **more | {"hand_id": ""}
    ) is (Reason.INVALID_FIELD)


async def test_ending_grants_of_an_audience_leaves_the_others(vault: Vault) -> None:
    daemon = vault.domain.issue(Claims(Role.DAEMON, "box", "default")).identity()
    of_hand = {"grant_id": "h1", "audience": "egress", "bound_to": daemon.uri, "hand_id": "hand-1"}
    hands = await vault.give(vault.ticket(), **of_hand, policy=b"")
    held = await vault.check(await vault.give(vault.ticket()))
    stub = await vault.domain.vault(vault.files["brain-1"])
    ask = pb.RevokeSessionRequest(ticket=vault.ticket(), audience="mcp")
    await stub.RevokeSession(ask, timeout=TIMEOUT)
    assert held.revoked.is_set()
    assert (await vault.domain.service.grants.check(hands, daemon, "egress")).name == "h1"
    ask.audience = "all"
    with pytest.raises(CarpalError) as caught, rpc_errors("the vault"):
        await stub.RevokeSession(ask, timeout=TIMEOUT)
    assert caught.value.reason is Reason.INVALID_FIELD


@pytest.mark.parametrize("vaults", [["Not A Name"], ["v"] * 51])
async def test_vaults_of_a_grant_are_names_and_not_too_many(
    vault: Vault, vaults: list[str]
) -> None:
    given = await vault.not_given(vault.ticket(), vault_ids=vaults)
    assert given is Reason.INVALID_FIELD


async def test_a_grant_names_only_credentials_of_the_sessions_workspace(vault: Vault) -> None:
    named = {"credential_ids": ["c1", "c2"]}
    assert await vault.not_given(vault.ticket(), **named) is Reason.CREDENTIAL_NOT_FOUND


TERMS = Terms("s1", "default", "mcp", "spiffe://t/brain/b", "", (), POLICY, 1)
DRIVER = Driver("s1", "default", 1, "spiffe://t/brain/b", fresh=True)


def caller(name: str = "b") -> Identity:
    now = datetime.now(UTC)
    return Identity("t", Role.BRAIN, name, "", "", now, now + timedelta(hours=1), 1)


async def test_a_grant_that_nobody_renews_ends_by_itself() -> None:
    grants = Grants(lambda *_, **__: None, life=0.05)
    grant, token = grants.give(DRIVER, "g1", TERMS)
    await grant.revoked.wait()
    with pytest.raises(CarpalError):
        await grants.check(token, caller(), "mcp")
    assert len(grants) == 0


async def test_a_peer_that_guesses_is_refused_and_floods_no_audit() -> None:
    told: list[str] = []
    grants = Grants(lambda _, reason, **__: told.append(reason))
    _, token = grants.give(DRIVER, "g1", TERMS)
    for _ in range(FAILURES + 50):
        with pytest.raises(CarpalError):
            await grants.check("avs_mcp_guess", caller(), "mcp")
    with pytest.raises(CarpalError):
        await grants.check(token, caller(), "mcp")
    assert told == ["malformed"] * FAILURES + ["too_many_failures"]
    with pytest.raises(CarpalError):
        await grants.check(token, caller("other"), "mcp")
    assert told[-1] == "cnf_mismatch"


async def test_v11_refusals_take_the_same_time_and_a_lookup_is_quick_among_a_thousand() -> None:
    grants = Grants(lambda *_, **__: None)
    tokens = []
    for number in range(1000):
        session = f"s{number}"
        driver = Driver(session, "default", 1, DRIVER.uri, fresh=True)
        terms = Terms(session, "default", "mcp", DRIVER.uri, "", (), POLICY, 1)
        tokens.append(grants.give(driver, "g1", terms)[1])
    unknown = f"avs_mcp_{'a' * 16}.{'A' * 43}"
    bad = {"unknown": unknown, "malformed": "x" * len(unknown), "another's": tokens[7]}
    taken: dict[str, list[float]] = {name: [] for name in bad}
    for number in range(400):
        for name, token in bad.items():
            began = time.perf_counter()
            with pytest.raises(CarpalError):
                await grants.check(token, caller(f"other-{number}"), "mcp")
            taken[name].append(time.perf_counter() - began)
    middle = {name: sorted(each)[len(each) // 2] for name, each in taken.items()}
    assert max(middle.values()) < 2 * min(middle.values()) + 50e-6, middle
    began = time.perf_counter()
    for token in tokens:
        await grants.check(token, caller(), "mcp")
    per = (time.perf_counter() - began) / len(tokens)
    assert per < 1e-3
    grants.close()
