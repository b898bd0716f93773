"""Which system calls code in a hand may make: a filter in the kernel's own language.

Everything is allowed but what reaches beyond a hand or has been the way out of
a sandbox again and again: namespaces, mounts, other processes' memory, the
kernel's keys, modules and tracing, io_uring, sockets of families that no
network namespace holds. Calls of another architecture are refused whole.
Pure; by hand, so that a daemon needs no library for it.
"""

import errno
import platform
import struct
from collections.abc import Mapping
from typing import NamedTuple

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH = 0, 4
"""Where in what the filter sees the call's number and architecture are."""
_X32 = 0x40000000

_NAMESPACES = (
    0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
)
"""CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET."""
_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: those a network namespace holds. AF_VSOCK is not."""
_IOCTLS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX put words into a terminal's mouth."""
_SET_MM = 35
"""PR_SET_MM lets a process say that its environment is any memory: who reads it reads that."""


class Machine(NamedTuple):
    """An architecture, as the kernel audits it."""

    audit: int
    column: int
    """Of its numbers in the table below."""


MACHINES = {"x86_64": Machine(0xC000003E, 0), "aarch64": Machine(0xC00000B7, 1)}

DENIED: Mapping[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
}
"""Refused with EPERM: the numbers on x86-64 and on aarch64."""
NAMESPACING = {"unshare": (272, 97), "setns": (308, 268), "chroot": (161, 51)}
"""Refused too, unless a hand's program makes a sandbox of its own, as browsers do."""
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SOCKET, _SOCKETPAIR, _IOCTL = (41, 198), (53, 199), (16, 29)
_PRCTL = (157, 167)


def program(machine: str | None = None, *, namespaces: bool = False) -> bytes:
    """The filter, as `bwrap --seccomp` takes it; KeyError on a machine it is not written for.

    With `namespaces` what runs in the hand may make namespaces of its own.
    """
    audit, column = MACHINES[machine or platform.machine()]
    code = [
        *_step(_LOAD, _ARCH),
        *_step(_EQUAL, audit, 1, 0),
        *_refuse(errno.EPERM),
        *_step(_LOAD, _NUMBER),
    ]
    if column == 0:
        code += [*_step(_AT_LEAST, _X32, 0, 1), *_refuse(errno.EPERM)]
    denied = DENIED if namespaces else {**DENIED, **NAMESPACING}
    for numbers in denied.values():
        number = numbers[column]
        if number is not None:
            code += [*_step(_EQUAL, number, 0, 1), *_refuse(errno.EPERM)]
    if not namespaces:
        # Its flags are in memory, where no filter looks; libraries fall back to clone.
        code += [*_step(_EQUAL, _CLONE3[column], 0, 1), *_refuse(errno.ENOSYS)]
        code += _when(
            _CLONE[column],
            [*_argument(0), *_step(_ANY_BIT, _NAMESPACES, 0, 1), *_refuse(errno.EPERM)],
        )
    for number in (_SOCKET[column], _SOCKETPAIR[column]):
        known = [
            _step(_EQUAL, each, 1 + len(_FAMILIES) - at, 0) for at, each in enumerate(_FAMILIES, 1)
        ]
        code += _when(
            number,
            [*_argument(0), *(one for each in known for one in each), *_refuse(errno.EAFNOSUPPORT)],
        )
    for request in _IOCTLS:
        code += _when(
            _IOCTL[column], [*_argument(1), *_step(_EQUAL, request, 0, 1), *_refuse(errno.EPERM)]
        )
    code += _when(
        _PRCTL[column], [*_argument(0), *_step(_EQUAL, _SET_MM, 0, 1), *_refuse(errno.EPERM)]
    )
    code += _step(_RETURN, _ALLOW)
    return b"".join(code)


def _when(number: int, then: list[bytes]) -> list[bytes]:
    """`then` for that call, with the number loaded again behind it."""
    return [*_step(_EQUAL, number, 0, len(then)), *then, *_step(_LOAD, _NUMBER)]


def _argument(index: int) -> list[bytes]:
    return _step(_LOAD, 16 + 8 * index)  # its lower half: both machines are little-endian


def _refuse(number: int) -> list[bytes]:
    return _step(_RETURN, _ERRNO | number)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> list[bytes]:
    return [struct.pack("=HBBI", code, then, otherwise, value)]
