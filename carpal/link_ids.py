"""Request ids as they arrive: each is taken once, also when a later one came first. Pure."""

AHEAD_MAX = 65_536
"""Ids that may have come before a lower one; more, and the lower one was never sent."""


class Arrivals:
    """Which ids have come. They count up from 1, and a cancel overtakes what waits."""

    def __init__(self) -> None:
        self._through = 0
        """Every id up to here has come."""
        self._ahead: set[int] = set()

    def take(self, request_id: int) -> str:
        """Note an id; what is wrong with it, in words, or nothing."""
        if request_id in self:
            return f"request {request_id} came twice"
        if len(self._ahead) >= AHEAD_MAX:
            return f"request {self._through + 1} never came"
        self._ahead.add(request_id)
        while self._through + 1 in self._ahead:
            self._through += 1
            self._ahead.remove(self._through)
        return ""

    def __contains__(self, request_id: int) -> bool:
        """Whether it has come."""
        return request_id <= self._through or request_id in self._ahead
