"""What a person types to leave: `~.` at the beginning of a line, as with ssh. Pure."""

_NEW_LINE = b"\r\n"
_ESCAPE = ord("~")


class Escapes:
    """Keys as they come, without what is meant for this end."""

    def __init__(self) -> None:
        self.left = False
        """The person wants to leave."""
        self._at_start = True
        self._escaped = False

    def feed(self, keys: bytes) -> bytes:
        """What of it is for the hand; nothing more once they left. `~~` is one `~`."""
        out = bytearray()
        for key in keys:
            if self.left:
                break
            if self._escaped:
                self._escaped = False
                if key == ord("."):
                    self.left = True
                    break
                if key != _ESCAPE:
                    out.append(_ESCAPE)
            elif key == _ESCAPE and self._at_start:
                self._escaped, self._at_start = True, False
                continue
            out.append(key)
            self._at_start = key in _NEW_LINE
        return bytes(out)
