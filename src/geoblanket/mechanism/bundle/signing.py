"""Detached Ed25519 signatures, which show who made a bundle. What it promises is verified in any case.

The signature of `city.bundle` is `city.bundle.sig`, 64 bytes over a fixed prefix and the SHA-256 of the file. Keys are
PEM files; `openssl genpkey -algorithm ed25519` makes one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from geoblanket._arguments import checked
from geoblanket._files import atomic_output, sha256_file
from geoblanket.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["check_signature", "sign_bundle", "signature_path"]

_PREFIX = b"geoblanket bundle 1\0"
_SIGNATURE_BYTES = 64
_LARGEST_KEY = 1 << 14


def signature_path(path: str | Path) -> Path:
    """Return where the signature of a bundle lies: beside it, with `.sig` added to its name."""
    path = Path(path)
    return path.with_name(path.name + ".sig")


@checked
def sign_bundle(path: str | Path, private_key: str | Path) -> Path:
    """Sign a bundle and return the path of the signature.

    Parameters
    ----------
    private_key
        A PEM file with an Ed25519 private key, without a password.

    Examples
    --------
    >>> from pathlib import Path
    >>> from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    >>> from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    >>> key = Ed25519PrivateKey.generate()
    >>> _ = Path("publisher.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    >>> from geoblanket.mechanism import sign_bundle
    >>> sign_bundle("city.bundle", "publisher.key").name
    'city.bundle.sig'
    """
    key = _private_key(Path(private_key))
    if not Path(path).is_file():
        raise InputError("no such file", path=path)
    signature = key.sign(_PREFIX + bytes.fromhex(sha256_file(path)))
    with atomic_output(signature_path(path)) as temporary:
        temporary.write_bytes(signature)
    return signature_path(path)


@checked
def check_signature(path: str | Path, digest: bytes, public_key: str | Path) -> None:
    """Raise InputError unless the signature beside a bundle is valid for its SHA-256 and this key.

    Parameters
    ----------
    digest
        The SHA-256 of the bundle as it was read.
    public_key
        A PEM file with an Ed25519 public key.
    """
    key = _public_key(Path(public_key))
    from cryptography.exceptions import InvalidSignature

    beside = signature_path(path)
    if not beside.is_file():
        raise InputError("has no signature", path=path, hint=f"Get {beside.name} from where the bundle came from")
    signature = _small_file(beside, _SIGNATURE_BYTES)
    try:
        key.verify(signature, _PREFIX + digest)
    except InvalidSignature as error:
        raise InputError(
            "its signature is not one of this file by this key",
            path=path,
            hint="The file or the signature was exchanged, or signed by someone else",
        ) from error


def _public_key(path: Path) -> Ed25519PublicKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise MissingExtraError("Checking a signature", "signing") from error
    try:
        key = load_pem_public_key(_small_file(path, _LARGEST_KEY))
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError("is not an Ed25519 public key in PEM form", path=path)
    return key


def _private_key(path: Path) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise MissingExtraError("Signing", "signing") from error
    try:
        key = load_pem_private_key(_small_file(path, _LARGEST_KEY), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError("is not an Ed25519 private key in PEM form without a password", path=path)
    return key


def _small_file(path: Path, largest: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    if len(content) > largest:
        raise InputError(f"has more than {largest} bytes", path=path)
    return content
