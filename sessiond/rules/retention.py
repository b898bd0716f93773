"""A workspace's rules of retention: how old its sessions may get, or that none may go. Pure."""

import msgspec

from carpal.errors import invalid
from sessiond.clock import SECOND

KIND = "retention"
NAME = "default"
"""Of the document that holds the rules."""
_DAY = 24 * 3600 * SECOND
_MOST_DAYS = 36_500


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The document `retention/default`; each member is optional."""

    maximum_age_days: int | None = None
    """Sessions whose log did not grow for so long are deleted."""
    hold: bool = False
    """No session is deleted, by anyone."""

    @classmethod
    def parse(cls, data: bytes) -> "Retention":
        """From the document's JSON, or INVALID_FIELD."""
        try:
            rules = _decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise invalid("data", f"is not a retention document: {error}") from None
        days = rules.maximum_age_days
        if days is not None and not 1 <= days <= _MOST_DAYS:
            raise invalid("data", f"maximum_age_days must be 1 to {_MOST_DAYS}")
        return rules

    def oldest(self, wall: int) -> int | None:
        """When a log must have grown last to stay, given the time now; None when any may stay."""
        if self.hold or self.maximum_age_days is None:
            return None
        return wall - self.maximum_age_days * _DAY


_decoder = msgspec.json.Decoder(Retention)
