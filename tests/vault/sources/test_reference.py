"""A reference names a place in a source, and can mean nothing else."""

import pytest

from carpal.errors import CarpalError
from vault.sources.reference import Reference, within


@pytest.mark.parametrize(
    "text", ["agents/tracker#token", "a#b@3", "team:x/app+1/a.b=c,d~e@f#API_KEY", ".a/..b#k"]
)
def test_a_reference_is_read_and_written_as_the_same_text(text: str) -> None:
    assert str(Reference.parse("corp", text, "ref")) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "#k", "a#", "a#k#l", "/a#k", "a/#k", "a//b#k", "../a#k", "a/..#k", "a/./b#k"),
        *("a%2f..#k", "a?version=1#k", "a b#k", "a\\b#k", "a\nb#k", "-a#k", "a/-b#k", "a#-k"),
        *("a#k@0", "a#k@-1", "a#k@x", "a#k@1234567890", "ä#k", "a{key}#k", "$(id)#k", "a;b#k"),
        *("http://evil.com/a#k", "a" * 600 + "#k", "/".join(["a" * 100] * 6) + "#k", None, 7),
    ],
)
def test_what_could_be_an_option_a_way_up_or_another_address_is_no_reference(text: object) -> None:
    with pytest.raises(CarpalError) as caught:
        Reference.parse("corp", text, "policy.sources.token.ref")
    assert caught.value.fields["field"] == "policy.sources.token.ref"


def test_paths_are_those_named_and_those_below_what_ends_in_a_slash() -> None:
    patterns = ("agents/", "shared/one")
    assert within("agents/tracker", patterns)
    assert within("shared/one", patterns)
    for path in ("agents", "agentsx/a", "shared/one/two", "shared/on", "x/agents/a"):
        assert not within(path, patterns)
