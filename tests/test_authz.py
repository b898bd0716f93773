"""The authorization table covers the contract, and denies what it does not name."""

import pytest

from carpal.authz import ANYONE, LISTENERS, METHODS, allowed, may_ask, open_to_anyone
from carpal.identity import Role
from tests.test_contract import FILES, comment_of

RPCS = {
    f"/{service.full_name}/{method.name}": file.DESCRIPTOR.name
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def test_every_rpc_has_a_row() -> None:
    assert set(RPCS) <= set(METHODS)


def test_no_row_names_an_rpc_that_does_not_exist() -> None:
    assert {m for m in METHODS if m.startswith("/carpal.")} == set(RPCS)


def test_what_has_no_row_is_denied_to_every_role() -> None:
    assert not any(allowed("/carpal.v1.Session/DropEverything", role) for role in Role)


def test_a_row_without_a_role_lets_nobody_in_on_any_port(monkeypatch: pytest.MonkeyPatch) -> None:
    method = "/carpal.v1.Session/GetSession"
    nobody = frozenset[Role]()
    # Whichever empty set it is: Python may keep one for all, as it did once.
    assert not isinstance(ANYONE, frozenset)
    for row in (nobody, nobody | nobody, frozenset(nobody)):
        monkeypatch.setitem(METHODS, method, row)
        assert not open_to_anyone(method)
        assert not any(allowed(method, role) for role in Role)


def test_what_is_open_to_anyone_is_enrolment_and_health_alone() -> None:
    assert {method for method in METHODS if open_to_anyone(method)} == {
        *(f"/carpal.v1.Enrollment/{name}" for name in ("Enroll", "Renew", "Diagnose", "Retire")),
        *(f"/grpc.health.v1.Health/{name}" for name in ("Check", "Watch")),
    }


def test_rows_agree_with_the_callers_named_in_the_contract() -> None:
    for method, file in RPCS.items():
        callers = next(
            line
            for line in comment_of(file, method.rpartition("/")[2]).splitlines()
            if line.startswith("Callers:")
        )
        row = METHODS[method]
        if row is ANYONE:
            assert "anyone" in callers, method
            continue
        for role in row:
            assert role in callers, f"{method} allows {role}, which its comment does not name"


def test_a_daemon_reaches_nothing_but_its_brain() -> None:
    reachable = {method for method in RPCS if allowed(method, Role.DAEMON)}
    assert reachable == {
        "/carpal.v1.Orchestrator/Connect",
        "/carpal.v1.Orchestrator/Attach",
        "/carpal.v1.Orchestrator/ReadBlob",
        "/carpal.v1.Orchestrator/WriteBlob",
    }


def test_an_http_listener_without_a_row_serves_nobody_and_no_row_is_empty() -> None:
    assert not any(may_ask("nobodys", role) for role in Role)
    assert all(LISTENERS.values())
    assert {role for role in Role if may_ask("mcp", role)} == {Role.BRAIN}
