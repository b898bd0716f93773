"""The systemd unit of the daemon, and what a stricter one adds: pure text, its reasons in it."""

import math
from dataclasses import dataclass
from pathlib import Path

from hands.systemd import noted

NAME = "carpal-hand.service"
STATE = Path("/var/lib/carpal")
"""The state folder that systemd makes itself, as StateDirectory."""
TOKEN = Path("/etc/carpal/token")
"""Where a token may lie for the first start."""
_HOMES = ("/home", "/root", "/run/user")
_START_LIMIT = 300
"""Seconds to take up the hands that an earlier daemon left, and to enrol."""
_STOP_MORE = 30
"""Seconds to end beyond `stop_wait`."""
SUBGROUPS = 254
"""The version of systemd from which on a daemon may be put into a group below its unit's."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What differs from machine to machine."""

    command: tuple[str, ...]
    """What runs `carpal`."""
    state: Path = STATE
    config: Path | None = None
    """The settings file, where it is not /etc/carpal/hand.toml."""
    user: str = ""
    """The daemon's user; empty for root."""
    stop_wait: float = 10.0
    """Seconds, as in the settings."""
    systemd: int = SUBGROUPS
    """Its version."""


def text(unit: Unit) -> str:
    """The unit's file."""
    return _UNIT.format(
        command=" ".join(map(_quoted, _command(unit))),
        user=f"User={unit.user}\n" if unit.user else "",
        state=_STATE_DIRECTORY if unit.state == STATE else "",
        groups=_GROUPS if unit.systemd >= SUBGROUPS else _NO_GROUPS,
        start=_START_LIMIT,
        stop=math.ceil(unit.stop_wait) + _STOP_MORE,
        token=TOKEN,
        noted=noted.section(unit.state, unit.config),
    )


def strict(unit: Unit) -> str:
    """The drop-in `strict.conf`."""
    seen = [Path(unit.command[0]), unit.state, *([unit.config] if unit.config else [])]
    at_home = any(path.is_relative_to(home) for path in seen for home in _HOMES)
    home = "read-only" if at_home else "yes"
    return _STRICT.format(state=_quoted(str(unit.state)), home=home)


def has_groups(unit: Unit) -> bool:
    """Whether hands may have limits of memory, processes and processors."""
    return unit.systemd >= SUBGROUPS


def _command(unit: Unit) -> list[str]:
    given = ["--config", str(unit.config)] if unit.config else []
    return [*unit.command, "hand", "run", "--state-dir", str(unit.state), *given]


def _quoted(word: str) -> str:
    """One word of ExecStart, as systemd reads it: no specifier, no variable."""
    plain = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{plain}"' if any(char in plain for char in " \t\"'\\;") or not plain else plain


_UNIT = """\
# Written by `carpal hand install`, which overwrites it. What is yours goes into a drop-in:
# `systemctl edit carpal-hand`.
[Unit]
Description=Carpal hand daemon
Documentation=man:systemd.service(5)
Wants=network-online.target
After=network-online.target
# A brain may be away for days: it is started again for ever.
StartLimitIntervalSec=0

[Service]
# It says that it is ready once its settings, identity and hands are there; not when a brain
# answers, or a machine would not boot while one is away.
Type=notify
ExecStart={command}
# Log levels, certificates, the owner's policy.
ExecReload=/bin/kill -HUP $MAINPID
{user}TimeoutStartSec={start}
# Calls that run get `stop_wait` seconds to end; then it says goodbye.
TimeoutStopSec={stop}
# Fed by the event loop that serves hands: one that stands still is restarted, its hands go on.
WatchdogSec=30

Restart=always
RestartSec=5
# 2: settings or files are wrong; 4: the token was refused; 78: this machine is revoked. None of
# them gets better by trying.
RestartPreventExitStatus=2 4 78

# The daemon alone is ended. Hands have supervisors of their own, which go on with their calls and
# are taken up by the next daemon: an update interrupts no work. To end them too:
# `carpal hand drain --wait` before, or `carpal hand stop --all`.
KillMode=process
{groups}
{state}# Holds hand.sock, a way to the local socket, and nothing of a hand: it goes with the daemon.
RuntimeDirectory=carpal
RuntimeDirectoryMode=0700
UMask=0077

# A token that lies there enrols the machine at the first start, read by systemd as root, whoever
# the daemon is; without one it must be enrolled already. The second line is for when there is none.
LoadCredential=token:{token}
SetCredential=token:none

# Else gRPC's own threads break the processes that the daemon starts.
Environment=GRPC_ENABLE_FORK_SUPPORT=0

[Install]
WantedBy=multi-user.target

# For the other commands of `carpal hand`, which go by the same.
{noted}"""

_STATE_DIRECTORY = """\
# Identity, journal and hands.
StateDirectory=carpal
StateDirectoryMode=0700
"""

_GROUPS = """\
# Control groups for the limits of hands, below its own. The daemon is in one of them: where the
# unit's own group has groups with limits, the kernel lets no process into it, nor a restart.
Delegate=yes
DelegateSubgroup=carpald
"""

_NO_GROUPS = """\
# This systemd (before 254) cannot start a daemon in a group below its unit's. Where hands that
# have limits are still there, it could not be restarted: so none get any, and a hand that asks
# for a limit of memory, processes or processors is refused.
Environment=CARPAL_CGROUPS=off
"""

_STRICT = """\
# Written by `carpal hand install --strict`. What is said here holds for the daemon and for ALL THAT
# RUNS IN ITS HANDS, so read what each line takes from them. Nothing of it replaces the sandbox that
# process hands have anyway.
[Service]
# Hands: sudo, su, ping with a setuid bit and newuidmap fail; rootless Podman does not start.
NoNewPrivileges=yes
# Hands without a sandbox can write only to their own folder and /tmp; a bound workspace
# needs a ReadWritePaths= of its own, in another drop-in. And each start of the daemon has its own
# view of what is mounted: a hand with `disk_bytes`, whose disk the daemon before mounted, does not
# outlive that one. Its calls are interrupted by a restart.
ProtectSystem=strict
ReadWritePaths={state}
# A workspace bound below /home or /root cannot be written, and with `yes` it is empty: for one,
# take this line out. `read-only` stands where Carpal itself, or its state, is there.
ProtectHome={home}
# The daemon's /tmp is its own. After a restart the new daemon has another one than hands that
# went on: no hand type of ours keeps anything there.
PrivateTmp=yes
# No hand can load a module, be scheduled in real time, or run as another kind of Linux (setarch).
ProtectKernelModules=yes
RestrictRealtime=yes
LockPersonality=yes
# Sockets of other kinds (Bluetooth, CAN, packets as tcpdump wants them) are refused.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
# 32-bit programs do not run.
SystemCallArchitectures=native
# Not here, on purpose: RestrictNamespaces, ProtectProc, ProtectHostname, ProtectKernelTunables and
# ProtectControlGroups would take the sandbox and the limits away from hands; PrivateDevices and
# ProtectClock take /dev/kvm, which emulators want; MemoryDenyWriteExecute breaks Node.js, Java and
# browsers; RestrictSUIDSGID refuses openat2(), without which a newer bubblewrap (of Debian 13)
# makes no sandbox, and what it is against has no power under NoNewPrivileges.
"""
