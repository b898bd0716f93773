"""What a hand's rules allow. Case H38 of the hands."""

import fnmatch
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpal.errors import BadInput
from carpal.yaml_in import read_mapping
from hands.forwarder.paths import fits, plain
from hands.forwarder.rules import Asked, as_config, parse, refusal

PYPI = parse([{"host": "pypi.org", "methods": ["GET"], "paths": ["/simple/*", "/pypi/*/json"]}])
OPEN = parse([{"host": "example.com"}])


def get(host: str, path: str = "/", port: int = 80, method: str = "GET") -> Asked:
    return Asked(host, port, method, path)


def tunnel(host: str, port: int = 443) -> Asked:
    return Asked(host, port, "CONNECT")


def test_h38_without_a_rule_nothing_goes_out() -> None:
    assert "no egress rules" in refusal((), get("pypi.org"))
    assert "no egress rules" in refusal(parse([]), tunnel("pypi.org"))


def test_h38_a_host_that_no_rule_names_is_refused_and_told_which_are() -> None:
    why = refusal((*PYPI, *OPEN), get("evil.example", "/simple/"))
    assert why == (
        "evil.example:80 is not among this hand's egress rules, which name pypi.org, example.com"
    )


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (get("pypi.org", "/simple/"), True),
        (get("pypi.org", "/simple/a/b"), True),
        (get("pypi.org", "/pypi/x/json"), True),
        (get("pypi.org", "/%73imple/x"), True),
        (get("pypi.org", "/pypi/json"), False),
        (get("pypi.org", "/simple"), False),
        (get("pypi.org", "/Simple/x"), False),
        (get("pypi.org", "/simple/x", method="POST"), False),
        (get("pypi.org", "/simple/x", method="get"), False),
        (get("pypi.org", "/simple/x", port=443), True),
        (get("pypi.org", "/simple/x", port=8080), False),
        (get("www.pypi.org", "/simple/x"), False),
        (get("pypi.org.evil.example", "/simple/x"), False),
        (Asked("pypi.org", 80, "GET", "/simple/x", overridden="X-HTTP-Method-Override"), False),
    ],
)
def test_methods_and_paths_are_those_of_the_rule(asked: Asked, allowed: bool) -> None:
    assert (refusal(PYPI, asked) == "") is allowed


@pytest.mark.parametrize(
    "path",
    [
        *("/simple/../admin", "/simple/./x", "/simple/%2e%2e/admin", "/simple/%2E./admin"),
        *("/simple/%252e%252e/admin", "/simple/..;/admin", "/simple/..%3b/admin", "/simple/.."),
        *("/simple/..%2fadmin", "/simple/%2f", "/simple/%252fx", "/simple/..%5cadmin"),
        *("/simple/..\\admin", "/simple/%00", "/simple/%0d%0aX", "/simple/%zz", "/simple/%"),
        "/simple/%25252525252e",
    ],
)
def test_a_path_that_some_server_reads_as_another_fits_no_rule_with_paths(path: str) -> None:
    assert "the path is not allowed" in refusal(PYPI, get("pypi.org", path))
    assert refusal(OPEN, get("example.com", path)) == ""


def test_connect_is_for_hosts_whose_rule_looks_at_neither_methods_nor_paths() -> None:
    assert refusal(OPEN, tunnel("example.com")) == ""
    assert "CONNECT hides" in refusal(PYPI, tunnel("pypi.org"))
    assert "CONNECT hides" in refusal(parse([{"host": "a.b", "methods": ["GET"]}]), tunnel("a.b"))
    both = parse([{"host": "a.b", "paths": ["/x"]}, {"host": "a.b:443"}])
    assert refusal(both, tunnel("a.b")) == ""
    assert refusal(both, get("a.b", "/y")) != ""


def test_a_star_before_a_host_is_for_the_names_below_it_alone() -> None:
    rules = parse([{"host": "*.Example.com:8443"}])
    assert refusal(rules, tunnel("a.b.example.com", 8443)) == ""
    for host in ("example.com", "notexample.com", "example.com.evil"):
        assert refusal(rules, tunnel(host, 8443)) != ""
    assert refusal(rules, tunnel("a.example.com")) != ""


def test_a_star_before_a_host_never_allows_an_address() -> None:
    assert refusal(parse([{"host": "*.com"}]), get("1.2.3.4")) != ""


@pytest.mark.parametrize(
    ("given_rules", "field"),
    [
        ({}, "config.egress"),
        ([{}], "config.egress[0].host"),
        ([{"host": ""}], "config.egress[0].host"),
        ([{"host": "*"}], "config.egress[0].host"),
        ([{"host": "a.*"}], "config.egress[0].host"),
        ([{"host": "*.127.0.0.1"}], "config.egress[0].host"),
        ([{"host": "127.1"}], "config.egress[0].host"),
        ([{"host": "https://a.b"}], "config.egress[0].host"),
        ([{"host": "a.b/x"}], "config.egress[0].host"),
        ([{"host": "a.b:x"}], "config.egress[0].host"),
        ([{"host": "a.b"}, {"host": "a.b", "methods": []}], "config.egress[1].methods"),
        ([{"host": "a.b", "methods": ["get"]}], "config.egress[0].methods[0]"),
        ([{"host": "a.b", "methods": ["GET", "CONNECT"]}], "config.egress[0].methods[1]"),
        ([{"host": "a.b", "paths": ["x"]}], "config.egress[0].paths[0]"),
        ([{"host": "a.b", "paths": ["/a/../b"]}], "config.egress[0].paths[0]"),
        ([{"host": "a.b", "paths": ["/a?b"]}], "config.egress[0].paths[0]"),
        ([{"host": "a.b", "port": 8}], "config.egress[0].port"),
    ],
)
def test_a_rule_that_is_wrong_is_refused_and_its_field_named(
    given_rules: object, field: str
) -> None:
    with pytest.raises(BadInput) as refused:
        parse(given_rules)
    assert refused.value.fields["field"] == field


def test_rules_are_kept_as_they_came() -> None:
    config = [
        {"host": "pypi.org", "methods": ["GET", "HEAD"], "paths": ["/simple/*"]},
        {"host": "[2001:db8::1]:8080"},
        {"host": "*.example.com:443"},
    ]
    assert as_config(parse(config)) == config


def test_the_rules_in_the_docs_are_rules() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/egress.md").read_text()
    agent = read_mapping(page.partition("```yaml\n")[2].partition("```")[0]).data
    rules = parse(agent["hands"]["code"]["config"]["egress"])
    assert refusal(rules, tunnel("pypi.org")) == ""
    assert refusal(rules, get("api.example.com", "/v1/items/7")) == ""
    assert refusal(rules, get("api.example.com", "/v2")) != ""
    assert refusal(rules, tunnel("10.1.2.3", 8080)) == ""


NAMES = st.from_regex(r"[a-z]{1,3}(\.[a-z]{1,3}){0,2}", fullmatch=True)


@given(
    st.lists(st.tuples(st.booleans(), NAMES, st.sampled_from([None, 80, 8080])), max_size=4),
    NAMES,
    st.sampled_from([80, 443, 8080]),
)
def test_what_is_allowed_is_what_some_rule_names_and_nothing_else(
    named: list[tuple[bool, str, int | None]], host: str, port: int
) -> None:
    rules = parse(
        [
            {"host": f"{'*.' if below else ''}{name}{f':{number}' if number else ''}"}
            for below, name, number in named
        ]
    )
    expected = any(
        (host.endswith(f".{name}") if below else host == name)
        and port in ((80, 443) if number is None else (number,))
        for below, name, number in named
    )
    assert (refusal(rules, get(host, port=port)) == "") is expected
    assert (refusal(rules, tunnel(host, port)) == "") is expected


@given(st.text("ab*/", max_size=8), st.text("ab/", max_size=10))
def test_a_star_in_a_path_stands_for_any_characters(pattern: str, path: str) -> None:
    assert fits(pattern, path) is fnmatch.fnmatchcase(path, pattern)


@given(st.text(max_size=20))
def test_a_plain_path_is_its_own_plain_form_and_means_the_same_encoded(text: str) -> None:
    path = f"/{quote(text, safe='/')}"
    try:
        found = plain(path)
    except ValueError:
        return
    assert plain(found) == found
    assert not {".", ".."} & set(found.split("/"))
