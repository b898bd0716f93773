"""What bash prints of its exports, read back: the same as what a program of its would get."""

import random
import subprocess
import time

import pytest

from hands.inside import declared
from tests.pace import AT_ONCE, SEED

_BASH = ("bash", "--noprofile", "--norc", "-c")
_ODD = (
    *("", " ", "a b", "two\nlines\n", "\n", "'", '"', "\\", "\\n", "\\\\", "$HOME", "$'x'", "`id`"),
    *("a=b", "!", "~", "*", "#", "\t", "\x01", "\x7f", "\x1b[0m", "\x01\x01'\"", "äß…", "\u2028"),
    *(
        'declare -x A="1"\n',
        'x"\ndeclare -x B="1',
        "()",
        "() { :; }",
        "\\'",
        "x\\",
        "?",
        "\a\b\v\f\r",
    ),
)


def _both(environment: dict[bytes, bytes], before: str = "") -> tuple[dict[bytes, bytes], ...]:
    """What bash exports of that as a program gets it, and as it is read back."""
    script = f"{before}\n command -p env -0; builtin printf '\\0'; builtin declare -px"
    run = subprocess.run([*_BASH, script], env=environment, capture_output=True, check=True)
    records, _, text = run.stdout.partition(b"\0\0")
    told = dict(record.split(b"=", 1) for record in records.split(b"\0"))
    del told[b"_"]
    return told, declared.environment(text)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("before", ["", "set -o posix"])
def test_every_value_is_read_back_as_a_program_gets_it(locale: str, before: str) -> None:
    seed = SEED or random.randrange(1 << 32)
    chance = random.Random(seed)
    alphabet = [*b"\\'\"$`\n=ae07 \x01\x7f\xff\xc3\xa4"]
    values = [
        *(text.encode() for text in _ODD),
        bytes(range(1, 256)),
        *(bytes(chance.choices(alphabet, k=chance.randrange(20))) for _ in range(300)),
    ]
    given = {f"V{number}".encode(): value for number, value in enumerate(values)}
    told, read = _both({**given, b"LC_ALL": locale.encode()}, before)
    assert read == told, f"CARPAL_TEST_SEED={seed}"
    assert given.items() <= read.items()


def test_what_has_no_value_or_is_an_array_is_no_export() -> None:
    given = "export N; declare -ax L=(1 $'2\n' 'declare -x Z=\"1\"'); declare -Ax M=([a]=1)"
    also = "declare -rx R='a b'; declare -ix I=5; declare -ux U=up; declare -nx T=R"
    told, read = _both({}, f"{given}; {also}")
    assert read == told
    assert {b"R": b"a b", b"I": b"5", b"U": b"UP", b"T": b"R"}.items() <= read.items()
    assert not {b"N", b"L", b"M", b"Z"} & read.keys()


@pytest.mark.parametrize(
    "text",
    [
        *(b"x", b"declare", b'declare -x A="1"', b'declare -x A="1\n', b"declare -x A=$'\\q'\n"),
        *(
            b"declare -x A='\n",
            b"declare -x A=\\a\n",
            b'A="1"\n',
            b'declare -x ="1"\n',
            b"declare -x A=\n",
        ),
        b"declare -x A=1'2'\n",
    ],
)
def test_what_bash_does_not_print_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"bash does not print|not a declaration|not one word"):
        declared.environment(text)


@pytest.mark.parametrize("piece", [b'"', b'""', b"'", b"$", b"$'", b"\\\\", b"$'\\", b"a", b'"\\'])
def test_no_text_takes_long_to_read(piece: bytes) -> None:
    text = b"declare -x A=" + piece * (1_000_000 // len(piece))
    begun = time.monotonic()
    for end in (b"\n", b"", b"'\n", b'"'):
        try:
            declared.environment(text + end)
        except ValueError:
            continue
    assert time.monotonic() - begun < AT_ONCE
