"""People in this daemon's hands: who may enter, whose calls wait meanwhile, and their end.

A tunnel belongs to its link: when that ends, so does it, and with it all that
the person started. The machine's owner has the last word on who enters.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext

from carpal.errors import CarpalError, invalid, refuse
from carpal.ids import check_id
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.contract import Entrance, Inside
from hands.inventory import Inventory
from hands.life.keeper import Keeper
from hands.owner.gate import Person
from hands.people import tunnel_options
from hands.people.tunnel_records import Record, Records

log = logging.getLogger(__name__)

TUNNELS = 64
"""At once, connections of forwarded ports among them: each has a stream on the link."""
CAPABILITY = "tunnel"
SCREEN = ("view", "control")
"""Kinds that need the capability of that name instead."""
_NAME_MAX = 1024
"""Characters of who a person is, and of what their session calls the hand: both are kept."""


class Tunnel:
    """One that is open."""

    def __init__(
        self, opening: pb.TunnelOpen, entrance: Entrance, keeper: Keeper, person: Person
    ) -> None:
        self.opening = opening
        self.person = person
        self.forbidden = asyncio.Event()
        """Set once the machine's owner allows it no more; `because` says so."""
        self.because = "its link or the person's command ended"
        """Why it is over, once it is."""
        self.in_bytes = self.out_bytes = 0
        """What the person sent, and got."""
        self._entrance = entrance
        self._keeper = keeper
        self.running: list[str] = []
        """Calls that had begun when it opened."""

    def forbid(self, because: str) -> None:
        """The person must leave now."""
        self.because = because
        self.forbidden.set()

    @property
    def shows(self) -> bool:
        """What comes out of it are pictures."""
        return self._entrance.kind == "view"

    @property
    def connects(self) -> bool:
        """It leads into the hand; a `forward` without a port only stands for its connections."""
        return self._entrance.kind != "forward" or "port" in self._entrance.options

    def enter(self) -> AbstractAsyncContextManager[Inside]:
        """The hand's end of it. Raises EnterFailed, MountFailed and HandLost."""
        return self._keeper.enter(self._entrance)


class Tunnels:
    """All that are open, and those that a log must be told of."""

    def __init__(self, inventory: Inventory, workspace: str) -> None:
        """`workspace` is the daemon's own."""
        self.records = Records(inventory.journal)
        self._gate = inventory.gate
        self._gate.changed.append(lambda _: self._narrow())
        self._hands = inventory
        self._workspace = workspace
        self._open: dict[str, Tunnel] = {}

    @contextmanager
    def opened(self, opening: pb.TunnelOpen) -> Iterator[Tunnel]:
        """Let a person in, or refuse them; at the end of the block they are out.

        From its beginning the hand's calls wait, if they take control.
        """
        keeper, entrance, person = self._checked(opening)
        tunnel_id = opening.tunnel_id
        about = {
            "tunnel": tunnel_id,
            "hand_id": opening.hand_id,
            "kind": opening.kind,
            "by": opening.operator,
            "took": opening.take,
        }
        if not opening.within:
            self._begin(opening)
            log.info("a person entered", extra=about)
        tunnel = self._open[tunnel_id] = Tunnel(opening, entrance, keeper, person)
        try:
            with keeper.held() if opening.take else nullcontext(keeper.running) as running:
                tunnel.running = running
                yield tunnel
        finally:
            del self._open[tunnel_id]
            if not opening.within:
                self.records.end(tunnel_id, tunnel.because)
                log.info("a person left", extra={**about, "because": tunnel.because})
            self._gate.note(
                "left",
                tunnel=tunnel_id,
                hand=opening.hand_id,
                because=tunnel.because,
                in_bytes=tunnel.in_bytes,
                out_bytes=tunnel.out_bytes,
            )

    def infos(self) -> list[pb.TunnelInfo]:
        """Those of which a log has not been told that they ended."""
        infos = [each.info() for each in self.records]
        for info in infos:
            info.because = self._gate.outward.text(info.because)  # the hand may have said it
        return infos

    def _narrow(self) -> None:
        """The owner changed their policy: who may not be in a hand any more must leave."""
        for tunnel in self._open.values():
            try:
                self._gate.check_person(tunnel.person)
            except CarpalError as error:
                log.info("a person must leave", extra={"tunnel": tunnel.person.tunnel_id})
                tunnel.forbid(f"the machine's owner ended it: {error.message}")

    def _begin(self, opening: pb.TunnelOpen) -> None:
        self.records.begin(
            Record(
                tunnel_id=opening.tunnel_id,
                session_id=opening.session_id,
                hand_id=opening.hand_id,
                hand=opening.hand,
                operator=opening.operator,
                kind=opening.kind,
                took=opening.take,
                opened=time.time(),
            )
        )

    def _checked(self, opening: pb.TunnelOpen) -> tuple[Keeper, Entrance, Person]:
        tunnel_id = check_id(opening.tunnel_id, "tunnel_id")
        hand_id = check_id(opening.hand_id, "hand_id")
        options = tunnel_options.read(opening.kind, opening.options)
        entrance = Entrance(tunnel_id, tunnel_options.kind_of(opening.kind), options)
        for name in ("operator", "hand"):
            if len(getattr(opening, name)) > _NAME_MAX:
                raise invalid(name, f"has more than {_NAME_MAX} characters")
        if opening.workspace != self._workspace:
            raise refuse(
                Reason.POLICY_FORBIDS,
                f"this daemon belongs to workspace {self._workspace!r}, not {opening.workspace!r}",
            )
        row = self._hands.journal.hand(hand_id)
        if (
            row is None
            or row.state not in ("live", "lost")
            or opening.session_id not in self._hands.journal.sessions_of(hand_id)
        ):
            why = f"no hand {hand_id!r} of this session here"
            raise refuse(Reason.HAND_NOT_FOUND, why, field="hand_id")
        keeper = self._hands.keepers.get(hand_id)
        if row.state == "lost" or keeper is None:
            why = f" ({row.reason})" if row.reason else ""
            raise refuse(Reason.HAND_GONE, f"hand {hand_id!r} is gone{why}", field="hand_id")
        kind = opening.kind
        needed = kind if kind in SCREEN else CAPABILITY
        if needed not in self._hands.types[row.type].describe().capabilities:
            how = f" by {kind}" if kind in SCREEN else ""
            raise refuse(Reason.NOT_BUILT, f"nobody can enter a {row.type} hand{how}")
        if kind in SCREEN and opening.take != (kind == "control"):
            raise invalid("take", "is what `control` does, and `view` does not")
        if tunnel_id in self._open or any(each.tunnel_id == tunnel_id for each in self.records):
            raise refuse(Reason.ID_REUSED, f"tunnel {tunnel_id!r} was there before")
        if opening.within or (opening.kind == "forward" and "port" in options):
            self._check_within(opening)
        if opening.take and keeper.taken:
            raise refuse(Reason.HAND_TAKEN, f"{self._in_control(hand_id)} of hand {hand_id!r}")
        self.records.check_room()
        if len(self._open) >= TUNNELS:
            raise refuse(
                Reason.AT_CAPACITY,
                f"{len(self._open)} tunnels are open on this daemon, as many as it holds",
                action="end one",
            )
        person = Person(
            operator=opening.operator,
            workspace=opening.workspace,
            hand_type=row.type,
            kind=opening.kind,
            take=opening.take,
            hand_id=hand_id,
            session_id=opening.session_id,
            tunnel_id=tunnel_id,
        )
        self._gate.enter(person)
        return keeper, entrance, person

    def _in_control(self, hand_id: str) -> str:
        for tunnel in self._open.values():
            if tunnel.opening.take and tunnel.opening.hand_id == hand_id:
                return f"operator {tunnel.opening.operator.rpartition('/')[2]} has control"
        return "a person has control"

    def _check_within(self, opening: pb.TunnelOpen) -> None:
        """A connection is part of a forward that the log knows of."""
        whole = self._open.get(opening.within)
        if (
            whole is None
            or whole.connects
            or opening.kind != "forward"
            or opening.take
            or (whole.opening.operator, whole.opening.hand_id)
            != (opening.operator, opening.hand_id)
        ):
            raise invalid("within", "must name an open forward of the same person and hand")
