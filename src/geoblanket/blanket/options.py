"""What a discovery tests, and how: every option that its findings depend on, with its default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from geoblanket._arguments import checked
from geoblanket._display import options_repr
from geoblanket.blanket.groups import Feature, check_features
from geoblanket.blanket.independence import find_test
from geoblanket.blanket.place_regions import Regions
from geoblanket.errors import ParameterError

__all__ = ["DiscoveryOptions"]

_MOST_ORDERS = 20  # Γ at most


@checked
@dataclass(frozen=True, eq=False, kw_only=True)
class DiscoveryOptions:
    """Options of `discover`.

    Parameters
    ----------
    by
        What defines a group: some of "hour", "speed" and "region", or none for one group of all samples; or several
        such groupings. Speeds are in bins of 5 mph from 0 to 120, and are the mean over {X_t, ..., X_{t-m}}; so the
        members of a group differ between orders.
    regions
        Where regions lie (`Regions`); 4 × 4 cells over the roads' box if None.
    time_zone
        IANA name of the time zone of the hours.
    largest
        Γ: the largest order to test.
    alpha
        A hypothesis is rejected if p ≤ α.
    test
        Name of the test; see `geoblanket.blanket.independence`.
    stop_early
        Whether orders above the first that is not rejected are imputed rather than tested.
    block
        Test X_t against all of X_{t-m-1}, ..., X_{t-Γ-1} at once. That sees a dependence that skips a lag, and needs a
        longer past.
    smallest_group
        Groups with fewer samples are not tested.
    largest_sample
        Of larger groups, this many samples are drawn. (Of very many, any test finds some dependence, and blankets
        would only tell how large groups are.)
    seed
        Another seed, other draws.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> from geoblanket import DiscoveryOptions
    >>> DiscoveryOptions(by=["speed", "region"], time_zone="Europe/Lisbon").largest
    5
    >>> DiscoveryOptions(alpha=2.0)
    Traceback (most recent call last):
        ...
    geoblanket.errors.ParameterError: ...
    """

    by: Sequence[str] | Sequence[Sequence[str]] = ("hour", "speed", "region")
    regions: Regions | None = None
    time_zone: str = "UTC"
    largest: int = 5
    alpha: float = 0.05
    test: str = "analytic"
    stop_early: bool = True
    block: bool = False
    smallest_group: int = 200
    largest_sample: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        find_test(self.test)
        if not 1 <= self.largest <= _MOST_ORDERS:
            raise ParameterError(f"The largest order must be from 1 to {_MOST_ORDERS}. Got {self.largest} instead.")
        if not 0 < self.alpha < 1:
            raise ParameterError(f"alpha must be between 0 and 1. Got {self.alpha} instead.")
        if not 1 <= self.smallest_group <= self.largest_sample:
            raise ParameterError(
                "The smallest group must be 1 or more, and no larger than the largest sample. "
                f"Got {self.smallest_group} and {self.largest_sample} instead."
            )
        check_features(self.by)
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ParameterError(
                f"The time zone must be an IANA name such as Europe/Lisbon. Got {self.time_zone!r} instead."
            ) from None

    @property
    def groupings(self) -> list[tuple[Feature, ...]]:
        """The features of each grouping, in a fixed order."""
        return check_features(self.by)

    def window_length(self, m: int) -> int:
        """Return how many positions a sample of the hypothesis of order m has."""
        return (self.largest if self.block else m) + 2

    def as_dict(self) -> dict[str, Any]:
        """Return all options but `regions` as JSON values."""
        plain = ("largest", "alpha", "test", "stop_early", "block", "smallest_group", "largest_sample", "seed")
        return {
            **{name: getattr(self, name) for name in plain},
            "by": [list(features) for features in self.groupings],
            "time_zone": self.time_zone,
        }

    def __repr__(self) -> str:
        return options_repr(self)
