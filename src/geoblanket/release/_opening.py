"""A bundle and a ledger, opened together and checked against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.bundle.clock import Clock
from geoblanket.mechanism.bundle.policy import Policy
from geoblanket.mechanism.bundle.release_tables import ReleaseTables
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.bundle.trust import ANY_FILE, Trust
from geoblanket.release.budget import Budget
from geoblanket.release.ledger import Ledger, MemoryLedger

__all__ = ["check_policy", "checked_clock", "closed_on_failure", "open_ledger", "open_tables"]


def open_ledger(
    path: str | Path | None,
    budget: Budget | None,
    *,
    device_key: bytes | None,
    counter: str | Path | None,
    replay: bool,
    hold_in_memory: bool,
) -> MemoryLedger | None:
    """Open a ledger file, which must have the given budget, if any; without a file, keep the given budget in memory."""
    if path is None:
        return None if budget is None else MemoryLedger(budget, replay=replay)
    ledger = Ledger.open(path, device_key=device_key, counter=counter, replay=replay, hold_in_memory=hold_in_memory)
    if budget is not None and _amounts(budget) != _amounts(ledger.budget):
        ledger.close()
        raise MismatchError(
            f"{path}: has another budget than the one asked for. A ledger keeps the one it was made with."
        )
    return ledger


def _amounts(budget: Budget) -> tuple[int, int]:
    return budget.micro, budget.window_ms


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
    trust: Trust,
    policy: Policy,
) -> ReleaseTables:
    """Return the tables of a bundle that promises what the policy asks for, and is not older than the last one.

    Verify the file, unless the ledger remembers that it was verified; the ledger then remembers it.
    """
    if isinstance(bundle, Bundle):
        if trust != ANY_FILE:
            raise ParameterError("`trust` is for files. A loaded bundle was checked by `load_bundle`: give it there.")
        tables = ReleaseTables.of(bundle)
    elif ledger is None:
        tables = ReleaseTables.read(bundle, trust=trust)
    else:
        tables = ReleaseTables.read(bundle, is_known=ledger.is_verified, trust=trust)
        ledger.remember_verified(tables.sha256)
    check_policy(policy, tables, tables.tables)
    if ledger is not None:
        ledger.use_bundle(tables.domain, tables.version)
    return tables


def check_policy(policy: Policy, bundle: Bundle | ReleaseTables, mechanisms: Iterable[Any]) -> None:
    """Raise PolicyError unless a bundle promises what the policy asks for."""
    lattice = bundle.lattice
    policy.check(
        mechanisms,
        bundle.places_e7,
        bundle.clock,
        lattice=None if lattice is None else lattice.spec,
    )


def checked_clock(tables: ReleaseTables, budget: Budget | None) -> Clock:
    """Return the clock of a bundle; raise unless it has one and the budget allows any report."""
    clock = tables.needed_clock()
    if budget is None:
        return clock
    if clock.interval_ms > budget.window_ms:
        raise ParameterError("The window of the budget is shorter than the interval between reports.")
    costs = tables.costs
    if max(costs) > budget.micro:
        raise ParameterError(
            f"One report costs up to {costs.largest_per_km:g} per km, and the whole budget is {budget.epsilon:g} per "
            "km. Choose a larger budget, or a bundle of a smaller ε."
        )
    return clock
