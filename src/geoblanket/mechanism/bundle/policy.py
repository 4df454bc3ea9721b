"""What a device accepts of a bundle.

A bundle can keep its promise and still give a vehicle away: a zone of one place, an ε of a million, an η of 0 beyond
which nothing is promised. So a device states the least that it accepts, and refuses a file that promises less, whoever
made it. Everything is computed from the file; the author's statements do not count.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np

from geoblanket.errors import InputError, ParameterError, PolicyError
from geoblanket.mechanism.bundle.contents import Bundle, BundledMechanism, LatticeBundle, ZoneBundle
from geoblanket.mechanism.bundle.zones import ZoneFacts, zone_in_words
from geoblanket.mechanism.costs import LARGEST_EPSILON
from geoblanket.mechanism.lattice.spec import LatticeSpec
from geoblanket.mechanism.problem import NEVER_MM

_MICRO: Final = 10**6
_LISTED: Final = 3


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The least that a bundle must promise.

    Parameters
    ----------
    largest_epsilon
        The largest ε of a mechanism, per kilometre.
    largest_cost
        The largest cost of one report, per kilometre.
    smallest_eta_km
        The smallest η, kilometres.
    fewest_places
        How many places of a zone must at least be joined by chains of steps of at most η.
    smallest_extent_m
        The least that the largest distance between two of these places must be, metres.
    largest_weight
        The largest weight of an earlier place in distances; infinite weights, for a past that is taken as known, need
        `inf`.
    largest_detour
        How many times as far apart as on the map two places of a zone may be in the bundle's metric, by road for
        example: so much easier they are to tell apart.
    largest_rounding_m
        How far a lattice may round a coordinate at most, metres. Its promise between two coordinates adds twice as much
        to their distance, so that a coarse one promises nothing to neighbours.
    """

    largest_epsilon: float = LARGEST_EPSILON
    largest_cost: float = 100.0
    smallest_eta_km: float = 1.0
    fewest_places: int = 4
    smallest_extent_m: float = 400.0
    largest_weight: float = 4.0
    largest_detour: float = 30.0
    largest_rounding_m: float = 10.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise ParameterError(
                    f"The {name.replace('_', ' ')} of a policy must be 0 or more. Got {value} instead."
                )

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file with some of the parameters; the others keep their defaults.

        Raises
        ------
        InputError
            If the file cannot be read, or holds something else.
        """
        try:
            with Path(path).open("rb") as file:
                values = tomllib.load(file)
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError("is not a TOML file", path=path) from error
        names = [field.name for field in fields(cls)]
        if unknown := sorted(set(values) - set(names)):
            raise InputError(f"has the unknown key '{unknown[0]}'", path=path, hint=f"Use {', '.join(names)}")
        if wrong := sorted(name for name, value in values.items() if type(value) not in (int, float)):
            raise InputError(f"'{wrong[0]}' must be a number", path=path)
        try:
            return cls(**values)
        except ParameterError as error:
            raise InputError(str(error).rstrip("."), path=path) from error

    def check(self, bundle: Bundle) -> None:
        """Raise PolicyError unless a bundle promises enough. Without places, nothing is known about its zones."""
        found = self._of_lattice(bundle.lattice.spec) if isinstance(bundle, LatticeBundle) else self._of_zones(bundle)
        if problems := list(dict.fromkeys(found)):
            more = f"; and {len(problems) - _LISTED:,} more" if len(problems) > _LISTED else ""
            raise PolicyError(
                f"The bundle promises less than the policy asks for: {'; '.join(problems[:_LISTED])}{more}. "
                "Get another bundle, or state a policy that allows it: its key is in brackets."
            )

    def _of_zones(self, bundle: ZoneBundle) -> Iterable[str]:
        for bundled in bundle:
            yield from self._of_mechanism(bundled)
        if not bundle.located:
            yield "it has no places, so that nothing is known about its zones"
        for facts in bundle.zone_facts:
            yield from self._of_zone(facts)
        if (cost := bundle.costs.largest_per_km) > self.largest_cost:
            yield f"a report costs up to {cost:g} per km, more than {self.largest_cost:g} (largest_cost)"

    def _of_lattice(self, lattice: LatticeSpec) -> Iterable[str]:
        epsilon = lattice.epsilon_micro / _MICRO
        if epsilon > self.largest_epsilon:
            yield f"its ε is {epsilon:g} per km, more than {self.largest_epsilon:g} (largest_epsilon)"
        if epsilon > self.largest_cost:
            yield f"a report costs {epsilon:g} per km, more than {self.largest_cost:g} (largest_cost)"
        rounding_m = lattice.plane.rounding_mm / 1000
        if rounding_m > self.largest_rounding_m:
            yield (
                f"it rounds a coordinate by up to {rounding_m:.3g} m, more than {self.largest_rounding_m:g} m "
                "(largest_rounding_m)"
            )
        extent_m = lattice.plane.side * lattice.plane.unit_mm / 1000
        if extent_m < self.smallest_extent_m:
            yield f"its frame is {extent_m:.0f} m wide, less than {self.smallest_extent_m:g} m (smallest_extent_m)"

    def _of_mechanism(self, bundled: BundledMechanism) -> Iterable[str]:
        epsilon = bundled.epsilon_micro / _MICRO
        if epsilon > self.largest_epsilon:
            yield f"its ε is {epsilon:g} per km, more than {self.largest_epsilon:g} (largest_epsilon)"
        if not bundled.epsilon_micro:
            yield "its ε is 0, so that reports cost nothing and a budget never ends"
        if bundled.eta_mm < self.smallest_eta_km * _MICRO:
            yield f"its η is {bundled.eta_mm / _MICRO:g} km, less than {self.smallest_eta_km:g} km (smallest_eta_km)"
        for micro in bundled.history_weights_micro:
            weight = np.inf if micro == NEVER_MM else micro / _MICRO
            if weight > self.largest_weight:
                yield f"an earlier place counts {weight:g} times, more than {self.largest_weight:g} (largest_weight)"

    def _of_zone(self, facts: ZoneFacts) -> Iterable[str]:
        if facts.fewest_sharing < self.fewest_places:
            yield (
                f"in {zone_in_words(facts.zone)} only {facts.fewest_sharing} place(s) are hidden among each other, "
                f"fewer than {self.fewest_places} (fewest_places)"
            )
        if facts.smallest_part_m < self.smallest_extent_m:
            yield (
                f"in {zone_in_words(facts.zone)} these are at most {facts.smallest_part_m:.0f} m apart, less than "
                f"{self.smallest_extent_m:g} m (smallest_extent_m)"
            )
        if facts.detour > self.largest_detour:
            yield (
                f"in {zone_in_words(facts.zone)} two places are {facts.detour:.3g} times as far apart in its metric as "
                f"on the map, more than {self.largest_detour:g} times (largest_detour)"
            )


DEFAULT_POLICY: Final = Policy()

ANYTHING: Final = Policy(
    largest_epsilon=np.inf,
    largest_cost=np.inf,
    smallest_eta_km=0.0,
    fewest_places=1,
    smallest_extent_m=0.0,
    largest_weight=np.inf,
    largest_detour=np.inf,
    largest_rounding_m=np.inf,
)
"""Accepts every bundle that verifies, except one with an ε of 0: for experiments."""
