"""What is found out about one log: whether it is whole, how far, and what it was compared with."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.event_lines import time_text
from carpal.export import head_object
from carpal.operator.events import printable
from carpal.operator.outcome import DONE, FAILED
from carpal.signed import verify_head
from carpal.status import Reason
from carpal.v1 import types_pb2
from carpal.verified import Verified

_FOUND = {Reason.CHAIN_BROKEN, Reason.EXPORT_MALFORMED}
"""Refusals that are findings; any other means that nothing was found out."""


class Findings:
    """Of the log of one session, event by event."""

    def __init__(self, info: types_pb2.SessionInfo) -> None:
        self.session_id = info.session_id
        self.chain_id = info.chain_id or info.session_id
        self.verified = Verified(self.chain_id)
        self.problem: CarpalError | None = None
        self._noted: list[int] = []
        self._signed: dict[bytes, dict[str, Any]] = {}
        """Each signed head once, by its payload."""

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Around all that looks: what breaks the chain is found, and ends it."""
        try:
            yield
        except CarpalError as error:
            if error.reason not in _FOUND:
                raise
            self.problem = error

    @property
    def compared(self) -> bool:
        """Whether there was a head to compare with that somebody kept."""
        return bool(self._noted or self._signed)

    def expect(self, head: types_pb2.ChainHead) -> None:
        """Compare with a head that was noted; to be said before its event is taken."""
        self._noted.append(head.position)
        self.verified.expect(head)

    def expect_signed(self, signed: types_pb2.SignedBytes, ca: bytes) -> types_pb2.ChainHead:
        """Compare with a head that a sessiond signed whose certificate is by `ca`, PEM.

        Raises INVALID_FIELD when its signature is none by `ca`: then nothing is known of the log.
        """
        try:
            head, signer = verify_head(signed, ca)
        except CarpalError as error:
            raise refuse(
                Reason.INVALID_FIELD,
                f"{self.session_id} cannot be judged by the signed head: {error.message}",
                action="give the signed head as it was written, and with --ca the authority "
                "that its sessiond was of",
                field="--ca",
            ) from None
        of = head.chain_id or head.session_id
        if of != self.chain_id:
            raise _broken(f"the signed head is of the chain {of!r}, not {self.chain_id!r}")
        self._signed[signed.payload] = {
            "position": head.head.position,
            "by": signer.uri,
            "at": time_text(head.time),
        }
        self.verified.expect(head.head)
        return head.head

    def end_signed(
        self, end: types_pb2.ChainHead, signed: types_pb2.SignedBytes | None, ca: bytes
    ) -> None:
        """The log ended at `end`, and the export has that signed."""
        if signed is None:
            raise _broken("the export has no signed head")
        if self.expect_signed(signed, ca) != end:
            raise _broken("the export's signed head is not that of its last event")

    def report(self) -> dict[str, Any]:
        """As `--json` shows it. `head` is how far the log is whole."""
        verified, problem = self.verified, self.problem
        at = problem.fields.get("position") if problem else None
        head = types_pb2.ChainHead(position=verified.position, hash=verified.hash)
        return {
            "session_id": self.session_id,
            "ok": problem is None,
            "head": head_object(head),
            "chain": {
                "chain_id": self.chain_id,
                "redacted": verified.redacted,
                "noted": self._noted,
                "signed": list(self._signed.values()),
                "broken_at": int(at) if at else None,
                "problem": problem.message if problem else None,
            },
        }

    def text(self) -> str:
        """The same for people."""
        if self.problem:
            return printable(f"{self.session_id} is not what it was: {self.problem.message}")
        redacted = f" ({self.verified.redacted} redacted)" if self.verified.redacted else ""
        lines = [
            f"{self.session_id} is whole: {self.verified.position} events{redacted}",
            f"head {self.verified.position}:{self.verified.hash.hex()}",
            *(f"as noted at position {position}" for position in self._noted),
        ]
        lines += [
            "as signed at position {position}, {at}, by {by}".format(**signed)
            for signed in self._signed.values()
        ]
        return printable("\n".join(lines))

    @property
    def exit_code(self) -> int:
        """The command's."""
        return FAILED if self.problem else DONE


def _broken(what: str) -> CarpalError:
    return refuse(Reason.CHAIN_BROKEN, what)
