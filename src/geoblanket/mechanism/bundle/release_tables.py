"""What a device needs of a bundle: weights, histories and places, without the distances that were verified.

Distances take most of a bundle's memory, and verification takes seconds for a city. A device that remembers the hash of
a file that it verified need not verify it again: it hashes the file at each start, and reads exactly the bytes that the
verifier accepted. It trusts nothing else.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geoblanket import __version__
from geoblanket._arrays import Indices, Ints
from geoblanket.mechanism.bundle.contents import Bundle, BundledMechanism
from geoblanket.mechanism.bundle.file import LARGEST_BYTES, BundleFile
from geoblanket.mechanism.bundle.header import ReadBundle
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust

__all__ = ["VERIFIER", "ReleaseTable", "ReleaseTables"]

_REVISION = 2
"""Grows when the verifier gets stricter, so that what an older one accepted is verified again."""
VERIFIER = f"geoblanket {__version__}, verifier {_REVISION}, NumPy {np.__version__}, Python {platform.python_version()}"
"""Who verifies: another version verifies again."""


@dataclass(frozen=True, eq=False)
class ReleaseTable:
    """What is reported from one zone in one regime."""

    zone: str
    regime: str
    epsilon_micro: int
    eta_mm: int
    history_weights_micro: tuple[int, ...]
    weights: Ints
    """int64, shape (S, C): rows sum to 2^62."""
    histories: Indices
    """Shape (N, 1 + Γ)."""
    history_rows: Indices
    output_places: Indices
    """The place of each column, shape (C,)."""

    @classmethod
    def of(cls, bundled: BundledMechanism) -> ReleaseTable:
        """Return that of a verified mechanism."""
        return cls(
            zone=bundled.zone,
            regime=bundled.regime,
            epsilon_micro=bundled.epsilon_micro,
            eta_mm=bundled.eta_mm,
            history_weights_micro=bundled.history_weights_micro,
            weights=bundled.mechanism.weights,
            histories=bundled.histories,
            history_rows=bundled.history_rows,
            output_places=bundled.output_places,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleaseTables(ReadBundle):
    """All tables of a bundle that was verified on this device. Make them with `of` or `read`."""

    tables: tuple[ReleaseTable, ...]

    @classmethod
    def of(cls, bundle: Bundle) -> ReleaseTables:
        """Return those of a bundle that was loaded, and so verified."""
        return cls._of(bundle, map(ReleaseTable.of, bundle))

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        is_known: Callable[[str], bool] = lambda _: False,
        trust: Trust = ANY_FILE,
        largest_bytes: int = LARGEST_BYTES,
    ) -> ReleaseTables:
        """Read a file; verify it exactly unless its hash is known.

        Parameters
        ----------
        is_known
            Whether this device verified, by the same `VERIFIER`, a file with this SHA-256 (hexadecimal).

        See `load_bundle` for the other parameters and the errors.
        """
        file = BundleFile.read(path, trust=trust, largest_bytes=largest_bytes)
        # The hash is of the bytes in memory: a file that changes on the way cannot be another one than was hashed.
        known = is_known(file.sha256)
        # One mechanism after the other, so that only one of them has its distances in memory.
        return cls._of(file, _known(file) if known else map(ReleaseTable.of, file.verified()))

    @classmethod
    def _of(cls, bundle: ReadBundle, tables: Iterable[ReleaseTable]) -> ReleaseTables:
        return cls(
            tables=tuple(tables),
            header=bundle.header,
            places_e7=bundle.places_e7,
            sha256=bundle.sha256,
            signed=bundle.signed,
        )


def _known(file: BundleFile) -> Iterator[ReleaseTable]:
    for header, parts in file.parts():
        yield ReleaseTable(
            zone=header.zone,
            regime=header.regime,
            epsilon_micro=header.epsilon_micro,
            eta_mm=header.eta_mm,
            history_weights_micro=header.history_weights_micro,
            weights=_copy(parts["weights"]).reshape(header.rows, header.columns),
            histories=_copy(parts["histories"]).reshape(-1, 1 + len(header.history_weights_micro)),
            history_rows=_copy(parts["history_rows"]),
            output_places=_copy(parts["output_places"]),
        )


def _copy(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy that nothing can make writeable again."""
    return np.frombuffer(part.tobytes(), part.dtype)
