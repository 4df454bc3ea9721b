"""A bundle and a ledger, opened together and checked against each other."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.policy import Policy
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.costs import Costs
from geoblanket.release.budget import Budget
from geoblanket.release.ledger import Ledger, MemoryLedger

__all__ = [
    "CLOCK_TOLERANCE_S",
    "checked_clock",
    "checked_tolerance",
    "closed_on_failure",
    "open_ledger",
    "open_tables",
]

CLOCK_TOLERANCE_S = 86_400.0
"""Times of reports may be a day off the system's clock, either way, unless the caller says otherwise."""


def open_ledger(
    path: str | Path | None,
    budget: Budget | None,
    *,
    device_key: bytes | None,
    counter: str | Path | None,
    replay: bool,
) -> MemoryLedger | None:
    """Open the ledger of a file, whose budget must be the one given if one is; else make one in memory, if one is."""
    if path is None:
        return None if budget is None else MemoryLedger(budget, replay=replay)
    ledger = Ledger.open(path, device_key=device_key, counter=counter, replay=replay)
    if budget is not None and (budget.micro, budget.window_ms) != (ledger.budget.micro, ledger.budget.window_ms):
        ledger.close()
        raise MismatchError(
            f"{path}: has another budget than the one asked for. A ledger keeps the one it was made with."
        )
    return ledger


@contextmanager
def closed_on_failure(ledger: MemoryLedger | None) -> Iterator[None]:
    """Close a ledger if what follows fails, so that it can be opened again."""
    try:
        yield
    except BaseException:
        if ledger is not None:
            ledger.close()
        raise


def open_tables(
    bundle: str | Path | Bundle,
    ledger: MemoryLedger | None,
    *,
    public_key: str | Path | None,
    allow_unsigned: bool,
    domain: str | None,
    minimum_version: int,
    policy: Policy,
) -> ReleaseTables:
    """Return the tables of a bundle that promises what the policy asks for.

    They were verified before, as the ledger remembers, or are now, which it will remember.
    """
    tables = _verified_tables(bundle, ledger, public_key, domain, minimum_version, allow_unsigned=allow_unsigned)
    policy.check(tables.tables, tables.places_e7, tables.clock)
    return tables


def _verified_tables(
    bundle: str | Path | Bundle,
    ledger: MemoryLedger | None,
    public_key: str | Path | None,
    domain: str | None,
    minimum_version: int,
    *,
    allow_unsigned: bool,
) -> ReleaseTables:
    if isinstance(bundle, Bundle):
        if public_key is not None or domain is not None or minimum_version:
            raise ParameterError("A bundle that was loaded is checked by `load_bundle`. Give these options to it.")
        return ReleaseTables.of(bundle)
    tables = ReleaseTables.read(
        bundle,
        is_known=lambda sha256: ledger is not None and ledger.is_verified(sha256),
        public_key=public_key,
        allow_unsigned=allow_unsigned,
        domain=domain,
        minimum_version=minimum_version,
    )
    if ledger is not None:
        ledger.remember_verified(tables.sha256)
    return tables


def checked_tolerance(clock_tolerance_s: float) -> None:
    """Raise ParameterError unless it is zero or more seconds, and an end."""
    if not 0 <= clock_tolerance_s < math.inf:
        raise ParameterError("clock_tolerance_s must be zero or more seconds. For data of any time, open a replay.")


def checked_clock(tables: ReleaseTables, budget: Budget | None) -> Clock:
    """Return the clock of a bundle; raise unless it has one, and some report fits the budget."""
    if tables.clock is None:
        raise MismatchError("The bundle has no clock, and does not say which regime is used when. Build it again.")
    if budget is None:
        return tables.clock
    if tables.clock.interval_ms > budget.window_ms:
        raise ParameterError("The window of the budget is shorter than the interval between reports.")
    costs = Costs.of(tables.tables, tables.clock.start)
    if max(costs) > budget.micro:
        raise ParameterError(
            f"One report costs up to {costs.largest_per_km:g} per km, and the whole budget is {budget.epsilon:g} per "
            "km. Choose a larger budget, or a bundle of a smaller ε."
        )
    return tables.clock
