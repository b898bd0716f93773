"""What is wrong on the way to a brain is found, step by step, and what the row says cures it."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from brain.app import BrainConfig
from brain.enrollment import EnrollmentService
from carpal import server
from carpal.identity import Role
from carpal.proof import Token
from carpal.revocations import Revocations
from carpal.server import serve
from carpal.status import Reason
from carpal.v1 import enrollment_pb2 as pb
from carpal.v1 import enrollment_pb2_grpc, vault_pb2
from hands.app import HandConfig
from hands.doctor import brain as asking_brain
from hands.doctor import stream, subject, unclocked
from hands.doctor.rows import Verdict
from hands.doctor.subject import Subject, utc_now
from hands.leaving import who_asks
from tests.connect_proxy import connect_proxy
from tests.fault_proxy import fault_proxy
from tests.hands.doctor.conftest import Patient
from tests.hands.doctor.idle_proxy import idle_proxy
from tests.hands.fake_brain import brain, serving
from tests.hands.place import until
from tests.pace import SCALE
from tests.pki import Pki
from tests.tls_ca import Authority
from vault.opened import authority_of

NAME = "brain.test:7441"
"""A name that nobody but a proxy knows."""


def by(patient: Patient, proxy: str) -> Subject:
    """The patient, with this proxy in its settings."""
    settings = msgspec.structs.replace(patient.subject.settings, proxy=proxy)
    return replace(patient.subject, settings=settings)


async def test_a_name_that_is_not_known_is_told_and_known_to_the_resolver_it_is_well(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = patient.brain.address.rpartition(":")[2]
    there = f"brain-1.invalid:{port}"
    patient.dials(there)
    real = socket.getaddrinfo

    def unknown(host: str, *rest: Any, **more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def known(host: str, *rest: Any, **more: Any) -> Any:
        return real("127.0.0.1" if host == "brain-1.invalid" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    await patient.fails("dns brain-1.invalid", "not known", "/etc/hosts")
    assert (await patient.rows())[f"mtls {there}"].verdict is Verdict.SKIP
    monkeypatch.setattr(socket, "getaddrinfo", known)
    await patient.cured("dns brain-1.invalid")
    await patient.cured(f"tls {there}")


async def test_a_brain_that_is_not_there_is_told_and_started_it_is_well(
    patient: Patient,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    patient.dials(address)
    await patient.fails(f"tcp {address}", "refused", "start the brain")
    me, store = patient.domain.identity(Role.BRAIN, "brain-1"), patient.brain.store
    async with serving(me, store, address):
        await patient.cured(f"tcp {address}")
        await patient.cured(f"mtls {address}")


async def test_a_brain_that_is_gone_is_a_warning_while_another_one_answers(
    patient: Patient,
) -> None:
    patient.dials("127.0.0.1:1", patient.brain.address)
    await patient.warns("tcp 127.0.0.1:1", "another brain answers")
    await patient.cured(f"mtls {patient.brain.address}")


async def test_a_path_that_swallows_all_is_told_in_bounded_time_and_healed_it_is_well(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hands.presented._TIMEOUT", 0.3 * SCALE)
    async with fault_proxy(patient.brain.address) as path:
        patient.dials(path.address)
        path.blackhole()
        await patient.fails(f"tls {path.address}", "cannot be reached")
        path.heal()
        monkeypatch.setattr("hands.presented._TIMEOUT", 10.0 * SCALE)
        await patient.cured(f"tls {path.address}")
        await patient.cured(f"mtls {path.address}")


async def test_an_enrolment_port_that_is_not_there_leaves_what_it_says_unlooked_at(
    patient: Patient,
) -> None:
    patient.dials(patient.brain.address, enrollment="127.0.0.1:1")
    await patient.fails("tcp 127.0.0.1:1", "refused")
    rows = await patient.rows()
    assert {rows[each].verdict for each in ("clock", "standing", "version")} == {Verdict.SKIP}
    patient.dials(patient.brain.address)
    await patient.cured("standing")


async def test_a_proxy_variable_that_is_wrong_is_named_and_corrected_it_is_well(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.dials(NAME)
    async with connect_proxy({NAME: patient.brain.address}) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"https://u:s3cret@127.0.0.1:{proxy.port}")
        row = await patient.fails(f"proxy {NAME}", "HTTPS_PROXY", "https://", "http://HOST:PORT")
        assert "s3cret" not in row.text()
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
        await patient.fails(f"tcp {NAME}", "does not answer", "the variable HTTPS_PROXY")
        monkeypatch.setenv("HTTPS_PROXY", f"http://u:s3cret@127.0.0.1:{proxy.port}")
        row = await patient.cured(f"proxy {NAME}")
        assert "HTTPS_PROXY" in row.detail
        assert "s3cret" not in row.detail
        for step in ("tcp", "tls", "mtls"):
            await patient.cured(f"{step} {NAME}")


async def test_a_proxy_that_refuses_is_told_and_with_what_it_asks_for_it_is_well(
    patient: Patient,
) -> None:
    patient.dials(NAME)
    async with connect_proxy({}, user="us:p4ss") as proxy:
        patient.subject = by(patient, proxy.url())
        await patient.fails(f"tcp {NAME}", "407", "http://USER:PASSWORD@HOST:PORT")
        patient.subject = by(patient, proxy.url("us:p4ss"))
        row = await patient.fails(f"tcp {NAME}", "403", f"allow CONNECT to {NAME}")
        assert "p4ss" not in row.text()
        proxy.names[NAME] = patient.brain.address
        await patient.cured(f"mtls {NAME}")


async def test_a_middlebox_that_opens_tls_is_named_and_passed_by_it_is_well(
    patient: Patient, tmp_path: Path
) -> None:
    box = Authority(tmp_path, "Corp Inspection CA")
    server = await asyncio.start_server(_shows, "127.0.0.1", 0, ssl=_h2(box.server()))
    async with server:
        there = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        patient.dials(there)
        await patient.fails(f"tls {there}", "'Corp Inspection CA'", "opens TLS", "unopened")
    patient.dials(patient.brain.address)
    await patient.cured(f"tls {patient.brain.address}")


async def test_another_vaults_brain_is_told_and_with_the_right_address_it_is_well(
    patient: Patient, pki: Pki
) -> None:
    async with brain(pki, "brain-9") as other:
        patient.dials(other.address)
        await patient.fails(f"tls {other.address}", "brain-9", "another authority", "address")
    patient.dials(patient.brain.address)
    await patient.cured(f"tls {patient.brain.address}")


async def test_a_revoked_machine_is_told_and_enrolled_anew_it_is_well(patient: Patient) -> None:
    stub = await patient.domain.vault()
    mine = patient.files.identity.identity().uri
    request = vault_pb2.RevokeIdentityRequest(identity=mine, reason="lost")
    await stub.RevokeIdentity(request, timeout=10 * SCALE)
    await patient.fails("standing", Reason.IDENTITY_REVOKED, "carpal hand enroll --token-file")
    address = patient.brain.address
    await patient.fails(f"mtls {address}", "revoked", "`standing`")
    patient.domain.clock.offset = timedelta(seconds=2)  # it is of what was issued until a second
    await patient.enrol()
    patient.dials(address)
    await patient.cured("standing")
    await patient.cured(f"mtls {address}")


async def test_a_machine_in_quarantine_is_told_and_lifted_it_is_well(
    patient: Patient, kept_out: list[str]
) -> None:
    kept_out.append("d")
    await patient.fails("standing", "a copied machine", "carpal fleet quarantine d --lift")
    kept_out.remove("d")
    await patient.cured("standing")


@pytest.mark.parametrize(("ours", "word"), [((2, 3), "upgrade the brain"), ((0, 0), "install")])
async def test_a_version_outside_of_the_brains_window_is_told_and_with_the_right_one_it_is_well(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, ours: tuple[int, int], word: str
) -> None:
    with monkeypatch.context() as other:
        other.setattr(asking_brain, "PROTOCOL_MIN", ours[0])
        other.setattr(asking_brain, "PROTOCOL_MAX", ours[1])
        await patient.fails("version", word)
    await patient.cured("version")


@pytest.mark.slow
async def test_a_stream_that_is_cut_for_being_silent_is_told_and_let_be_silent_it_is_well(
    patient: Patient,
) -> None:
    hold, silence = 1.6 * SCALE, 0.8 * SCALE
    async with idle_proxy(patient.brain.address, silence=silence) as path:
        patient.dials(path.address)
        target = f"stream {path.address}"
        # Heartbeats every 0.25 s, and 0.75 s apart at most: links live.
        await patient.warns(target, "silent", hold=hold, scale=0.05 * SCALE)
        # They may be 1.5 s apart: some links would not.
        await patient.fails(target, "heartbeats may be", hold=hold, scale=0.1 * SCALE)
        path.silence = 3600
        await patient.cured(target, hold=hold, scale=0.05 * SCALE)


async def test_a_stream_that_is_cut_for_its_age_is_told_and_let_live_it_is_well(
    patient: Patient,
) -> None:
    async with idle_proxy(patient.brain.address, age=0.6 * SCALE) as path:
        patient.dials(path.address)
        target, changes = f"stream {path.address}", {"hold": 1.2 * SCALE, "scale": 0.04 * SCALE}
        await patient.fails(target, "though it was not silent", **changes)
        path.age = 3600
        await patient.cured(target, **changes)


async def test_a_path_that_swallows_what_is_held_on_it_is_told_though_nothing_is_cut(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_ANSWER", 1.0 * SCALE)
    loaded = patient.subject.loaded()
    assert loaded is not None
    async with fault_proxy(patient.brain.address) as path:
        subject = replace(patient.subject, hold=1.0 * SCALE, scale=0.05 * SCALE)
        holding = asyncio.create_task(stream.held(subject, loaded, path.address))
        for number in (1, 2):
            await path.connected(number, 10 * SCALE)
        await until(
            lambda: min(one.down.passed for one in path.connections) > 2_000, "no handshakes"
        )
        path.blackhole()
        row = await holding
    assert row.verdict is Verdict.FAIL, row.text()
    assert "nothing comes through" in row.detail


async def test_a_path_that_swallows_a_stream_before_it_began_is_told_too(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_ANSWER", 0.3 * SCALE)
    loaded = patient.subject.loaded()
    assert loaded is not None
    async with fault_proxy(patient.brain.address) as path:
        path.blackhole()
        subject = replace(patient.subject, hold=1.0 * SCALE, scale=0.05 * SCALE)
        row = await stream.held(subject, loaded, path.address)
    assert (row.verdict, "nothing comes through" in row.detail) == (Verdict.FAIL, True), row.text()


def test_a_clock_may_be_wrong_by_five_minutes_and_is_warned_of_before() -> None:
    rows = [asking_brain.clock(timedelta(seconds=at), timedelta()) for at in (29, 31, -299, 301)]
    assert [row.verdict for row in rows] == [
        *(Verdict.OK, Verdict.WARN, Verdict.WARN, Verdict.FAIL),
    ]


def test_a_held_stream_beats_as_links_do_whose_brain_pings_every_30_seconds() -> None:
    assert BrainConfig().heartbeat == subject.BEAT
    assert msgspec.convert({"heartbeat": subject.LONGEST_BEAT}, BrainConfig)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"heartbeat": subject.LONGEST_BEAT + 0.1}, BrainConfig)
    assert subject.LONGEST_BEAT == 15
    assert dict(server._OPTIONS)["grpc.keepalive_time_ms"] == 30_000


async def test_a_stream_is_held_only_when_asked_for(patient: Patient) -> None:
    rows = await patient.rows()
    assert (rows["stream"].verdict, "--hold 75s" in rows["stream"].action) == (Verdict.SKIP, True)


async def test_before_enrolling_a_token_is_enough_to_look_at_the_way_and_is_not_used_up(
    patient: Patient, tmp_path: Path, token_of: Callable[..., Awaitable[Token]]
) -> None:
    token = await token_of()
    new = Subject(HandConfig(state_dir=tmp_path / "new", sandbox="off"), token=token)
    patient.subject = new
    await patient.cured(f"tls {token.address}")
    await patient.warns("enrolment", "not enrolled", "carpal hand enroll")
    assert "clock" not in await patient.rows()
    assert "carpal hand enroll" in (await patient.rows())["next"].action
    assert not (tmp_path / "new").exists()
    patient.subject = replace(new, token=replace(token, pins=(bytes(32),)))
    await patient.fails(f"tls {token.address}", "another authority")


async def test_the_time_is_told_by_a_brain_whose_certificate_is_not_valid_by_our_clock(
    pki: Pki, patient: Patient
) -> None:
    """As all are to a machine whose clock is wrong: gRPC would not ask at all."""
    late = utc_now() - timedelta(days=9)
    files = pki.issue(Role.BRAIN, "b", not_before=late, not_after=late + timedelta(days=1))
    daemon = pki.issue(Role.DAEMON, "d").load()
    loaded = files.load()
    service = EnrollmentService(Any, lambda: (), files, Revocations())  # type: ignore[arg-type]

    def register(server: grpc.aio.Server) -> None:
        enrollment_pb2_grpc.add_EnrollmentServicer_to_server(service, server)

    shown = grpc.ssl_server_credentials([(loaded.key_pem, loaded.chain)])
    async with serve("127.0.0.1:0", shown, register, authorize=False) as server:
        where = (server.address, pki.trust_domain)
        async with unclocked.asking(*where, pki.ca_pem, None) as stub:
            request = pb.DiagnoseRequest(**who_asks(daemon))
            answer = await stub.Diagnose(request, timeout=10 * SCALE)
        assert abs(answer.server_time.seconds - utc_now().timestamp()) < 10 * SCALE
        with pytest.raises(ssl.SSLCertVerificationError):  # another authority's is not believed
            async with unclocked.asking(*where, authority_of(patient.domain.files).pem, None):
                pass


async def _shows(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def _h2(context: ssl.SSLContext) -> ssl.SSLContext:
    context.set_alpn_protocols(["h2"])
    return context
