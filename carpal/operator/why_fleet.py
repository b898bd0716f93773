"""What the fleet says of the hands a session has: are their daemons there, and were they. Pure."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from carpal.operator.why_words import Finding, plain, when
from carpal.v1 import orchestrator_pb2 as pb

NOTICED = timedelta(seconds=1)
"""A link that was down for no longer was a change of links: a renewal, a brain's stop.

Brains tell of links in whole seconds, each rounded down: two times that are one second apart
may be a moment apart, or nearly two seconds.
"""


def of_hands(
    hands: Mapping[str, str], fleet: Mapping[str, pb.DaemonInfo], begun: datetime, now: datetime
) -> list[Finding]:
    """Findings for the daemons of hands that are wanted: hand's name → daemon's.

    Links are looked at from `begun` on.
    """
    found: list[Finding] = []
    for daemon in sorted(set(hands.values())):
        names = ", ".join(sorted(plain(hand) for hand, its in hands.items() if its == daemon))
        if daemon not in fleet:
            found.append(
                Finding(
                    "daemon_unknown",
                    f"No live brain knows daemon {plain(daemon)}, which has hand {names}: it was "
                    "not linked since they started.",
                    layer="daemon",
                    next=f"bring its machine back; else the hand counts as lost after its orphan "
                    f"deadline, and `carpal fleet token --name {plain(daemon)}` lets another in",
                    wrong=True,
                )
            )
            continue
        found += _of_daemon(fleet[daemon], names, begun, now)
    return found


def _of_daemon(
    info: pb.DaemonInfo, names: str, begun: datetime, now: datetime
) -> Iterable[Finding]:
    daemon = plain(info.daemon_id)
    has = f"daemon {daemon}, which has hand {names},"
    down = _since(info)
    for since, until, why in _gaps(info, begun):
        text = f"The link of daemon {daemon} was down from {when(since)} to {when(until)} ({why})."
        yield Finding("link_was_down", text, "link", since, until)
    if info.revoked:
        yield Finding(
            "daemon_revoked",
            f"The certificate of {has} is revoked, so it can link no more.",
            "vault",
            down,
            next=f"enrol it anew with a token of `carpal fleet token --name {daemon}`, if that was "
            "not meant",
            wrong=True,
        )
    elif info.state == "quarantined":
        yield Finding(
            "daemon_quarantined",
            f"An operator quarantined {has} so no brain lets it link.",
            "daemon",
            down,
            next=f"`carpal fleet show {daemon}` says why; `carpal fleet quarantine {daemon} "
            "--lift` lets it link again",
            wrong=True,
        )
    elif info.state == "gone":
        last = f"since {when(down)}" if down else "for longer than any brain knows"
        why = f" ({plain(info.links[0].why)})" if info.links else ""
        yield Finding(
            "link_down",
            f"The link of {has} is down {last}{why}. What runs there goes on until its orphan "
            "deadline.",
            "link",
            down,
            next="look on that machine with `carpal hand status` and `carpal hand doctor`",
            wrong=True,
        )
    elif info.state == "draining":
        text = f"Daemon {daemon} is drained: hand {names} goes on there, and no new one is made."
        yield Finding("daemon_draining", text)
    if info.quarantine and info.state != "quarantined":
        yield Finding(
            "daemon_cloned",
            f"A second machine came as daemon {daemon}, and is refused; the first one serves.",
            "daemon",
            next=f"see docs/how-to/revoke-and-rotate.md, then `carpal fleet quarantine {daemon} "
            "--lift`",
        )
    if info.HasField("supported_until"):
        until = info.supported_until.ToDatetime(tzinfo=UTC)
        if until < now:
            text = f"Daemon {daemon} was to be served until {until:%F}, twelve months from release."
            yield Finding("daemon_old", text, "daemon", next=f"upgrade it: it is {daemon}'s owner's"
                          " to do")  # fmt: skip


def _since(info: pb.DaemonInfo) -> datetime | None:
    return info.last_seen.ToDatetime(tzinfo=UTC) if info.HasField("last_seen") else None


def _gaps(info: pb.DaemonInfo, begun: datetime) -> list[tuple[datetime, datetime, str]]:
    """Times without a link that are over, the oldest first, as far as they are known."""
    gaps: list[tuple[datetime, datetime, str]] = []
    came = info.linked_since.ToDatetime(tzinfo=UTC) if info.HasField("linked_since") else None
    for link in info.links:
        if link.HasField("ended") and came is not None:
            ended = link.ended.ToDatetime(tzinfo=UTC)
            if came - ended > NOTICED and came > begun:
                gaps.append((ended, came, plain(link.why)))
        came = link.began.ToDatetime(tzinfo=UTC)
    return gaps[::-1]
