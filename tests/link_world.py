"""Brains, a daemon, and links between them on which anything may happen; checked as it goes."""

from carpal.link import Side, State
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_daemon import DaemonModel
from tests.link_driver import BrainModel, Call, Driver
from tests.link_wire import Attach, Wire

ENOUGH = 200
"""Rounds in which everything comes to its end once nothing hinders it."""


class World:
    """All of it, and the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.brains = BrainModel()
        self.daemon = DaemonModel()
        self.daemon.wires = self.brains.wires
        self.dial("b1")

    @property
    def wires(self) -> list[Wire]:
        """Links that an end still believes in, oldest first."""
        return [wire for wire in self.brains.wires.values() if not wire.over]

    @property
    def attaches(self) -> list[Attach]:
        """Attach streams that are there."""
        return [a for a in self.daemon.attaches if not (a.broken or a.refused)]

    def settle(self) -> None:
        """What the ends have to say and to tell is said and told."""
        for wire in self.brains.wires.values():
            self.brains.take(wire, wire.brain.events(), self.now)
            self.daemon.take(wire, wire.daemon.events())
            wire.flush()

    # The network.

    def dial(self, at: str) -> None:
        """The daemon opens a link, also beside one that it has."""
        believed = [wire for wire in self.wires if wire.daemon.state is not State.CLOSED]
        if self.daemon.alive and len(believed) < 2:
            number = len(self.brains.wires) + 1
            self.brains.wires[number] = Wire(number, at, self.daemon.last_epoch, self.now)

    def arrive(self, wire: Wire, side: Side, *, again: bool = False) -> None:
        """A frame comes, or the news that the stream is over."""
        events = wire.arrive(side, self.now, again=again)
        if side is Side.BRAIN:
            self.brains.take(wire, events, self.now)
        elif self.daemon.alive:
            self.daemon.take(wire, events)

    def pass_time(self, seconds: float) -> None:
        """Both ends' clocks go on."""
        self.now += seconds
        for wire in self.wires:
            wire.brain.tick(self.now, lease_left=10.0)
            wire.daemon.tick(self.now)

    def attach_down(self, attach: Attach) -> None:
        """The daemon hears what was acknowledged, or that the brain has it all."""
        if attach.down:
            attach.wire.daemon.acknowledge(attach.opening.request_id, attach.down.popleft())
        elif attach.ended:
            attach.wire.daemon.finish(attach.opening.request_id)
            self.daemon.attaches.remove(attach)

    # The ends.

    def kill_daemon(self) -> None:
        """Its process is killed, and with it its ends of links."""
        self.daemon.die()
        for wire in self.wires:
            wire.break_()
            wire.daemon.eof("killed")
            wire.daemon.events()

    def restart(self) -> None:
        """It starts again, and dials."""
        if not self.daemon.alive:
            self.daemon.restart()
            self.dial("b1")

    def call(self) -> None:
        """The model asks for one more call."""
        calls = self.brains.log.calls
        calls[f"c{len(calls) + 1}"] = Call()

    def drive(self, driver: Driver) -> None:
        """A driver asks for what is open."""
        wire = self.brains.linked()
        if wire is not None and not driver.over:
            driver.step(wire)

    def stop(self, call_id: str) -> None:
        """A person interrupts a call, and the driver hears of it if it can."""
        self.brains.log.calls[call_id].stopped = True
        if wire := self.brains.linked():
            self.brains.drivers[-1].stop(wire, call_id)

    def take_over(self) -> None:
        """Another brain drives; the one before does not know yet."""
        self.brains.log.epoch += 1
        self.brains.drivers.append(Driver(self.brains.log, self.brains.log.epoch))

    def drain(self, wire: Wire, side: Side) -> None:
        """An end says that it goes away soon."""
        if side is Side.BRAIN:
            wire.brain.drain(pb.Drain())
            wire.drained = wire.drained or wire.brain.state is State.DRAINING
        else:
            self.daemon.draining = True
            wire.daemon.drain(pb.Drain())

    # The end.

    def come_to_rest(self) -> None:
        """Nothing hinders any more: everything is asked, answered and forgotten."""
        for _ in range(ENOUGH):
            self.restart()
            if not any(wire.whole for wire in self.wires):
                for wire in self.wires:
                    wire.break_()
                self.dial("b1")
            self.drive(self.brains.drivers[-1])
            for _ in range(3):
                self.daemon.start()
                self.daemon.work(100)
                self.daemon.hear()
            self.settle()
            self._carry_all()
            self.daemon.reopen()
            if self._rests():
                return
        raise AssertionError(f"it does not come to rest: {self.brains.log.calls}")

    def _carry_all(self) -> None:
        for wire in self.wires:
            for pipe, side in ((wire.up, Side.BRAIN), (wire.down, Side.DAEMON)):
                if pipe.swallows and not wire.cut:
                    wire.break_()
                pipe.send(100)
                while pipe.frames:
                    self.arrive(wire, side)
                self.arrive(wire, side)
        for attach in self.attaches:
            for _ in range(len(attach.up) + 1):
                if not attach.broken and not attach.refused:
                    self.brains.attach(attach)
            for _ in range(len(attach.down) + 1):
                if attach in self.daemon.attaches:
                    self.attach_down(attach)

    def _rests(self) -> bool:
        wire = self.brains.linked()
        return (
            wire is not None
            and all(call.outcomes for call in self.brains.log.calls.values())
            and not wire.brain.unfinished
            and not wire.daemon.unfinished
            and wire.up.empty
            and wire.down.empty
        )

    def check(self) -> None:
        """Each call ran at most once, and its one outcome is true."""
        for call_id, call in self.brains.log.calls.items():
            ran = self.daemon.ran[call_id]
            (outcome,) = call.outcomes
            assert ran <= 1, f"{call_id} ran {ran} times"
            assert outcome != "ok" or ran == 1, f"{call_id} is ok and never ran"
            assert outcome != "cancelled" or call.stopped, f"nobody cancelled {call_id}"
        assert all(made == 1 for made in self.daemon.hands.values())
