"""A provider behind one's own authority, which may want a certificate: both by brain.toml."""

import os
from pathlib import Path

import pytest

from brain.models.model import Model, Reply
from brain.models.settings import Provider
from brain.session import model_kinds as kinds
from tests.brain.models.asking import ASK, failure, reply
from tests.model_endpoint import endpoint
from tests.tls_ca import Authority

KEY = {"x-api-key": "k"}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def test_a_ca_bundle_is_what_the_service_must_be_known_by(authority: Authority) -> None:
    async with endpoint(authority.server()) as service:
        await reply(
            Provider(
                kind="anthropic",
                base_url=service.url,
                headers=KEY | {"x-team": "blue"},
                ca_bundle=str(authority.bundle),
            )
        )
        assert service.asked[0].headers["x-team"] == "blue"
        failed = await failure(Provider(kind="anthropic", base_url=service.url, headers=KEY))
        assert failed.retryable
        assert "certificate verify failed" in failed.message
        assert len(service.asked) == 1


async def test_a_client_certificate_is_shown_and_without_it_nothing_is_served(
    authority: Authority,
) -> None:
    certificate, key = authority.issue("brain-1")
    async with endpoint(authority.server(asks=True)) as service:
        settings = {
            "kind": "anthropic",
            "base_url": service.url,
            "headers": KEY,
            "ca_bundle": str(authority.bundle),
        }
        shown = {"client_certificate": str(certificate), "client_key": str(key)}
        await reply(Provider(**settings, **shown))  # type: ignore[arg-type]
        assert service.asked[0].subject == "brain-1"
        failed = await failure(Provider(**settings))  # type: ignore[arg-type]
        assert failed.retryable
        assert len(service.asked) == 1


async def test_a_certificate_that_was_renewed_is_shown_from_the_next_call_on(
    authority: Authority, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    async with endpoint(authority.server(asks=True)) as service:
        provider = Provider(
            kind="anthropic",
            base_url=service.url,
            headers=KEY,
            ca_bundle=str(authority.bundle),
            client_certificate=str(both),
        )
        model = Model({"p": provider}, "p")
        for count, name in enumerate(("first", "second"), start=1):
            certificate, key = authority.issue(name)
            both.write_bytes(certificate.read_bytes() + key.read_bytes())
            os.utime(both, (count, count))
            assert isinstance(await model.call(ASK, lambda text, thinking: None), Reply)
        await model.close()
        assert [asked.subject for asked in service.asked] == ["first", "second"]


async def test_a_file_that_is_missing_or_no_certificate_is_named_by_its_setting(
    authority: Authority, tmp_path: Path
) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for key, path, part in (
        ("ca_bundle", tmp_path / "none.pem", "ca_bundle: No such file"),
        ("ca_bundle", junk, "ca_bundle"),
        ("client_certificate", junk, "client_certificate"),
    ):
        settings = {"kind": "anthropic", "headers": KEY, key: str(path)}
        failed = await failure(Provider(**settings))  # type: ignore[arg-type]
        assert (failed.kind, failed.retryable) == (kinds.PROVIDER, False)
        assert part in failed.message
        assert str(tmp_path) not in failed.message, "a log says nothing of the brain's machine"
