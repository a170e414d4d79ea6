"""A whole AWS on this machine, to deploy to: ministack, as strict as it gets.

Rule: every request is signed, and its signature is checked. Every role may do what its policies say and nothing else.
All of it goes over TLS, as on AWS. So what is deployed here works for its policies, and not without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.servers import install
from tests.servers.run import CREDENTIALS, lent_folder, running

EMULATOR = Path(__file__).with_name("emulator.py")
RESOLVER = Path(__file__).with_name("resolver")


@dataclass(frozen=True)
class Aws:
    """An AWS in one process, which checks every signature and every policy.

    Args:
        url: Of all its services.
        certificate: What its TLS is trusted by.
        env: What a client of it needs.
    """

    url: str
    certificate: Path
    env: Mapping[str, str]


@contextmanager
def aws() -> Iterator[Aws]:
    """Lend an AWS to deploy to; its functions run as processes of it.

    Raises:
        CannotInstall, CannotStart: There is none.
    """
    python = install.ministack().with_name("python")
    with lent_folder(None) as folder:
        certificate, key = _certificate(folder)
        trust = {"AWS_CA_BUNDLE": str(certificate), "SSL_CERT_FILE": str(certificate)}

        def env(port: int) -> Mapping[str, str]:
            return {
                **CREDENTIALS,
                **trust,  # for the functions, which inherit it
                "PYTHONPATH": str(RESOLVER),  # for those that call another region's API
                "GATEWAY_PORT": str(port),
                "MINISTACK_HOST": "127.0.0.1",
                "BIND_HOST": "127.0.0.1",
                "AUTH": "true",
                "USE_SSL": "1",
                "MINISTACK_SSL_CERT": str(certificate),
                "MINISTACK_SSL_KEY": str(key),
                "TMPDIR": str(folder),
            }

        with running(lambda _: [str(python), str(EMULATOR)], env, scheme="https") as url:
            yield Aws(
                url,
                certificate,
                {**CREDENTIALS, **trust, "AWS_ENDPOINT_URL": url, "NODE_EXTRA_CA_CERTS": str(certificate)},
            )


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for loopback, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("*.execute-api.127.0.0.1")]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fenceline tests")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, private
