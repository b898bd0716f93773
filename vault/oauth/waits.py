"""How long what failed is left alone: each credential, and each endpoint for all credentials."""

import random
import time

from vault.oauth.answers import Answer, Later, Refused
from vault.oauth.pace import ENOUGH, Pace
from vault.oauth.ports import Key


class Waits:
    """Of one process."""

    def __init__(self) -> None:
        self.paces: dict[Key | str, Pace] = {}

    def left(self, of: Key | str) -> float:
        """Seconds until a credential may be refreshed, or an endpoint asked; 0 when now."""
        return self._pace(of).wait(time.monotonic())

    def worked(self, key: Key, endpoint: str) -> None:
        """It gave tokens."""
        self.paces.pop(key, None)
        self.paces.pop(endpoint, None)

    def failed(self, key: Key, endpoint: str, answer: Answer) -> None:
        """It gave none."""
        theirs = self._pace(endpoint)
        if isinstance(answer, Refused):
            theirs.answered()
            return
        now = time.monotonic()
        asked = answer.seconds if isinstance(answer, Later) else 0.0
        for pace in (self._pace(key), theirs):
            pace.failed(now, random.random(), asked if pace is not theirs else 0.0)  # noqa: S311

    def _pace(self, of: Key | str) -> Pace:
        if of not in self.paces:
            self.paces[of] = Pace(ENOUGH if isinstance(of, str) else 1)
        return self.paces[of]
