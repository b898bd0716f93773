"""Each decision has a number of its own, which its heading says."""

from pathlib import Path

DECISIONS = sorted((Path(__file__).parent.parent / "docs" / "adr").glob("*.md"))


def test_no_number_is_used_twice_and_the_heading_has_it() -> None:
    numbers = [int(each.name[:4]) for each in DECISIONS]
    assert len(set(numbers)) == len(numbers)
    for number, page in zip(numbers, DECISIONS, strict=True):
        assert page.read_text().startswith(f"# {number}. "), page.name
