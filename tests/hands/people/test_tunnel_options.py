"""What a person asks of a tunnel is looked at before anything of it reaches a hand."""

import json

import pytest

from carpal.errors import CarpalError
from hands.people.tunnel_options import COMMAND_MAX, read


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("shell", {}),
        ("shell", {"tty": True, "rows": 31, "columns": 97, "term": "xterm-256color"}),
        ("shell", {"command": "x" * COMMAND_MAX}),
        ("copy", {"from": "/workspace/x"}),
        ("copy", {"to": "d/", "name": "ä b"}),
        ("forward", {}),
        ("forward", {"port": 65535}),
    ],
)
def test_what_a_kind_knows_is_taken(kind: str, options: dict[str, object]) -> None:
    assert read(kind, json.dumps(options).encode()) == options


@pytest.mark.parametrize(
    ("kind", "options", "field"),
    [
        ("watch", {}, "kind"),
        ("view", {"tty": True}, "options.tty"),
        ("control", {"take": True}, "options.take"),
        ("", {}, "kind"),
        ("shell", {"env": {"LD_PRELOAD": "x"}}, "options.env"),
        ("shell", {"tty": 1}, "options.tty"),
        ("shell", {"rows": 0}, "options.rows"),
        ("shell", {"columns": True}, "options.columns"),
        ("shell", {"term": "x;y"}, "options.term"),
        ("shell", {"command": ""}, "options.command"),
        ("shell", {"command": "a\0b"}, "options.command"),
        ("shell", {"command": "x" * (COMMAND_MAX + 1)}, "options.command"),
        ("copy", {}, "options"),
        ("copy", {"from": "x", "to": "y"}, "options"),
        ("copy", {"to": "y"}, "options.name"),
        ("copy", {"to": "y", "name": ".."}, "options.name"),
        ("copy", {"to": "y", "name": "a/b"}, "options.name"),
        ("copy", {"from": "a/../../b"}, "options.from"),
        ("forward", {"port": 0}, "options.port"),
        ("forward", {"port": "80"}, "options.port"),
    ],
)
def test_what_no_kind_knows_or_can_have_is_refused_by_its_field(
    kind: str, options: dict[str, object], field: str
) -> None:
    with pytest.raises(CarpalError) as caught:
        read(kind, json.dumps(options).encode())
    assert caught.value.fields["field"] == field
