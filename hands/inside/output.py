"""A call's output: the first and the last of it, counted whole, and the text made of it."""

import codecs

KEEP = 64 * 1024
"""Bytes kept of the beginning, and as many of the end. What is beyond goes to the spool."""


class Capture:
    """Keeps the head and the tail of a flood in bounded memory."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.total = 0
        """Bytes of output, kept or not."""
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Take what came."""
        self.total += len(data)
        room = KEEP - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self._tail += data[-KEEP:]
        if len(self._tail) > 4 * KEEP:  # cut seldom: each cut moves what stays
            del self._tail[:-KEEP]

    def text(self) -> tuple[str, int]:
        """What was kept, as text, and how many bytes of the middle it leaves out.

        Bytes that are not UTF-8 become U+FFFD. Each half's text is at most
        `KEEP` bytes of UTF-8, since a byte may become three.
        """
        tail = bytes(self._tail[-KEEP:])
        whole = bytes(self.head) + tail
        if len(whole) == self.total:
            text = whole.decode("utf-8", "replace")
            if len(text.encode()) <= 2 * KEEP:
                return text, 0
            tail = whole[len(whole) // 2 :]
        head, head_bytes = _beginning(whole[: len(whole) - len(tail)])
        end, end_bytes = _ending(tail)
        omitted = self.total - head_bytes - end_bytes
        separator = "" if head.endswith("\n") else "\n"
        return f"{head}{separator}[{omitted} bytes omitted]\n{end}", omitted


def _beginning(raw: bytes) -> tuple[str, int]:
    """The longest beginning of `raw` that fits, cut between characters; and its bytes."""
    while True:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(raw, final=False)
        size = len(text.encode())
        if size <= KEEP:
            return text, len(raw) - len(decoder.getstate()[0])
        raw = raw[: len(raw) * KEEP // size]


def _ending(raw: bytes) -> tuple[str, int]:
    """The longest ending of `raw` that fits, cut between characters; and its bytes."""
    while True:
        # At most three bytes can belong to a character that began before.
        skip = next((i for i in range(min(4, len(raw))) if raw[i] & 0xC0 != 0x80), 0)
        text = raw[skip:].decode("utf-8", "replace")
        size = len(text.encode())
        if size <= KEEP:
            return text, len(raw) - skip
        raw = raw[-(len(raw) * KEEP // size) :]


def compose(text: str, *footers: str) -> str:
    """A result's content: the output, then a line for each thing there is to say; never empty."""
    notes = "\n".join(f"[{footer}]" for footer in footers if footer)
    if not text:
        return notes or "[no output]"
    if not notes:
        return text
    return text + ("" if text.endswith("\n") else "\n") + notes


def counted(number: int, noun: str) -> str:
    """`1 process`, `2 processes`, `3 bytes`."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"
