"""What a hand gives a person, as it leaves the machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from carpal.v1 import orchestrator_pb2 as pb
from hands.contract import Bytes, Inside, Left
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from hands.people import tunnel_stream
from hands.people.tunnels import Tunnel


async def test_a_pattern_that_comes_into_force_is_masked_in_what_a_person_gets_from_then_on(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("")
    gate, written = Gate(PolicyFile(policy)), b""

    def says() -> Iterator[Bytes | Left]:
        yield Bytes(b"a hunter1 ")
        policy.write_text('redact = ["hunter[0-9]"]')
        gate.reload()
        yield Bytes(b"b hunter2 hun")
        yield Bytes(b"ter3")
        yield Left(0)

    class Giving:
        said = says()

        async def take(self, _: int) -> Bytes | Left:
            return next(self.said)

    class Written:
        async def write(self, request: pb.AttachRequest) -> None:
            nonlocal written
            written += request.tunnel.data

    class Open:
        out_bytes, shows = 0, False

    stream, inside, tunnel = cast(Any, Written()), cast(Inside, Giving()), cast(Tunnel, Open())
    left = await tunnel_stream._take(stream, tunnel, inside, gate)
    assert left.exit_code == 0
    assert written == b"a hunter1 b ******* *******"


async def test_a_picture_passes_as_it_is_and_words_about_it_are_masked(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('redact = ["hunter[0-9]"]')
    gate, written = Gate(PolicyFile(policy)), []

    class Giving:
        said: Iterator[Bytes | Left] = iter(
            [Bytes(b"\x89 hunter1 hunt"), Bytes(b"hunter1", error=True), Left()]
        )

        async def take(self, _: int) -> Bytes | Left:
            return next(self.said)

    class Written:
        async def write(self, request: pb.AttachRequest) -> None:
            written.append((request.tunnel.data, request.tunnel.error))

    class Open:
        out_bytes, shows = 0, True

    stream, inside, tunnel = cast(Any, Written()), cast(Inside, Giving()), cast(Tunnel, Open())
    await tunnel_stream._take(stream, tunnel, inside, gate)
    assert written == [(b"\x89 hunter1 hunt", b""), (b"", b"*******")]
