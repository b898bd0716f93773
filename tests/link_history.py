"""Histories of a link that hypothesis makes up: what goes on, what goes wrong, in any order."""

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from carpal.link import Side
from tests.link_wire import Attach, Wire
from tests.link_world import World

which = st.integers(0, 5)
sides = st.sampled_from(Side)
WRONG = ["repeat", "repeat", "cut", "swallow", "break_attach", "break_attach", "kill", "lose_hand"]
WANTED = [
    "drain", "goodbye", "dial", "restart", "take_over", "interrupt", "abandon", "provision",
    "put_back",
]  # fmt: skip
amounts = st.sampled_from([1, 5, 100])


class History(RuleBasedStateMachine):
    """What may happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def pick(self, things: list[Any], number: int, act: Callable[[Any], None]) -> None:
        """Do it to one of the things, if there is any."""
        if things:
            act(things[number % len(things)])
        self.world.settle()

    # Often: things go on.

    @rule(most=st.sampled_from([1, 2, 100]), number=which)
    def frames_go(self, most: int, number: int) -> None:
        def go(wire: Wire) -> None:
            wire.up.send(most)
            wire.down.send(most)

        self.pick(self.world.wires, number, go)

    @rule(number=which, side=sides)
    def a_frame_comes(self, number: int, side: Side) -> None:
        self.pick(self.world.wires, number, lambda wire: self.world.arrive(wire, side))

    @rule(rounds=st.integers(1, 4), amount=amounts)
    def all_goes_on(self, rounds: int, amount: int) -> None:
        for _ in range(rounds):
            self.world.drive(self.world.brains.drivers[-1])
            self.the_daemon_goes_on(amount)
            for wire in self.world.wires:
                for pipe, side in ((wire.up, Side.BRAIN), (wire.down, Side.DAEMON)):
                    pipe.send(100)
                    self.world.arrive(wire, side)
            self.world.settle()

    @rule()
    def a_call_is_made(self) -> None:
        if len(self.world.brains.log.calls) < 6:
            self.world.call()
        self.world.drive(self.world.brains.drivers[-1])
        self.world.settle()

    @rule(number=which)
    def a_driver_drives(self, number: int) -> None:
        self.pick(self.world.brains.drivers, number, self.world.drive)

    @rule(amount=amounts)
    def the_daemon_goes_on(self, amount: int) -> None:
        self.world.daemon.work(amount)
        if self.world.daemon.alive:
            self.world.daemon.start()
            self.world.daemon.hear()
        self.world.settle()

    @rule(number=which, up=st.booleans())
    def an_attach_stream_goes_on(self, number: int, up: bool) -> None:
        act = self.world.brains.attach if up else self.world.attach_down
        self.pick(self.world.attaches, number, act)

    @rule(seconds=st.sampled_from([1.0, 5.0, 16.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.world.settle()

    # Now and then: something goes wrong, or is planned.

    @rule(what=st.sampled_from(WRONG), number=which, side=sides)
    def goes_wrong(self, what: str, number: int, side: Side) -> None:
        getattr(self, f"_{what}")(number, side)
        self.world.settle()

    @rule(what=st.sampled_from(WANTED), number=which, side=sides)
    def is_wanted(self, what: str, number: int, side: Side) -> None:
        getattr(self, f"_{what}")(number, side)
        self.world.settle()

    def _repeat(self, number: int, side: Side) -> None:
        def twice(wire: Wire) -> None:
            self.world.arrive(wire, side, again=True)
            self.world.settle()
            self.world.arrive(wire, side)

        self.pick(self.world.wires, number, twice)

    def _cut(self, number: int, _: Side) -> None:
        self.pick(self.world.wires, number, lambda wire: wire.break_())

    def _swallow(self, number: int, side: Side) -> None:
        def swallow(wire: Wire) -> None:
            pipe = wire.up if side is Side.BRAIN else wire.down
            pipe.frames.clear()
            pipe.swallows = True

        self.pick(self.world.wires, number, swallow)

    def _break_attach(self, number: int, _: Side) -> None:
        def break_(attach: Attach) -> None:
            attach.broken = True
            self.world.daemon.reopen()

        self.pick(self.world.attaches, number, break_)

    def _kill(self, _: int, __: Side) -> None:
        if self.world.daemon.alive:
            self.world.kill_daemon()

    def _lose_hand(self, _: int, __: Side) -> None:
        if self.world.daemon.alive:
            self.world.daemon.lose_hand()

    def _drain(self, number: int, side: Side) -> None:
        self.pick(self.world.wires, number, lambda wire: self.world.drain(wire, side))

    def _goodbye(self, number: int, side: Side) -> None:
        def leave(wire: Wire) -> None:
            (wire.brain if side is Side.BRAIN else wire.daemon).goodbye("bye")

        self.pick(self.world.wires, number, leave)

    def _dial(self, number: int, _: Side) -> None:
        self.world.dial(f"b{number % 2 + 1}")

    def _restart(self, _: int, __: Side) -> None:
        self.world.restart()

    def _take_over(self, _: int, __: Side) -> None:
        self.world.take_over()

    def _interrupt(self, number: int, _: Side) -> None:
        self.pick(list(self.world.brains.log.calls), number, self.world.stop)

    def _abandon(self, _: int, __: Side) -> None:
        self.world.brains.drivers[-1].abandon()

    def _provision(self, _: int, __: Side) -> None:
        if wire := self.world.brains.linked():
            self.world.brains.provision(wire)

    def _put_back(self, _: int, __: Side) -> None:
        """The session store is an older one: epochs come again."""
        self.world.brains.epoch = max(0, self.world.brains.epoch - 2)

    def at_random(self, chance: Random) -> None:
        """One move, most often one with which things go on."""
        number, side = chance.randrange(6), chance.choice(list(Side))
        amount = chance.choice([1, 5, 100])
        moves: list[Callable[[], None]] = [
            lambda: self.frames_go(chance.choice([1, 2, 100]), number),
            lambda: self.a_frame_comes(number, side),
            lambda: self.all_goes_on(chance.randint(1, 4), amount),
            self.a_call_is_made,
            lambda: self.a_driver_drives(number),
            lambda: self.the_daemon_goes_on(amount),
            lambda: self.an_attach_stream_goes_on(number, chance.random() < 0.5),
            lambda: self.time_passes(chance.choice([1.0, 5.0, 16.0])),
            lambda: self.goes_wrong(chance.choice(WRONG), number, side),
            lambda: self.is_wanted(chance.choice(WANTED), number, side),
        ]
        chance.choice(moves)()

    def teardown(self) -> None:
        self.world.come_to_rest()
        self.world.check()


def made_up(examples: int) -> None:
    """Histories that hypothesis makes up; it reduces one that fails."""
    run_state_machine_as_test(
        History,
        settings=settings(
            max_examples=examples,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def by_chance(seed: int) -> None:
    """The history of a seed: many more of them in the same time."""
    chance = Random(seed)
    history = History()
    for _ in range(80):
        history.at_random(chance)
    history.teardown()
