"""Which files a reader of bundles takes: who signed them, for which domain, and how new they are.

What a bundle promises is verified in any case; whether that is enough, a `Policy` says. The signature of `city.bundle`
is `city.bundle.sig`: detached, Ed25519, 64 bytes over a fixed prefix and the SHA-256 of the file. Keys are PEM files;
`openssl genpkey -algorithm ed25519` makes one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from geoblanket._arguments import checked
from geoblanket._display import options_repr
from geoblanket._files import atomic_output, sha256_file
from geoblanket.errors import InputError, MismatchError, MissingExtraError
from geoblanket.mechanism.bundle.header import BundleHeader

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

HINT: Final = "Get it again from where it came from"
_PREFIX = b"geoblanket bundle 1\0"
_SIGNATURE_BYTES = 64
_LARGEST_KEY = 1 << 14


@checked
@dataclass(frozen=True, kw_only=True)
class Trust:
    """Which bundles are accepted.

    Parameters
    ----------
    public_key
        A PEM file with an Ed25519 public key: the signature beside the bundle (`.sig`) must be by this key. None: no
        signature is checked. The promise never depends on it.
    allow_unsigned
        With a public key: also accept a bundle without a valid signature; `Bundle.signed` tells.
    domain
        The hash of the domain that the bundle must have; None: any.
    minimum_version
        Older bundles are refused. A ledger besides refuses versions older than it released with.

    Examples
    --------
    >>> from geoblanket import Trust, load_bundle
    >>> load_bundle("city.bundle", trust=Trust(minimum_version=1)).version
    1
    """

    public_key: str | Path | None = None
    allow_unsigned: bool = False
    domain: str | None = None
    minimum_version: int = 0

    def is_signed(self, path: str | Path, digest: bytes) -> bool:
        """Return whether a bundle with this SHA-256 has a valid signature; raise InputError if it needs one.

        Without a public key nothing is checked, and the answer is False.
        """
        if self.public_key is None:
            return False
        try:
            check_signature(path, digest, self.public_key)
        except InputError as error:
            if not self.allow_unsigned or error.path == Path(self.public_key):
                raise
            return False
        return True

    def check_header(self, path: str | Path, header: BundleHeader) -> None:
        """Raise MismatchError for another domain, and InputError for a version that is too old."""
        if self.domain is not None and header.domain != self.domain:
            raise MismatchError(f"{path}: is for another domain. Get the bundle of the domain that is asked for.")
        if header.version < self.minimum_version:
            raise InputError(
                f"is version {header.version}, older than the {self.minimum_version} that is asked for",
                path=path,
                hint=HINT,
            )

    def __repr__(self) -> str:
        return options_repr(self)


ANY_FILE: Final = Trust()
"""Any bundle that verifies: signed or not, of any domain and version."""


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
    with suppress(ValueError):
        if isinstance(key := load_pem_public_key(_small_file(path, _LARGEST_KEY)), Ed25519PublicKey):
            return key
    raise InputError("is not an Ed25519 public key in PEM form", path=path)


def _private_key(path: Path) -> Ed25519PrivateKey:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise MissingExtraError("Signing", "signing") from error
    with suppress(ValueError, TypeError):
        if isinstance(key := load_pem_private_key(_small_file(path, _LARGEST_KEY), password=None), Ed25519PrivateKey):
            return key
    raise InputError("is not an Ed25519 private key in PEM form without a password", path=path)


def _small_file(path: Path, largest: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    if len(content) > largest:
        raise InputError(f"has more than {largest} bytes", path=path)
    return content
