"""How often one peer may be refused in a while. Pure."""

from collections import OrderedDict

PEERS_MAX = 4096


class Budget:
    """Of all peers; those that were refused longest ago are forgotten first."""

    def __init__(self, failures: int, seconds: float) -> None:
        self._most = failures
        self._seconds = seconds
        self._peers: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def spent(self, peer: str, now: float) -> bool:
        """Whether it has had them all."""
        since, count = self._peers.get(peer, (now, 0))
        return now - since < self._seconds and count >= self._most

    def failed(self, peer: str, now: float) -> bool:
        """It was refused once more; whether that is worth a line of the audit."""
        since, count = self._peers.pop(peer, (now, 0))
        if now - since >= self._seconds:
            since, count = now, 0
        self._peers[peer] = (since, count + 1)
        if len(self._peers) > PEERS_MAX:
            self._peers.popitem(last=False)
        return count <= self._most
