"""The contract says of every RPC who may call it, what makes it idempotent, what can go wrong."""

import re
from pathlib import Path

import pytest

from carpal.status import SPECS, Reason
from carpal.v1 import (
    enrollment_pb2,
    hand_pb2,
    orchestrator_pb2,
    session_pb2,
    vault_pb2,
)

PROTO = Path(__file__).parent.parent / "proto" / "carpal" / "v1"
FILES = [session_pb2, hand_pb2, orchestrator_pb2, enrollment_pb2, vault_pb2]
METHODS = [
    (file.DESCRIPTOR.name, service.name, method.name)
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
CODES = {spec.code.name for spec in SPECS.values()}
ROW = re.compile(r"^  (?P<condition>.*?) → (?P<answer>.*?)(?: → (?P<action>.*))?$", re.MULTILINE)
NONE = "none beyond the common ones"


def comment_of(file: str, method: str) -> str:
    """The comment above an RPC, without its slashes."""
    text = (PROTO.parent.parent / file).read_text(encoding="utf-8")
    found = re.search(rf"((?:  //.*\n)+)  rpc {method}\(", text)
    assert found, f"{method} has no comment"
    return re.sub(r"^  // ?", "", found[1], flags=re.MULTILINE)


@pytest.mark.parametrize(("file", "service", "method"), METHODS)
def test_every_rpc_says_who_may_call_it_and_what_makes_it_idempotent(
    file: str, service: str, method: str
) -> None:
    comment = comment_of(file, method)
    assert re.search(r"^Callers: \w", comment, re.MULTILINE), f"{service}.{method}: Callers"
    assert re.search(r"^Idempotent: \w", comment, re.MULTILINE), f"{service}.{method}: Idempotent"


@pytest.mark.parametrize(("file", "service", "method"), METHODS)
def test_every_rpc_has_an_error_table_of_known_codes_and_reasons(
    file: str, service: str, method: str
) -> None:
    comment = comment_of(file, method)
    rows = list(ROW.finditer(comment))
    assert rows or NONE in comment, f"{service}.{method} has no error table"
    for row in rows:
        named = re.match(r"^([A-Z_]+) ([A-Z_]+)$", row["answer"])
        if named:
            assert named[2] in Reason.__members__, f"{service}.{method}: {named[2]}"
            assert named[1] in CODES, f"{service}.{method}: {named[1]}"
            assert row["action"], f"{service}.{method}: {named[2]} does not say what to do"


def test_every_reason_in_a_table_has_the_code_the_table_says() -> None:
    for path in sorted(PROTO.glob("*.proto")):
        for code, reason in re.findall(r"→ ([A-Z_]+) ([A-Z_]+) →", path.read_text("utf-8")):
            assert SPECS[Reason(reason)].code.name == code, f"{path.name}: {reason}"


def test_every_reason_says_what_to_do() -> None:
    assert set(SPECS) == set(Reason)
    assert all(spec.action for spec in SPECS.values())


def test_hand_proto_compiles_alone_with_well_known_types_only() -> None:
    imports = re.findall(
        r'^import "(.*)";', (PROTO / "hand.proto").read_text("utf-8"), re.MULTILINE
    )
    assert all(name.startswith("google/protobuf/") for name in imports)
