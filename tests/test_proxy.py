"""Which way a daemon dials: as the page says, or not at all; never straight without a word."""

import pytest

from carpal.errors import BadInput
from carpal.proxy import NONE, VARIABLES, Proxy, Way, by
from carpal.status import Reason

BRAIN = "brain.example.com:7441"
URL = "http://proxy:3128"


def host(by: Way) -> str:
    """The proxy's, by which the brain is dialled; empty when it is not by one."""
    proxy = by.to(BRAIN)
    return proxy.host if proxy else ""


def way(configured: str = "", **environ: str) -> Way:
    return Way(configured, environ)


@pytest.mark.parametrize("name", [*VARIABLES, "CARPAL_PROXY"])
def test_a_proxy_in_any_of_the_variables_is_used_in_either_case_l08(name: str) -> None:
    proxy = way(**{name: URL}).to(BRAIN)
    assert proxy is not None
    assert (proxy.address, proxy.url) == ("proxy:3128", URL)
    assert not way(**{name: ""}).to(BRAIN), "empty is not set"


def test_the_setting_comes_before_the_variables_and_lower_case_before_upper() -> None:
    both = {"https_proxy": "http://lower:1", "HTTPS_PROXY": "http://upper:1"}
    assert host(way(**both)) == "lower"
    assert host(way("http://set:1", **both)) == "set"
    assert host(way(CARPAL_PROXY="set:1", **both)) == "set"
    assert host(way(NONE, **both)) == ""
    assert way(http_proxy="http://plain:1", HTTPS_PROXY="http://tls:1").to(BRAIN) == Proxy(
        "tls", 1, "the variable HTTPS_PROXY"
    )


@pytest.mark.parametrize("name", ["no_grpc_proxy", "no_proxy", "NO_PROXY"])
@pytest.mark.parametrize(
    ("excepted", "address"),
    [
        ("*", BRAIN),
        ("brain.example.com", BRAIN),
        ("example.com", BRAIN),
        (".example.com", BRAIN),
        ("*.example.com", BRAIN),
        ("other, EXAMPLE.com", BRAIN),
        ("other EXAMPLE.com.", BRAIN),
        ("example.com:7441", BRAIN),
        ("10.1.2.3", "10.1.2.3:7441"),
        ("10.0.0.0/8", "10.1.2.3:7441"),
        ("192.168.0.0/16,fd00::/8", "[fd00::7]:7441"),
    ],
)
def test_what_no_proxy_names_is_dialled_straight_l08(
    name: str, excepted: str, address: str
) -> None:
    assert way(URL, **{name: excepted}).to(address) is None


@pytest.mark.parametrize(
    ("excepted", "address"),
    [
        ("ample.com", BRAIN),
        ("example.com:443", BRAIN),
        ("10.0.0.0/8", "11.1.2.3:7441"),
        ("10.0.0.0/8", "10.example.com:7441"),
        ("1.2.3", "10.1.2.3:7441"),
        (",, ", BRAIN),
    ],
)
def test_what_no_proxy_does_not_name_is_not_l08(excepted: str, address: str) -> None:
    assert way(URL, NO_PROXY=excepted).to(address) is not None


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"])
def test_loopback_is_always_dialled_straight(address: str) -> None:
    assert way(URL, HTTPS_PROXY="https://proxy:1").to(address) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://u:secret@proxy:3128",
        "socks5://proxy:1080",
        "http://",
        "http://proxy:no",
        "http://[::",
    ],
)
def test_a_proxy_that_cannot_be_used_is_refused_and_nothing_of_its_url_is_said_l08(
    url: str,
) -> None:
    for asked in (way(HTTPS_PROXY=url), way(url)):
        with pytest.raises(BadInput) as caught:
            asked.to(BRAIN)
        assert caught.value.reason is Reason.CONFIG_INVALID
        assert "secret" not in str(caught.value)


def test_user_and_password_go_to_the_proxy_as_they_are_meant_and_into_no_log() -> None:
    proxy = way("http://us%40er:p%3Aw@[fd00::1]:8080").to(BRAIN)
    assert proxy is not None
    assert (proxy.user, proxy.password, proxy.address) == ("us@er", "p:w", "[fd00::1]:8080")
    assert proxy.url == "http://us%40er:p%3Aw@[fd00::1]:8080"
    assert b"Proxy-Authorization: Basic dXNAZXI6cDp3\r\n" in proxy.connect(BRAIN)
    assert "p:w" not in repr(proxy)


def test_a_proxy_without_a_port_is_at_the_port_of_http() -> None:
    assert way("http://proxy").to(BRAIN) == Proxy("proxy", 80, "the setting `proxy`")


def test_who_asks_is_told_which_proxy_and_who_named_it() -> None:
    named = Way("http://p:3", {"CARPAL_PROXY": "http://p:3"}).to(BRAIN)
    assert by(named) == " by the proxy p:3 (the variable CARPAL_PROXY)"
    assert by(None) == ""
