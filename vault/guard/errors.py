"""What goes wrong with a request to somebody else's server. Pure.

GuardError            what may be said of it is its text, which is always the same
├── Refused           not ours to make: nothing was looked up, dialled or sent
│   ├── BadTarget       the address is none that is spoken to
│   ├── BadRequest      a method, a header or a body that is not sent
│   └── AddressRefused  the name leads where nothing is dialled
├── Unreachable       no connection came about: nothing was sent
│   ├── Unresolved      no such name
│   ├── NotConnected    nobody listens, or not in time
│   └── NotTrusted      the certificate is not that host's
└── Failed            something may have been sent, and may have had its effect
    ├── BodyTooLarge    what was to be sent grew past its limit
    ├── TimedOut        a limit of time
    ├── TooLarge        a limit of size
    ├── Malformed       not HTTP, or compressed wrongly
    └── Cut             the connection ended before the reply did

`str` and `code` may go to a caller. `fields` are for the audit alone: they say where and which
limit, and have no text of the other side, no header, no query and no body either.
"""

from typing import ClassVar


class GuardError(Exception):
    """A request that did not go well."""

    code: ClassVar[str] = "upstream_failed"
    text: ClassVar[str] = "the request to the outside server failed"
    sent: ClassVar[bool] = True
    """Whether the other side may have had any of it."""

    def __init__(self, **fields: str | int) -> None:
        super().__init__(self.text)
        self.fields = fields

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code})"


class Refused(GuardError):
    """Not ours to make."""

    code = "request_refused"
    text = "the request is not one that is sent"
    sent = False


class BadTarget(Refused):
    """The address is none that is spoken to."""

    code = "target_refused"
    text = "the address is not one that is spoken to"


class BadRequest(Refused):
    """A method, a header or a body that is not sent."""

    code = "request_malformed"
    text = "the request has a part that is not sent"


class AddressRefused(Refused):
    """The name leads where nothing is dialled."""

    code = "address_refused"
    text = "the host's address is not one that is dialled"


class Unreachable(GuardError):
    """No connection came about."""

    code = "upstream_unreachable"
    text = "the outside server cannot be reached"
    sent = False


class Unresolved(Unreachable):
    """No such name."""

    code = "host_not_found"
    text = "the outside server's name leads nowhere"


class NotConnected(Unreachable):
    """Nobody listens, or not in time."""


class NotTrusted(Unreachable):
    """The certificate is not that host's."""

    code = "upstream_not_trusted"
    text = "the outside server did not prove who it is"


class Failed(GuardError):
    """Something may have been sent."""


class BodyTooLarge(Failed):
    """What was to be sent grew past its limit, or was not as long as it said."""

    code = "body_too_large"
    text = "the request is larger than allowed"


class TimedOut(Failed):
    """A limit of time."""

    code = "upstream_timeout"
    text = "the outside server did not answer in time"


class TooLarge(Failed):
    """A limit of size."""

    code = "result_too_large"
    text = "the outside server's reply is larger than allowed"


class Malformed(Failed):
    """Not HTTP, or compressed wrongly."""

    code = "upstream_malformed"
    text = "the outside server's reply is malformed"


class Cut(Failed):
    """The connection ended before the reply did."""

    code = "upstream_cut"
    text = "the outside server ended the connection too early"
