"""A hand type: ledgers, to which lines are added and from which they are read."""

from typing import Annotated, Literal

from hands.api import Context, HandType, ToolError, tool


class Ledger(HandType):
    """A ledger: lines are added and read, and never changed."""

    def provision(self, context: Context, paper: Literal["ruled", "plain"] = "plain") -> str:
        self.file = context.folder / "ledger"
        self.file.touch()
        return f"The ledger is empty, and its paper is {paper}."

    @tool()
    def add(self, line: Annotated[str, "One line, without its end."]) -> str:
        """Add a line to the ledger."""
        if "\n" in line:
            raise ToolError("that is more than one line: add them one by one")
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return "added"

    @tool()
    def lines(self, context: Context, last: int | None = None) -> None:
        """Give the lines of the ledger, oldest first; with `last`, no more than so many."""
        found = self.file.read_text(encoding="utf-8").splitlines()
        for line in found[-last:] if last else found:
            context.say(f"{line}\n")
