"""The filter of system calls, run as the kernel would, for both machines it is written for."""

import errno
import struct

import pytest

from hands.isolation import seccomp

ALLOW, REFUSE = 0x7FFF0000, 0x00050000
X86, ARM = (0xC000003E, 0), (0xC00000B7, 1)
BOTH = pytest.mark.parametrize(
    ("machine", "audit", "column"), [("x86_64", *X86), ("aarch64", *ARM)]
)


def judged(machine: str, audit: int, number: int, *arguments: int, **how: bool) -> int:
    """What the filter says of a call."""
    data = struct.pack("<iIQ6Q", number, audit, 0, *arguments, *[0] * (6 - len(arguments)))
    program = list(struct.iter_unpack("=HBBI", seccomp.program(machine, **how)))
    at, value = 0, 0
    while True:
        code, then, otherwise, k = program[at]
        at += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, k)
            case 0x15:
                at += then if value == k else otherwise
            case 0x35:
                at += then if value >= k else otherwise
            case 0x45:
                at += then if value & k else otherwise
            case 0x06:
                return int(k)


@BOTH
def test_what_is_denied_is_refused_and_all_else_allowed(
    machine: str, audit: int, column: int
) -> None:
    denied = {n[column] for n in (*seccomp.DENIED.values(), *seccomp.NAMESPACING.values())}
    special = {56, 435} if column == 0 else {220, 435}
    for number in range(600):
        said = judged(machine, audit, number)
        if number in denied:
            assert said == REFUSE | errno.EPERM, number
        elif number == 435:
            assert said == REFUSE | errno.ENOSYS
        elif number not in special | {41, 53, 198, 199}:
            assert said == ALLOW, number


@BOTH
def test_new_namespaces_are_refused_and_forks_are_not(
    machine: str, audit: int, column: int
) -> None:
    clone = (56, 220)[column]
    assert judged(machine, audit, clone, 17) == ALLOW
    assert judged(machine, audit, clone, 0x3D0F00) == ALLOW, "a thread"
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judged(machine, audit, clone, flag | 17) == REFUSE | errno.EPERM
        assert judged(machine, audit, clone, flag | 17, namespaces=True) == ALLOW
    assert judged(machine, audit, (272, 97)[column], namespaces=True) == ALLOW


@BOTH
def test_sockets_are_of_families_that_a_network_namespace_holds(
    machine: str, audit: int, column: int
) -> None:
    for call in ((41, 53), (198, 199))[column]:
        allowed = {n for n in range(64) if judged(machine, audit, call, n, 1, 0) == ALLOW}
        assert allowed == {1, 2, 10, 16}
        assert judged(machine, audit, call, 40) == REFUSE | errno.EAFNOSUPPORT


@BOTH
def test_nothing_is_typed_into_a_terminal(machine: str, audit: int, column: int) -> None:
    ioctl = (16, 29)[column]
    assert judged(machine, audit, ioctl, 0, 0x5412) == REFUSE | errno.EPERM
    assert judged(machine, audit, ioctl, 0, 0x5412 | 1 << 40) == REFUSE | errno.EPERM
    assert judged(machine, audit, ioctl, 0, 0x5413) == ALLOW


@BOTH
def test_no_process_says_that_its_environment_is_any_memory(
    machine: str, audit: int, column: int
) -> None:
    """Who looks for a hand's processes reads it."""
    prctl = (157, 167)[column]
    for how in ({}, {"namespaces": True}):
        assert judged(machine, audit, prctl, 35, 14, **how) == REFUSE | errno.EPERM
        assert judged(machine, audit, prctl, 35 | 1 << 40, 14, **how) == REFUSE | errno.EPERM
        for option in (1, 4, 15, 22, 38, 36, 40):
            assert judged(machine, audit, prctl, option, **how) == ALLOW


def test_calls_of_another_architecture_are_refused_whole() -> None:
    assert judged("x86_64", 0x40000003, 1) == REFUSE | errno.EPERM
    assert judged("x86_64", X86[0], 0x40000000 | 1) == REFUSE | errno.EPERM
    assert judged("aarch64", X86[0], 64) == REFUSE | errno.EPERM


def test_a_machine_it_is_not_written_for_is_said_to_be_none() -> None:
    with pytest.raises(KeyError):
        seccomp.program("riscv64")
