"""A secret takes part in everything and shows itself in nothing."""

import copy
import dataclasses
import json
import logging
import pickle
import pprint
import traceback
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from carpal.errors import BadInput
from vault.secret import Secret, storable

VALUE = "canary-1f6b-SUPERSECRET"
KEY = b"k" * 32


@dataclasses.dataclass
class Holder:
    secret: Secret


def test_only_reveal_gives_the_value() -> None:
    assert Secret(VALUE, KEY).reveal() == VALUE.encode()


def test_nothing_that_prints_or_formats_shows_it() -> None:
    secret = Secret(VALUE, KEY)
    mark = f"Secret(fp={secret.fingerprint})"
    shown = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r:>99}",
        f"{secret:>99}",
        "%s" % secret,  # noqa: UP031 - this way of formatting is what is tried
        "{0}".format(secret),  # noqa: UP030, UP032 - as above
        pprint.pformat({"a": [secret]}),
        repr(Holder(secret)),
        str(ValueError(secret)),
        json.dumps({"a": secret}, default=str),
        logging.LogRecord("x", 20, "f", 1, "with %s", (secret,), None).getMessage(),
    ]
    assert all("Secret(fp=" in each for each in shown)
    assert [each for each in shown if VALUE in each] == []
    assert str(secret) == mark


def test_a_traceback_with_its_locals_does_not_show_it() -> None:
    def fails(given: Secret) -> None:
        raise ValueError(given)

    try:
        fails(Secret(VALUE))
    except ValueError as error:
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        text = "".join(told.format())
    assert "given = Secret(fp=none)" in text
    assert VALUE not in text.replace(f'VALUE = "{VALUE}"', "")


def test_it_is_neither_pickled_copied_nor_encoded() -> None:
    secret = Secret(VALUE)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError):
            pickle.dumps(secret, protocol)
    ways: list[Callable[[Any], object]] = [
        copy.copy,
        copy.deepcopy,
        json.dumps,
        msgspec.json.encode,
        bytes,
        list,
        len,
        vars,
        b64encode,
        lambda each: dataclasses.asdict(Holder(each)),
    ]
    for encode in ways:
        with pytest.raises(TypeError):
            encode(secret)


def test_it_has_no_hash_and_equals_only_a_secret_of_the_same_value() -> None:
    assert Secret(VALUE, KEY) == Secret(VALUE)
    assert Secret(VALUE) != Secret(VALUE + "x")
    assert Secret(VALUE) != VALUE
    with pytest.raises(TypeError):
        hash(Secret(VALUE))


def test_a_fingerprint_tells_values_apart_by_the_key_alone() -> None:
    one = Secret(VALUE, KEY).fingerprint
    assert one == Secret(VALUE, KEY).fingerprint
    assert len(one) == 16
    assert (
        len({one, Secret(VALUE, b"l" * 32).fingerprint, Secret(VALUE + "x", KEY).fingerprint}) == 3
    )


@pytest.mark.parametrize(
    "value",
    [
        "short",
        "x" * 8193,
        "with a space in",
        "line\r\nX-Evil: 1",
        "nul\0nul\0nul\0",
        "größer-als-ascii",
    ],
)
def test_what_could_not_be_a_header_is_not_stored_and_not_shown_v25(value: str) -> None:
    with pytest.raises(BadInput) as refused:
        storable(value.encode(), "token")
    assert value not in str(refused.value)
    assert refused.value.fields["field"] == "token"


def test_a_usual_token_may_be_stored() -> None:
    storable(b"sk-ant-api03-" + b"Zz9_-" * 20)
