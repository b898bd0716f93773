"""Whether the audit is as it was written: its chain, its marks, its table, and a noted head."""

from dataclasses import dataclass, field

from carpal.audit_chain import Head, Problem
from carpal.audit_files import AuditFiles
from vault.audit.chain import Marks
from vault.audit.table import AuditTable

_STEP = 10_000


@dataclass
class Verdict:
    """What was found."""

    head: Head
    lines: int
    marked: int = 0
    """Lines whose mark was checked; those of keys that are not known were not."""
    problems: list[Problem] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    """What is no fault, and worth saying."""

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.problems


def verify(
    files: AuditFiles,
    table: AuditTable | None,
    marks: Marks | None,
    *,
    heads: tuple[tuple[str, Head], ...] = (),
) -> Verdict:
    """Check all lines; `heads` are such as were noted elsewhere, and where that was."""
    verifier, problems = files.verify(None, marks)
    seen = dict(_hashes(files))
    verdict = Verdict(verifier.head, verifier.lines, marks.checked if marks else 0, problems)
    verdict.noted = verifier.noted
    for where, head in heads:
        if head.number and seen.get(head.number) != head.hash:
            what = "is missing" if head.number not in seen else "is another"
            line = f"line {head.number}, which was noted there, {what}"
            problems.append(Problem(where, line, head.number))
    if table is not None:
        problems += _against_table(seen, table)
    problems.sort(key=lambda each: each.number)
    return verdict


def _against_table(seen: dict[int, str], table: AuditTable) -> list[Problem]:
    found: dict[int, Problem] = {}
    last, rows = 0, table.hashes(0, _STEP)
    while rows:
        for number, digest in rows:
            if seen.get(number) != digest:
                what = "is not in the file" if number not in seen else "is another in the file"
                found.setdefault(number, Problem("audit.db", f"line {number} {what}", number))
        if rows[-1][0] == last:
            break
        last = rows[-1][0]
        rows = table.hashes(last, _STEP)
    return list(found.values())


def _hashes(files: AuditFiles) -> list[tuple[int, str]]:
    from carpal.audit_chain import head_of

    heads = (head_of(text) for _, text in files.lines())
    return [(head.number, head.hash) for head in heads if head is not None]
