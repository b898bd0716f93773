"""What is looked at: one machine's settings, state folder and way out; and by which clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from carpal.errors import CarpalError, refuse
from carpal.proof import Token
from carpal.proxy import Way
from carpal.status import Reason
from carpal.tls import Loaded
from hands.app import HandConfig
from hands.enroll import Links, links_path
from hands.files import HandFiles

BEAT = 5.0
"""Seconds between heartbeats of a link, unless its brain says otherwise."""
LONGEST_BEAT = 15.0
"""Seconds that a brain may say at most."""


def utc_now() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Subject:
    """One machine."""

    settings: HandConfig
    token: Token | None = None
    """With which it is to be enrolled; says where a brain is, before there is an identity."""
    hold: float = 0.0
    """Seconds to hold a stream."""
    now: Callable[[], datetime] = utc_now
    scale: float = 1.0
    """Of the seconds of heartbeats; for tests."""
    files: HandFiles = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", HandFiles(self.settings.state_dir))

    @property
    def way(self) -> Way:
        """How it dials out."""
        return Way(self.settings.proxy)

    @property
    def enrolled(self) -> bool:
        """Whether there is anything of an identity; CONFIG_INVALID where that may not be seen."""
        try:
            self.files.check_enrolled()
        except CarpalError:
            return False
        except OSError as error:
            raise refuse(
                Reason.CONFIG_INVALID,
                f"{error.filename} cannot be looked at: {error.strerror}",
                action="run it as the user that the row `user` names, or as root",
            ) from None
        return True

    def loaded(self) -> Loaded | None:
        """Its identity; None where that cannot be had, which a row of its own says."""
        try:
            return self.files.identity.look() if self.enrolled else None
        except (CarpalError, OSError):
            return None

    def links(self) -> Links | None:
        """Where it dials; None where that is not known."""
        try:
            return Links.load(links_path(self.files.identity_dir))
        except CarpalError:
            return None

    def brains(self) -> Sequence[str]:
        """`host:port` of each, where links are made."""
        links = self.links()
        return links.brains if links else ()

    def enrollment(self) -> str:
        """`host:port` of the enrolment port that is known; empty when none is."""
        links = self.links()
        if links is not None:
            return links.enrollment
        return self.token.address if self.token else ""
