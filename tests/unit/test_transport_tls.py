"""The transport over TLS: verified by default, and a failed handshake is a failed connection."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ledger.providers.transport import (
    ConnectFailedError,
    Deadline,
    NoAnswerError,
    Origin,
    Response,
    Transport,
)
from tests.socket_server import Connection, answer, says, scripted
from tests.transport_calls import MARGIN, in_time, join_transport_threads


@dataclass(frozen=True)
class Certificate:
    server: ssl.SSLContext
    trusted: ssl.SSLContext


def certificate(folder: Path, name: str) -> Certificate:
    """A self-signed certificate for `name`, with the contexts of a server and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox")])
    now = dt.datetime.now(dt.UTC)
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    pem = built.public_bytes(serialization.Encoding.PEM)
    chain = folder / "certificate.pem"
    chain.write_bytes(
        pem
        + key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain)
    return Certificate(server=server, trusted=ssl.create_default_context(cadata=pem.decode()))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Certificate]:
    yield certificate(tmp_path, "127.0.0.1")
    join_transport_threads()


def post(base_url: str, tls: ssl.SSLContext | None, seconds: float = 20.0) -> Response:
    return Transport(origin=Origin.parse(base_url), tls=tls).send(
        "POST", "/v1/refunds", headers={"X": "y"}, body=b"amount=4900", deadline=Deadline.after(seconds)
    )


def test_an_answer_comes_back_over_tls(own: Certificate) -> None:
    with scripted(says(answer(200, b"{}")), tls=own.server) as server:
        assert post(server.base_url, own.trusted).body == b"{}"
        assert server.requests[0].endswith(b"amount=4900")


def test_a_certificate_nobody_vouches_for_is_not_written_to(own: Certificate) -> None:
    with scripted(says(answer(200)), tls=own.server) as server:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            post(server.base_url, None)
        assert server.arrived.acquire(timeout=MARGIN)
        assert server.connections[0].ended.wait(MARGIN)
        assert server.requests == [b""]


def test_a_certificate_for_another_name_is_not_written_to(tmp_path: Path) -> None:
    other = certificate(tmp_path, "api.example.com")
    with scripted(says(answer(200)), tls=other.server) as server:
        with pytest.raises(ConnectFailedError, match=r"(?i)certificate"):
            post(server.base_url, other.trusted)
        assert server.connections[0].ended.wait(MARGIN)
        assert server.requests == [b""]


def test_a_handshake_that_never_ends_is_a_failed_connection(own: Certificate) -> None:
    def hold(connection: Connection) -> None:
        connection.read_to_end()

    with scripted(hold, read=False) as server:
        with in_time(0.3), pytest.raises(ConnectFailedError):
            post(f"https://127.0.0.1:{server.port}", own.trusted, seconds=0.3)
        assert server.connections[0].ended.wait(MARGIN)
        assert b"amount" not in server.requests[0]


def test_no_answer_over_tls_is_over_at_the_deadline(own: Certificate) -> None:
    def hold(connection: Connection) -> None:
        connection.read_to_end()

    with scripted(hold, tls=own.server) as server:
        with in_time(0.5), pytest.raises(NoAnswerError) as caught:
            post(server.base_url, own.trusted, seconds=0.5)
        assert caught.value.reason == "timeout"
        assert server.connections[0].ended.wait(MARGIN)


def test_an_answer_cut_without_a_goodbye_is_no_answer(own: Certificate) -> None:
    # SSLSocket.close sends no close_notify: what somebody on the line could do as well
    cut = says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    with scripted(cut, tls=own.server) as server:
        with pytest.raises(NoAnswerError) as caught:
            post(server.base_url, own.trusted)
        assert caught.value.reason in {"truncated", "connection_lost"}


def test_the_default_trust_verifies_names_and_chains() -> None:
    from ledger.providers.transport import _default_tls

    context = _default_tls()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
