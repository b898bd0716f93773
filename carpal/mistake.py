"""What is wrong with what a person wrote: the problem, and at which line and key. Pure."""

SIZE_MAX = 256 * 1024
"""Bytes of a text."""


class Mistake(ValueError):
    """What is wrong with a text, at which line and key; both may be unknown."""

    def __init__(self, problem: str, *, line: int = 0, key: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.line = line
        """From 1 on; 0 when it is known of the whole alone."""
        self.key = key
        """As in `hands.shell.resources[0]`; empty for the whole."""

    def __str__(self) -> str:
        """`line 3: hands.shell.type: is empty`."""
        line = f"line {self.line}" if self.line else ""
        return ": ".join(part for part in (line, self.key, self.problem) if part)
