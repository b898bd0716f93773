"""What tells a second machine from the first one that comes back: one table."""

import pytest

from brain.daemons.clones import Machine, Verdict, describe, is_same, judge

FIRST = Machine("inst_1", "boot_1", "jrnl_1", 7)
ADMIT, ASK, CLONE = Verdict.ADMIT, Verdict.ASK, Verdict.CLONE


@pytest.mark.parametrize(
    ("who", "said", "unasked", "silent", "answering"),
    [
        ("the same daemon dials again", ("inst_1", "boot_1", "jrnl_1", 7), ADMIT, ADMIT, ADMIT),
        ("it links anew at another brain", ("inst_1", "boot_1", "jrnl_1", 8), ADMIT, ADMIT, ADMIT),
        ("its welcome never came", ("inst_1", "boot_1", "jrnl_1", 6), ASK, ADMIT, CLONE),
        ("the daemon was restarted", ("inst_2", "boot_1", "jrnl_1", 7), ASK, ADMIT, CLONE),
        ("the machine was restarted", ("inst_2", "boot_2", "jrnl_1", 7), ASK, ADMIT, CLONE),
        ("its disk was copied", ("inst_2", "boot_2", "jrnl_1", 3), ASK, ADMIT, CLONE),
        ("only its key was copied", ("inst_2", "boot_2", "jrnl_2", 0), ASK, ADMIT, CLONE),
        ("it was made anew on the spot", ("inst_2", "boot_1", "jrnl_2", 0), ASK, ADMIT, CLONE),
        ("copied as it ran, left behind", ("inst_1", "boot_1", "jrnl_1", 5), ASK, ADMIT, CLONE),
    ],
)  # fmt: skip
def test_a_second_machine_is_one_only_while_the_first_answers(
    who: str, said: tuple[str, str, str, int], unasked: Verdict, silent: Verdict, answering: Verdict
) -> None:
    """L28, and L06: the same daemon's half-open link is not even asked."""
    new = Machine(*said)
    assert judge(None, new) is ADMIT, who
    assert judge(FIRST, new) is unasked, who
    assert judge(FIRST, new, answers=False) is silent, who
    assert judge(FIRST, new, answers=True) is answering, who


@pytest.mark.parametrize(
    ("new", "same"),
    [
        (Machine("inst_1", "boot_1", "jrnl_1", 7), True),
        (Machine("inst_2", "boot_1", "jrnl_1", 9), True),
        (Machine("inst_1", "boot_1", "jrnl_1", 6), False),
        (Machine("inst_2", "boot_2", "jrnl_1", 9), False),
        (Machine("inst_2", "boot_1", "jrnl_2", 9), False),
    ],
)
def test_after_a_clone_was_seen_only_the_first_machine_comes_back(new: Machine, same: bool) -> None:
    assert is_same(FIRST, new) is same


def test_each_kind_of_clone_has_words_of_its_own() -> None:
    seconds = (
        Machine("inst_1", "boot_1", "jrnl_1", 5),
        Machine("inst_2", "boot_2", "jrnl_2", 5),
        Machine("inst_2", "boot_2", "jrnl_1", 5),
        Machine("inst_2", "boot_1", "jrnl_1", 5),
    )
    assert len({describe(FIRST, each) for each in seconds}) == len(seconds)
