"""Certificate authority of a deployment, and a certificate for each side of the Dask cluster.

Each certificate says the role of its holder, which the other side of a connection checks
(`app.engine.certificate_roles`). The authority signs nothing else.
"""

import datetime
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from deploy.files import write_private

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
RENEWED_DAYS = 30
"""Certificates that expire within this time are renewed."""

_Key = ec.EllipticCurvePrivateKey


def ensure_authority(folder: Path) -> tuple[_Key, x509.Certificate]:
    """Return the authority in ``ca.key`` and ``ca.pem``; create it if there is none."""
    key_file, certificate_file = folder / "ca.key", folder / "ca.pem"
    if certificate_file.is_file():
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_file} is not a key of an elliptic curve")
        return key, x509.load_pem_x509_certificate(certificate_file.read_bytes())
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Rowveil cluster authority")
    certificate = (
        _builder(name, name, key.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, _pem(key))
    write_private(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return key, certificate


def ensure_certificate(folder: Path, names: Sequence[str], authority: tuple[_Key, x509.Certificate]) -> bool:
    """Write ``tls.key``, ``tls.pem`` and ``ca.pem``; return whether they were renewed.

    ``names`` are those of the host, and the first one is its role, too.
    """
    signer, signed_by = authority
    certificate_file = folder / "tls.pem"
    write_private(folder / "ca.pem", signed_by.public_bytes(serialization.Encoding.PEM))
    if certificate_file.is_file() and _serves(certificate_file, folder / "tls.key", signer, names):
        return False
    key = ec.generate_private_key(ec.SECP256R1())
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(_name(f"rowveil {names[0]}"), signed_by.subject, key.public_key(), CERTIFICATE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, hashes.SHA256())
    )
    write_private(folder / "tls.key", _pem(key))
    write_private(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return True


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    """Return the names of a certificate, the first of which is also its role."""
    role = x509.UniformResourceIdentifier(f"urn:rowveil:role:{names[0]}")
    return [role, *(x509.DNSName(name) for name in names)]


def _serves(file: Path, key_file: Path, signer: _Key, names: Sequence[str]) -> bool:
    """Return whether the certificate is valid long enough, from this authority, with these names and its key.

    The key may differ after an interrupted renewal.
    """
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    except (FileNotFoundError, ValueError):
        return False
    if key.public_key() != certificate.public_key():
        return False
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    same = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value == issuer
    named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    complete = list(named) == _alternatives(names)
    return same and complete and left > datetime.timedelta(days=RENEWED_DAYS)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # allow for clock differences
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
