"""From roads and walks to problems, and from problems to a verified bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.build.building import build_bundle
    from geoblanket.build.city_lattice import make_lattice
    from geoblanket.build.config import BuildConfig, read_config
    from geoblanket.build.record import BuildRecord, read_record
    from geoblanket.build.rows import ZoneRows, make_problem, make_rows

__all__ = [
    "BuildConfig",
    "BuildRecord",
    "ZoneRows",
    "build_bundle",
    "make_lattice",
    "make_problem",
    "make_rows",
    "read_config",
    "read_record",
]

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
