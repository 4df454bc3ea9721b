"""What a device needs of a bundle: weights, histories and places, without the distances that were verified.

Distances take most of a bundle's memory, and to verify it takes seconds for a city. A device that remembers the hash of
a file that it verified need not do so again: it hashes the file at each start, and reads exactly the bytes that the
verifier accepted. Nothing else is taken on trust.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from geoblanket import __version__
from geoblanket._arrays import Indices, Ints
from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.contents import Bundle, BundledMechanism
from geoblanket.mechanism.bundle.file import LARGEST_BYTES, BundleFile

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
    def of(cls, one: BundledMechanism) -> ReleaseTable:
        """Return that of a verified mechanism."""
        return cls(
            zone=one.zone,
            regime=one.regime,
            epsilon_micro=one.mechanism.epsilon_micro,
            eta_mm=one.mechanism.eta_mm,
            history_weights_micro=one.history_weights_micro,
            weights=one.mechanism.weights,
            histories=one.histories,
            history_rows=one.history_rows,
            output_places=one.output_places,
        )


@dataclass(frozen=True, eq=False)
class ReleaseTables:
    """All tables of a bundle that was verified on this device. Make them by `of` or `read`."""

    tables: tuple[ReleaseTable, ...]
    version: int
    domain: str
    disclosed: str
    snapping_radius_mm: int
    clock: Clock | None
    places_e7: Indices
    sha256: str
    """Hash of the file."""

    @classmethod
    def of(cls, bundle: Bundle) -> ReleaseTables:
        """Return those of a bundle that was loaded, and so verified."""
        return cls(
            tables=tuple(ReleaseTable.of(one) for one in bundle),
            version=bundle.version,
            domain=bundle.domain,
            disclosed=bundle.disclosed,
            snapping_radius_mm=bundle.snapping_radius_mm,
            clock=bundle.clock,
            places_e7=bundle.places_e7,
            sha256=bundle.sha256,
        )

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        is_known: Callable[[str], bool] = lambda _: False,
        public_key: str | Path | None = None,
        allow_unsigned: bool = False,
        domain: str | None = None,
        minimum_version: int = 0,
        largest_bytes: int = LARGEST_BYTES,
    ) -> ReleaseTables:
        """Read a file; verify it exactly unless its hash is known.

        Parameters
        ----------
        is_known
            Whether this device verified, by the same `VERIFIER`, a file with this SHA-256 (hexadecimal).

        See `load_bundle` for the other parameters and the errors.
        """
        file = BundleFile.read(
            path,
            public_key=public_key,
            allow_unsigned=allow_unsigned,
            domain=domain,
            minimum_version=minimum_version,
            largest_bytes=largest_bytes,
        )
        # The hash is of the bytes in memory: a file that changes on the way cannot be another one than was hashed.
        known = is_known(file.sha256)
        # One mechanism after the other, so that only one of them has its distances in memory.
        tables = _known(file) if known else [ReleaseTable.of(one) for one in file.verified()]
        return cls(
            tables=tuple(tables),
            version=file.header.version,
            domain=file.header.domain,
            disclosed=file.header.disclosed,
            snapping_radius_mm=file.header.snapping_radius_mm,
            clock=file.header.clock,
            places_e7=file.places_e7,
            sha256=file.sha256,
        )


def _known(file: BundleFile) -> Sequence[ReleaseTable]:
    return [
        ReleaseTable(
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
        for header, parts in file.parts()
    ]


def _copy(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a copy that nothing can make writeable again."""
    return np.frombuffer(part.tobytes(), part.dtype)
