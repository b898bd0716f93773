"""The exception tree, and its way to and from `google.rpc.Status`. Pure.

CarpalError            anything said to a caller; carries reason, message, fields
├── BadInput           the request is wrong as it stands           exit 2
├── Unreachable        nobody answered, or not in time             exit 3
├── Denied             the caller may not                          exit 4
│   └── Revoked        its identity is revoked                     exit 78
├── NotFound           what was named does not exist               exit 5
├── Conflict           the state of things forbids it now          exit 1
├── Exhausted          a limit was reached                         exit 1
├── NotBuilt           this server does not offer it               exit 1
└── Broken             the server failed; its log says why         exit 1

The class follows from the reason's code, so nobody chooses it twice:
`raise refuse(Reason.SESSION_NOT_FOUND, "no session 'x'", session_id="x")`.
"""

from typing import ClassVar

from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError

from carpal.rpc import error_details_pb2, status_pb2
from carpal.status import SPECS, Code, Reason

DOMAIN = "carpal"
_DETAILS_MAX = 4096
"""Bytes. HTTP/2 trailers beyond 16 KiB would hide the status itself."""
_MESSAGE_MAX = 1024
_FIELD_MAX = 256
"""Bytes of UTF-8."""
_GIVEN_MAX = 256
"""Characters of a reason that a person gave."""


class CarpalError(Exception):
    """A refusal a person can act on."""

    exit_code: ClassVar[int] = 1

    def __init__(self, reason: Reason, message: str, **fields: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.fields = fields
        self.bare: Code | None = None
        """The code alone, of a peer that gave no reason we know: `reason` is the nearest to it."""

    @property
    def code(self) -> Code:
        """The gRPC code."""
        return SPECS[self.reason].code if self.bare is None else self.bare

    @property
    def name(self) -> str:
        """What to call it: the reason, or the code where none was given."""
        return self.reason.value if self.bare is None else self.bare.name

    @property
    def action(self) -> str:
        """What the caller should do."""
        if action := self.fields.get("action"):
            return action
        if self.bare in _ACTION_BY_CODE:
            return _ACTION_BY_CODE[self.bare]
        return SPECS[self.reason].action

    def __str__(self) -> str:
        if self.reason is Reason.INVALID_FIELD and "action" not in self.fields:
            return self.message  # which field and what is wrong with it: all there is to say
        return f"{self.message}: {self.action}"


class BadInput(CarpalError):
    """The request is wrong as it stands."""

    exit_code = 2


class Unreachable(CarpalError):
    """Nobody answered, or not in time."""

    exit_code = 3


class Denied(CarpalError):
    """The caller may not do this."""

    exit_code = 4


class Revoked(Denied):
    """The caller's identity is revoked: trying again is of no use."""

    exit_code = 78


class NotFound(CarpalError):
    """What was named does not exist, or not in the caller's workspace."""

    exit_code = 5


class Conflict(CarpalError):
    """The state of things forbids it now."""


class Exhausted(CarpalError):
    """A limit was reached."""


class NotBuilt(CarpalError):
    """This server does not offer it."""


class Broken(CarpalError):
    """The server failed; its log says why."""


_CLASSES: dict[Code, type[CarpalError]] = {
    Code.INVALID_ARGUMENT: BadInput,
    Code.ALREADY_EXISTS: BadInput,
    Code.OUT_OF_RANGE: BadInput,
    Code.UNAVAILABLE: Unreachable,
    Code.DEADLINE_EXCEEDED: Unreachable,
    Code.CANCELLED: Unreachable,
    Code.UNAUTHENTICATED: Denied,
    Code.PERMISSION_DENIED: Denied,
    Code.NOT_FOUND: NotFound,
    Code.FAILED_PRECONDITION: Conflict,
    Code.ABORTED: Conflict,
    Code.RESOURCE_EXHAUSTED: Exhausted,
    Code.UNIMPLEMENTED: NotBuilt,
}


def refuse(reason: Reason, message: str, **fields: str) -> CarpalError:
    """The error for a reason, of the class its code implies."""
    if reason is Reason.IDENTITY_REVOKED:
        return Revoked(reason, message, **fields)
    return _CLASSES.get(SPECS[reason].code, Broken)(reason, message, **fields)


def invalid(field: str, problem: str) -> CarpalError:
    """A field that is missing, malformed or too large."""
    return refuse(Reason.INVALID_FIELD, f"{field}: {problem}", field=field)


def given(reason: str) -> str:
    """A person's reason as it is kept, and shown to whoever is refused: one line, clamped."""
    return " ".join(reason.split())[:_GIVEN_MAX]


def to_status(error: CarpalError) -> status_pb2.Status:
    """The wire form, with ErrorInfo and, where a retry is sensible, RetryInfo."""
    spec = SPECS[error.reason]
    fields = {key: _clamp(value, _FIELD_MAX) for key, value in error.fields.items()}
    message = _clamp(error.message, _MESSAGE_MAX)
    status = status_pb2.Status(code=int(spec.code), message=message)
    _pack(status, error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=fields))
    if status.ByteSize() > _DETAILS_MAX:
        del status.details[:]
        _pack(status, error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN))
    if spec.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(int(spec.retry_after * 1000))
        _pack(status, error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def from_status(status: status_pb2.Status) -> CarpalError:
    """The error a peer meant; one of ours when it carries our ErrorInfo.

    Its texts are clamped here too: they go on into logs and events, whoever wrote them.
    """
    info = error_details_pb2.ErrorInfo()
    message = _clamp(status.message, _MESSAGE_MAX)
    for detail in status.details:
        try:
            if detail.Is(info.DESCRIPTOR) and detail.Unpack(info) and info.domain == DOMAIN:
                error = refuse(Reason(info.reason), message)
                error.fields = {k: _clamp(v, _FIELD_MAX) for k, v in info.metadata.items()}
                return error
        except (ValueError, DecodeError):
            break  # a newer peer's reason, or none at all: its code still says the class
    code = Code(status.code) if status.code in _CODES else Code.UNKNOWN
    reason = _REASON_BY_CODE.get(code, Reason.INTERNAL)
    bare = _CLASSES.get(code, Broken)(reason, message or code.name)
    bare.bare = code
    return bare


_CODES = frozenset(int(code) for code in Code)
_REASON_BY_CODE: dict[Code, Reason] = {
    Code.UNAVAILABLE: Reason.UNREACHABLE,
    Code.DEADLINE_EXCEEDED: Reason.UNREACHABLE,
    Code.CANCELLED: Reason.UNREACHABLE,
    Code.UNAUTHENTICATED: Reason.IDENTITY_INVALID,
    Code.PERMISSION_DENIED: Reason.ROLE_NOT_ALLOWED,
    Code.INVALID_ARGUMENT: Reason.INVALID_FIELD,
    Code.UNIMPLEMENTED: Reason.NOT_BUILT,
    Code.RESOURCE_EXHAUSTED: Reason.GROUP_TOO_LARGE,
}
"""The nearest reason, for a peer that gave none we know; the class follows the code."""
_ACTION_BY_CODE: dict[Code | None, str] = {
    Code.NOT_FOUND: "check the name or id",
    Code.ALREADY_EXISTS: "choose another id",
    Code.FAILED_PRECONDITION: "mend that first",
    Code.ABORTED: "try again",
    Code.OUT_OF_RANGE: "ask for what is there",
    Code.RESOURCE_EXHAUSTED: "ask for less, or wait until there is room",
}
"""What to do where no reason says it better."""


def _clamp(text: str, size: int) -> str:
    """At most `size` bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _pack(status: status_pb2.Status, message: object) -> None:
    detail = any_pb2.Any()
    detail.Pack(message)  # type: ignore[arg-type]
    status.details.append(detail)
