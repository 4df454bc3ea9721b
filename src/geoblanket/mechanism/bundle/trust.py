"""Which files a reader of bundles takes: who signed them, for which domain, and how new they are.

What a bundle promises is verified in any case; whether that is enough, a `Policy` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from geoblanket._arguments import checked
from geoblanket._display import options_repr
from geoblanket.errors import InputError, MismatchError
from geoblanket.mechanism.bundle.header import BundleHeader
from geoblanket.mechanism.bundle.signing import check_signature

__all__ = ["ANY_FILE", "HINT", "Trust"]

HINT: Final = "Get it again from where it came from"


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
