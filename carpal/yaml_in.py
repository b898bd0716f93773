"""YAML that people write: one mapping, read without surprises, and where each key stands. Pure.

Read so that no two readers of YAML could take it for different things: a word
such as `no`, which is false to some of them and text to others, is refused
where it stands bare. A key given twice, a tag, a merge (`<<`) and more values
than a person writes, as anchors can make them, are refused too.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from carpal.mistake import SIZE_MAX, Mistake

VALUES_MAX = 10_000
"""Keys and values, each alias counted with all it stands for."""
DEPTH_MAX = 30
"""Mappings and lists within each other."""

_STRING = "tag:yaml.org,2002:str"
_MAPPING = "tag:yaml.org,2002:map"
_LIST = "tag:yaml.org,2002:seq"
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUE = {"true", "True", "TRUE"}
_FALSE = {"false", "False", "FALSE"}
_WORDS = re.compile(r"(?i:yes|on)\Z|(?P<no>(?i:no|off))\Z")
"""Booleans to YAML 1.1 and text to YAML 1.2."""
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})\Z")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?\Z")
_ODD_NUMBER = re.compile(
    r"[-+]?(0[0-7_]+|0[0-9]+|0[xob][0-9a-fA-F_]+|[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?|[0-9]{20,}"
    r"|\.(inf|Inf|INF|nan|NaN|NAN))\Z"
)
"""What some read as a number, and not the same one, or what JSON has no number for."""


@dataclass
class Read:
    """A text's mapping, and the line of each key in it."""

    data: dict[str, Any]
    lines: dict[str, int] = field(default_factory=dict)
    """`hands.shell.resources[0]` → its line, from 1 on."""

    def line_of(self, key: str) -> int:
        """The line of a key, or of the nearest that stands around it; 0 for the whole."""
        while key and key not in self.lines:
            key = key[: max(key.rfind("."), key.rfind("["), 0)]
        return self.lines.get(key, 0)


def read_mapping(text: str) -> Read:
    """What a text says, or Mistake."""
    if len(text.encode()) > SIZE_MAX:
        raise Mistake(f"has {len(text.encode())} bytes, and may have {SIZE_MAX}")
    try:
        node = yaml.compose(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ": ".join(part for part in (error.context, error.problem) if part)
        raise Mistake(f"not YAML: {said}", line=mark.line + 1 if mark else 0) from None
    except yaml.YAMLError as error:
        raise Mistake(f"not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise Mistake("is nested too deeply") from None
    if not isinstance(node, yaml.MappingNode):
        raise Mistake("must be a mapping, lines of `key: value`", line=1 if node else 0)
    walk = _Walk()
    return Read(walk.mapping(node, "", 1), walk.lines)


def write_mapping(data: dict[str, Any]) -> str:
    """A text that reads as the data; keys keep their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def plain(text: str) -> Any:
    """What a bare word is: null, true, false, a number or itself.

    Mistake where YAML's readers differ.
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if word := _WORDS.match(text):
        meant = "false" if word["no"] else "true"
        raise Mistake(
            f"`{text}` is {meant} to some readers of YAML and text to others: "
            f'write {meant}, or "{text}" in quotes'
        )
    if _ODD_NUMBER.match(text):
        raise Mistake(
            f"`{text}` is not the same number to all readers of YAML: "
            f'write a plain one, or "{text}" in quotes'
        )
    if _INTEGER.match(text):
        return int(text)
    if _NUMBER.match(text):
        number = float(text)
        if not math.isfinite(number):
            raise Mistake(f"`{text}` is too large for a number")
        return number
    return text


class _Loader(yaml.BaseLoader):
    """Resolves nothing: what a bare word is, `plain` says."""


class _Walk:
    """From nodes to values, counted."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self._values = 0

    def mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Any]:
        """A mapping's value."""
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise Mistake("a key must be text", line=line, key=path)
            name = key_node.value
            key = f"{path}.{name}" if path else name
            if name == "<<" and key_node.style is None:
                raise Mistake("a merge is not read: write the keys out", line=line, key=key)
            if name in made:
                raise Mistake("is given twice", line=line, key=key)
            self.lines.setdefault(key, line)
            made[name] = self._value(value_node, key, depth + 1)
        return made

    def _value(self, node: yaml.Node, path: str, depth: int) -> Any:
        line = node.start_mark.line + 1
        self._values += 1
        if self._values > VALUES_MAX:
            raise Mistake(f"there are more than {VALUES_MAX} values", line=line)
        if depth > DEPTH_MAX:
            raise Mistake(f"is nested more than {DEPTH_MAX} deep", line=line)
        if node.tag not in (_STRING, _MAPPING, _LIST):
            raise Mistake(f"the tag {node.tag!r} is not read", line=line, key=path)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._item(each, f"{path}[{n}]", depth) for n, each in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        if node.style is not None:
            return node.value
        try:
            return plain(node.value)
        except Mistake as mistake:
            raise Mistake(mistake.problem, line=line, key=path) from None

    def _item(self, node: yaml.Node, path: str, depth: int) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        return self._value(node, path, depth + 1)


class _Dumper(yaml.SafeDumper):
    """Writes what the reader reads back: no anchors, text in quotes where bare it would be less."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style: str | None = '"'
    if not _TYPED.match(value):
        pass
    elif "\n" in value:
        style = "|"
    elif _is_plain(value):
        style = None
    return dumper.represent_scalar(_STRING, value, style=style)


_CONTROL = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff"
_TYPED = re.compile(rf"[^\s{_CONTROL}][^{_CONTROL}]*\Z")
"""What a person types, over many lines too: anything else is written with escapes."""


def _is_plain(value: str) -> bool:
    try:
        return bool(plain(value) == value)
    except Mistake:
        return False


_Dumper.add_representer(str, _text)
