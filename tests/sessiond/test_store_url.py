"""The URL of a store: wrong ones are refused in words that quote nothing of them."""

from pathlib import Path

import pytest

from carpal.status import Reason
from sessiond import store_url
from tests.command import Command
from tests.sessiond.desk import refused

WRONG = [
    "mysql://h/d",
    "postgresql://u:zz9%zzsecret9@h:1/d",
    "postgresql://u:secret9%00@h/d",
    "postgresql://u:secret9%@h/d",
    "postgresql://u:sec\nret9@h/d",
    "postgresql://u:sec/ret9@h/d",
    "postgresql://u:12/ret9@h/d",
    "postgresql://u:sec?ret9@h/d",
    "postgresql://u:sec#ret9@h/d",
    "postgresql://u:sec@ret9@h/d",
    "postgresql://u:secret9@[h/d",
    "postgresql://u:secret9@h:99999/d",
    "postgresql://u:secret9@h:0/d",
    "postgresql://u:secret9@h:1,h:ret9/d",
    "postgresql://u:secret9@[::1]:x/d",
    "postgresql://u:secret9@h/d?port=70000",
    "postgresql://u:secret9@h/d?port=1" + 5000 * "0",
]


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_refused_and_nothing_of_it_is_said(url: str) -> None:
    with refused(Reason.CONFIG_INVALID) as error:
        store_url.check(url)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    assert "ret9" not in str(error.value)
    assert "zz" not in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///d?host=/run/postgresql",
        "postgres://u:%40%2F%3F%23%25@h:5432,[::1]:5433,other/d?sslmode=require&port=",
        "postgresql://u@h/d?passfile=/etc/pass&require_auth=scram-sha-256",
    ],
)
def test_a_right_url_is_taken(url: str) -> None:
    assert store_url.check(url) == url


@pytest.mark.parametrize(
    "parameter", ["password", "sslpassword", "pass%77ord", "PASSWORD", "oauth_client_secret"]
)
def test_a_parameter_that_is_a_secret_does_not_belong_into_the_arguments(parameter: str) -> None:
    with refused(Reason.CONFIG_INVALID) as error:
        store_url.check(f"postgresql://u@h/d?{parameter}=secret9", from_argv=True)
    assert "PGPASSFILE" in str(error.value)
    assert "secret9" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://u:top%zzsecret9@h:1/db", "a % that is not %25"),
        ("postgresql://u:secret9@h:1/db?nosuch=secret9", "PostgreSQL's library"),
        ("postgresql://u:secret9@h:1/db?connect_timeout=ret9", "PostgreSQL's library"),
        ("postgresql://u:secret9@127.0.0.1:1/db?sslmode=ret9", "invalid sslmode value"),
    ],
)
async def test_a_command_says_in_one_line_what_is_wrong_with_its_store(
    tmp_path: Path, url: str, words: str
) -> None:
    ended = await Command(tmp_path, {"CARPAL_STORE": url})("sessiond", "restore")
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (2, "", 1), ended.stderr
    assert words in ended.stderr
    assert "ret9" not in ended.stderr
