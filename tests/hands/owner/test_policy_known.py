"""Names in a policy that nothing here has are no mistake of the file's, and are said."""

import pytest

from hands.owner.policy_known import unknown
from hands.owner.policy_text import read

TOOLS = {"process": ["bash", "read"], "socket": None}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('tools = ["bash", "*", "process/*", "process/read"]', []),
        ('tools = ["process/bsh", "phone/bash"]', ["tools: process/bsh", "tools: phone/bash"]),
        ('tools = ["phone/*", "socket/anything"]', ["tools: phone/*"]),
        ('types = ["process", "phone"]', ["types: phone"]),
        ('open_network = ["proces"]', ["open_network: proces"]),
        ('namespaces = ["process", "mpc"]', ["namespaces: mpc"]),
        ("tools = []", []),
        ("", []),
    ],
)
def test_a_name_that_no_type_has_is_found_and_one_that_may_be_known_is_not(
    text: str, found: list[str]
) -> None:
    assert unknown(read(text, "p"), TOOLS) == found


def test_a_tool_for_every_type_is_unknown_only_where_all_types_told_their_own() -> None:
    policy = read('tools = ["bsh"]', "p")
    assert unknown(policy, {"process": ["bash"]}) == ["tools: bsh"]
    assert unknown(policy, TOOLS) == []
