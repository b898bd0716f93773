"""Texts without secrets: those that are known, what looks like one, and what is named like one."""

import re

from hands.diag.known import Known

MARK = "[redacted]"
_LOOKS = (
    re.compile(r"-----BEGIN [A-Z0-9 ]*-----.*?(-----END [A-Z0-9 ]*-----|\Z)", re.DOTALL),
    re.compile(r"carpal1\.[^\s\"',]+"),
    re.compile(r"(?<=://)[^/\s\"'@]*:[^/\s\"']*(?=@)"),
    re.compile(r"(?i)\b(?:bearer|basic|digest|negotiate)[ :=]+[^\s\"',;]+"),
    re.compile(r"\beyJ[\w-]+\.[\w-]+\.?[\w-]*"),
    re.compile(r"\b(?:sk|pk|ghp|gho|ghs|glpat|xox[a-z]|AKIA|ASIA)[-_]?[A-Za-z0-9_-]{8,}"),
)
"""What is a secret by its looks."""
_NAME = (
    r"(?i)((?:pass(?:word|wd|phrase)?|secret|token|api[-_ ]?key|private[-_ ]?key|credential|"
    r"authorization|cookie)s?[\w-]*[\"']?"
)
_NAMED = (
    re.compile(_NAME + r"\s*(?:[:=]|\bis\b)\s*)(\"[^\"]*\"|'[^']*'|[^\s\"',;&)]+)"),
    re.compile(_NAME + r"\s+)([^\s\"',;&)]*\d[^\s\"',;&)]*)"),
)
"""A name of a secret, and what it is: after `:` or `=`, or a next word that has a digit."""
_RUN = re.compile(r"[A-Za-z0-9+=_-]{20,}")
_ID = re.compile(
    r"(?:jrnl|inst|tok|hand|call|sess|brn)_[0-9a-z]{8,40}\Z|[0-9T+-]+Z?\Z|[a-z_-]+\Z|[A-Z_]+\Z"
)
"""Long words that are none: ids of ours, times, names of things."""


class Cleaner:
    """Takes secrets out of texts."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def __call__(self, text: str) -> str:
        """`text` without them."""
        text = self._struck(text)
        for looks in _LOOKS:
            text = looks.sub(MARK, text)
        for named in _NAMED:
            text = named.sub(lambda found: found[1] + _unless_plain(found[2]), text)
        return _RUN.sub(lambda found: found[0] if _is_plain(found[0]) else MARK, text)

    def _struck(self, text: str) -> str:
        data = text.encode("utf-8", "surrogateescape")
        return self._known.strike(data, MARK.encode()).decode("utf-8", "replace")


def _unless_plain(word: str) -> str:
    """Words of our own sentences, such as "a token of", and paths, are left."""
    bare = word.strip("\"'`.:")
    return word if bare in _SENTENCES or bare.startswith(("--", "/")) else MARK


def _is_plain(word: str) -> bool:
    """Whether a long word is no secret: one of one kind of letters, an id, a time."""
    has = [any(kind(sign) for sign in word) for kind in (str.isdigit, str.isupper, str.islower)]
    return bool(_ID.match(word)) or sum(has) < 2


_SENTENCES = frozenset({
    *("a", "an", "and", "of", "is", "not", "the", "to", "with", "file", "for", "in", "refused"),
    *("used", "it", "was", "names", "or", "no", "by", "that", "this", "from", "FILE", "HMAC"),
})  # fmt: skip
