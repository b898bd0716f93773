"""The first hand of all: whether there can be any as they are asked for, and what they lack."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import grpc

from carpal.client import from_rpc
from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import PEER, Failed, Skipped
from hands.conformance.bench import NO_RESULT, open_bench
from hands.conformance.subject import Subject

COMMANDS = (
    *("awk", "basename", "cat", "chmod", "dd", "env", "getent", "grep", "head", "id", "ln", "ls"),
    *("mkdir", "mkfifo", "mount", "mv", "nohup", "rm", "rmdir", "seq", "setsid", "sh", "sleep"),
    *("sort", "stat", "tail", "touch", "tr", "uniq", "unshare", "wc"),
)
"""What checks call in a hand, beside bash and what is optional to them."""
_LOOK = f"for c in {' '.join(COMMANDS)}; do command -v $c >/dev/null || echo $c; done; :"


_PATIENCE = 300.0
"""Seconds for the first hand, as a daemon has: an image may have to come from afar."""
_SAY = 10.0
"""Seconds after which a person is told what is waited for."""


async def first(
    subject: Subject, scale: float, note: Callable[[str], None] = lambda _text: None
) -> Subject:
    """The subject, and what its hands lack. Raises the refusal, when it can have no hand.

    One hand tells it, where each check would say the same again. `note` is told what takes long.
    """
    health = subject.health
    if health is not None and health.state != pb.PROBE_STATE_READY and health.reason:
        kind = subject.type.type
        message = f"hands of type {kind!r} cannot be made here"
        raise refuse(Reason.UNREACHABLE, message, action=health.reason)
    try:
        async with open_bench(subject, scale) as bench:
            order = bench.order()
            telling = asyncio.get_running_loop().call_later(_SAY, note, _WAITING)
            try:
                made = await bench.provision(order, _PATIENCE)
            except grpc.aio.AioRpcError as error:
                raise _refusal(error) from None
            except Failed as error:
                if not str(error).startswith(NO_RESULT):
                    return subject  # wrong: a check says how
                why = f"no hand can be made: {error}"
                raise refuse(Reason.UNREACHABLE, why, action=_begun(error.change)) from None
            finally:
                telling.cancel()
            if "lists_tools" in subject.capabilities:
                subject = _with_tools(subject, made)
            hand = bench.at(order)
            if "shell" not in subject.capabilities:
                return subject
            missing = (await hand.sh(_LOOK)).text.split()
    except (Failed, Skipped, grpc.RpcError, TimeoutError):
        return subject  # wrong: a check says how
    return replace(subject, lacks=frozenset(missing).intersection(COMMANDS))


_WAITING = f"waiting for the first hand: {NO_RESULT} yet; it has {_PATIENCE:g} s"


def _begun(sentence: str) -> str:
    """A sentence as the end of another."""
    return f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"


def _with_tools(subject: Subject, made: pb.ProvisionResult) -> Subject:
    """The subject, with the tools that its hands list: each is made of the same config."""
    kind = pb.HandTypeInfo()
    kind.CopyFrom(subject.type)
    del kind.tools[:]
    kind.tools.extend(made.tools)
    return replace(subject, type=kind)


def _refusal(error: grpc.aio.AioRpcError) -> CarpalError:
    refusal = from_rpc(error, PEER)
    if refusal.fields.get("field", "").startswith("config"):
        action = "give --hand-config what the type takes"
        return refuse(refusal.reason, f"no hand can be made: {refusal.message}", action=action)
    return refusal
