"""`carpal fleet` lists daemons at any live brain, and makes tokens whose secret only goes in."""

import json
from datetime import timedelta
from hmac import compare_digest

import pytest

from carpal.errors import BadInput
from carpal.operator.fleet import parse_ttl
from carpal.proof import parse_token
from carpal.v1 import orchestrator_pb2
from tests.command import Command
from tests.operator.fakes import House


async def test_ls_asks_a_live_brain_and_passes_over_one_that_just_died(
    house: House, carpal: Command
) -> None:
    daemon = orchestrator_pb2.DaemonInfo(
        daemon_id="box", state="connected", brain="brain-2", types=["process"], labels={"os": "l"}
    )
    daemon.capacity.hands = 3
    daemon.certificate_expires.FromSeconds(1_800_000_000)
    house.brain.daemons = [daemon]
    async with house.serve_brain("brain-2") as server:
        house.sessiond.lease("brain/brain-1", "127.0.0.1:1")
        house.sessiond.lease("brain/brain-2", server.address)
        ended = await carpal("fleet", "ls", "--json")
        people = await carpal("fleet", "ls")
    row = json.loads(ended.stdout)
    assert row["daemon_id"] == "box"
    assert (row["state"], row["brain"], row["types"]) == ("connected", "brain-2", ["process"])
    assert (row["hands"], row["labels"]) == (3, {"os": "l"})
    assert row["certificate_expires"] == "2027-01-15T08:00:00.000Z"
    assert people.stdout.startswith("box ")


async def test_ls_without_a_live_brain_says_so(house: House, carpal: Command) -> None:
    house.sessiond.lease("brain/brain-1", "127.0.0.1:1")
    house.sessiond.expire("brain/brain-1")
    ended = await carpal("fleet", "ls")
    assert ended.code == 3
    assert "no brain is live" in ended.stderr


async def test_a_daemon_is_drained_with_a_reason_and_lifted_again(
    house: House, carpal: Command
) -> None:
    async with house.serve_brain() as server:
        house.sessiond.lease("brain/brain-1", server.address)
        drained = await carpal("fleet", "drain", "box", "--reason", "new disk", "--json")
        lifted = await carpal("fleet", "drain", "box", "--lift")
    assert json.loads(drained.stdout)["state"] == "draining"
    assert lifted.stdout.startswith("box ")
    assert [(each.daemon_id, each.reason, each.lift) for each in house.brain.drained] == [
        ("box", "new disk", False),
        ("box", "", True),
    ]


async def test_a_daemon_is_revoked_by_its_whole_name_and_its_way_back_is_said(
    house: House, carpal: Command
) -> None:
    async with house.serve_vault():
        ended = await carpal("fleet", "revoke", "box", "--reason", "sold", "--json")
    assert json.loads(ended.stdout) == {"revoked": "spiffe://carpal.internal/daemon/box"}
    assert "carpal fleet token --name box" in ended.stderr
    (asked,) = house.vault.revoked
    assert (asked.identity, asked.reason) == ("spiffe://carpal.internal/daemon/box", "sold")


async def test_a_token_is_one_line_and_the_vault_has_its_secret(
    house: House, carpal: Command
) -> None:
    house.sessiond.lease("brain/brain-1", "127.0.0.1:1", enroll="10.0.0.1:7000")
    async with house.serve_vault():
        ended = await carpal("fleet", "token", "--name", "box", "--pool", "gpu", "--ttl", "2h")
    assert ended.code == 0
    token = parse_token(ended.stdout)
    assert token.address == "10.0.0.1:7000"
    (made,) = house.vault.tokens
    assert (made.token_id, made.name, made.pool) == (token.token_id, "box", "gpu")
    assert made.ttl.ToTimedelta() == timedelta(hours=2)
    assert compare_digest(made.secret, token.secret)
    assert "carpal hand enroll --token-file -, and paste it there" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout.strip() not in ended.stderr


async def test_a_token_for_a_name_that_is_taken_warns_in_one_line(
    house: House, carpal: Command
) -> None:
    house.vault.used = ["old"]
    house.brain.daemons = [
        orchestrator_pb2.DaemonInfo(daemon_id="box", state="connected", brain="brain-1")
    ]
    said = {}
    async with house.serve_vault(), house.serve_brain() as brain:
        house.sessiond.lease("brain/brain-1", brain.address, enroll="h:1")
        for name in ("box", "old", "new"):
            said[name] = (await carpal("fleet", "token", "--name", name)).stderr.splitlines()
    assert [len(lines) for lines in said.values()] == [2, 2, 1]
    assert said["box"][0].startswith("carpal: daemon 'box' is connected at brain-1; ")
    assert said["old"][0].startswith("carpal: a machine enrolled as 'old' before; ")


async def test_a_token_can_go_to_a_file_for_its_owners_eyes_only(
    house: House, carpal: Command
) -> None:
    out = house.state / "box.token"
    async with house.serve_vault():
        ended = await carpal(
            "fleet", "token", "--name", "box", "--enroll", "h:1", "--out", str(out)
        )  # fmt: skip
    assert (ended.code, ended.stdout) == (0, "")
    assert parse_token(out.read_text()).address == "h:1"
    assert out.stat().st_mode & 0o777 == 0o600


async def test_a_token_replaces_no_file_unless_it_is_told_to(house: House, carpal: Command) -> None:
    """It is refused before a token is made that nobody gets."""
    out = house.state / "box.token"
    out.write_text("another\n")
    make = ("fleet", "token", "--name", "box", "--enroll", "h:1", "--out", str(out))
    async with house.serve_vault():
        ended = await carpal(*make)
        assert (ended.code, "--force" in ended.stderr) == (2, True)
        assert (out.read_text(), list(house.vault.tokens)) == ("another\n", [])
        assert (await carpal(*make, "--force")).code == 0
    assert parse_token(out.read_text()).address == "h:1"


async def test_without_a_live_brain_a_token_needs_an_address(house: House, carpal: Command) -> None:
    async with house.serve_vault():
        ended = await carpal("fleet", "token", "--name", "box")
    assert ended.code == 3
    assert "--enroll" in ended.stderr
    assert not house.vault.tokens


async def test_without_a_vault_address_one_line_says_what_to_give(
    house: House, carpal: Command
) -> None:
    ended = await carpal("fleet", "token", "--name", "box", "--enroll", "h:1")
    assert ended.code == 2
    assert "--vault HOST:PORT" in ended.stderr


@pytest.mark.parametrize("text", ["", "1", "h", "1d", "30s", "25h", "-1h"])
def test_a_lifetime_outside_what_the_vault_takes_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_ttl(text)


def test_lifetimes_are_seconds_minutes_or_hours() -> None:
    assert parse_ttl("90s") == timedelta(seconds=90)
    assert parse_ttl("30m") == timedelta(minutes=30)
    assert parse_ttl("24h") == timedelta(hours=24)
