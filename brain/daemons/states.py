"""One daemon, asked now: how its types stand, and its hands."""

import asyncio
from collections.abc import Iterable

from brain.daemons.hands_at import HandConnection, one
from carpal.errors import CarpalError
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

ANSWER_LIMIT = 5.0
"""Seconds a daemon has for all of it."""


async def ask(info: pb.DaemonInfo, connection: HandConnection) -> pb.GetDaemonResponse:
    """What it says; as much as is known, and why it is not all, when it does not answer in time."""
    found = pb.GetDaemonResponse(daemon=info, types=named(info.types))
    try:
        async with asyncio.timeout(ANSWER_LIMIT):
            told: hand_pb2.DescribeResponse = await one(
                connection.call("describe", hand_pb2.DescribeRequest())
            )
            types = sorted(told.types, key=lambda each: each.type)
            states = await asyncio.gather(*(_state(each, connection) for each in types))
            request = hand_pb2.ListHandsRequest()
            hands: hand_pb2.ListHandsResponse = await one(connection.call("list_hands", request))
    except TimeoutError:
        found.unanswered = f"it did not answer in {ANSWER_LIMIT:g} s"
    except CarpalError as error:
        found.unanswered = error.message
    else:
        del found.types[:]
        found.types.extend(states)
        found.hands.extend(hands.hands)
        for hand in found.hands:
            hand.daemon_id = info.daemon_id
    return found


def named(types: Iterable[str]) -> list[pb.TypeState]:
    """Types of which no more is known than the name."""
    return [pb.TypeState(type=each) for each in sorted(types)]


async def _state(told: hand_pb2.HandTypeInfo, connection: HandConnection) -> pb.TypeState:
    state = pb.TypeState(type=told.type, capabilities=told.capabilities, units=told.units)
    try:
        probe: hand_pb2.ProbeResponse = await one(
            connection.call("probe", hand_pb2.ProbeRequest(type=told.type))
        )
    except CarpalError as error:  # what one type answers says nothing of the others
        state.state, state.reason = hand_pb2.PROBE_STATE_BROKEN, error.message
    else:
        state.state, state.reason = probe.state, probe.reason
        state.not_enforceable.extend(probe.not_enforceable)
    return state
