"""Discovery: the Markov blanket of each group of samples, by tests of one order after the other (Algorithm 1).

All groups are tested at order 1, then those that go on at order 2, and so on. So only one order's samples are held at
a time, tests need nothing but the positions that they are sent, and a barrier between orders is all that is shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import polars as pl
from scipy.stats import false_discovery_control

from geoblanket import __version__
from geoblanket._arguments import checked
from geoblanket._arrays import Bools
from geoblanket._display import Progress, counted, options_repr, short_repr, silent
from geoblanket._files import check_output, sha256_file
from geoblanket._frames import AnyFrame, takes_frames
from geoblanket._unfinished import Journal, unfinished_path
from geoblanket._workers import count_workers, open_workers, run_in_any_order
from geoblanket.blanket.findings import FINDINGS_SCHEMA, RESULT_SCHEMA, STATUSES, blanket_sizes, write_findings
from geoblanket.blanket.groups import (
    Feature,
    Grouping,
    LaggedWalks,
    Regions,
    Samples,
    check_features,
    find_regions,
    load_walks,
    seeds_of,
)
from geoblanket.blanket.independence import HypothesisOutcome, HypothesisTask, find_test, run_hypothesis_test
from geoblanket.blanket.sample_table import SampleTable, TableGroups
from geoblanket.errors import ParameterError
from geoblanket.mobility.walks import write_walks

_MOST_ORDERS = 20  # Γ at most
_POSITION = ("lat", "lon")
_SECONDS_PER_TEST = 0.05
"""What a test takes, by estimate, to judge whether more processes pay."""


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


@dataclass(frozen=True, eq=False)
class Discovery:
    """What was found: a row for each group and order, and how.

    Examples
    --------
    With the `discovery` in the example of `discover`:

    >>> discovery.findings.select("hour", "m", "status").row(0)
    (0, 1, 'tested')
    >>> discovery.about["largest"]
    1
    """

    findings: pl.DataFrame
    """`FINDINGS_SCHEMA`."""
    about: dict[str, Any]
    """Parameters, inputs and counts, as JSON values."""

    @cached_property
    def blankets(self) -> pl.DataFrame:
        """The size of each group's blanket; see `blanket_sizes`."""
        return blanket_sizes(self.findings)

    def summary(self) -> dict[str, Any]:
        """Return counts for each grouping, as JSON values.

        `groups`, and which of them are `empty`, have `too_few` samples (but some), are `constant`, `unresolved` or
        `tested` at order 1; the `tests` done; the number of tested groups by blanket size, of those that are `capped`,
        and of those that are so because a later order is unresolved (`unresolved_later`).
        """
        return {str(by): _count(rows) for (by,), rows in self._joined.group_by("by", maintain_order=True)}

    @property
    def _joined(self) -> pl.DataFrame:
        first = self.findings.filter(pl.col("m") == 1).select("group", "status", "available")
        status = pl.col("status")
        tests = self.findings.group_by("group").agg(
            (status == "tested").sum().alias("tests"), (status == "unresolved").any().alias("unresolved_later")
        )
        return self.blankets.join(first, on="group").join(tests, on="group").sort("group")

    def __repr__(self) -> str:
        groups = counted(self.findings["group"].n_unique(), "group")
        return short_repr(
            self, counted(self.findings.height, "finding"), groups, f"orders up to {self.about['largest']}"
        )


def _count(groups: pl.DataFrame) -> dict[str, Any]:
    known = groups.drop_nulls("order")
    sizes = known["order"].value_counts().sort("order")
    return {
        "groups": groups.height,
        "tested": known.height,
        "empty": groups.filter(pl.col("available") == 0).height,
        "too_few": groups.filter((pl.col("status") == "too_few") & (pl.col("available") > 0)).height,
        "constant": groups.filter(pl.col("status") == "constant").height,
        "unresolved": groups.filter(pl.col("status") == "unresolved").height,
        "unresolved_later": known.filter(pl.col("capped") & pl.col("unresolved_later")).height,
        "tests": int(groups["tests"].sum()),
        "sizes": {str(size): count for size, count in sizes.iter_rows()},
        "capped": int(known["capped"].sum()),
    }


@checked
@takes_frames(walks=write_walks)
def discover(
    walks: str | Path | AnyFrame,
    roads: str | Path,
    options: DiscoveryOptions | None = None,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress = silent,
) -> Discovery:
    """Find the Markov blanket of each group of samples.

    A sample is a step of a walk with enough steps before it. For order m = 1, 2, ... the hypothesis that X_t is
    independent of X_{t-m-1} given X_{t-1}, ..., X_{t-m} is tested, until it is not rejected: that m is the size of the
    blanket. Where a test cannot resolve an order, that is the least that the blanket can be, and testing stops. The
    result is the same for any number of workers, and for a group it does not depend on which other groups are tested.

    Parameters
    ----------
    walks
        A table written by `geoblanket match`, or `Walks` of a data frame.
    roads
        The road graph it was matched to.
    options
        What is tested, and how; the defaults if None.
    workers
        Processes; as many as pay if None.
    cluster
        Address of a Dask scheduler, to test on its workers instead. They need geoblanket installed.
    out
        Where to write the findings (Parquet), wholly or not at all. What is finished is kept in a file beside it until
        then.
    resume
        Go on with an interrupted run with the same `out`, inputs and options.
    progress
        Called as the work goes on.

    Raises
    ------
    InputError, MismatchError
        If the files cannot be used or do not belong together, or another run was interrupted than is resumed.

    Examples
    --------
    >>> from geoblanket import DiscoveryOptions, discover
    >>> options = DiscoveryOptions(by=["hour"], largest=1, smallest_group=40)
    >>> discovery = discover("walks.parquet", "city.roads", options, out="findings.parquet")
    >>> len(discovery.blankets)  # one for each hour
    24
    """
    options = options or DiscoveryOptions()
    if out is not None:
        check_output(out)
    loaded = load_walks(walks, roads, time_zone=options.time_zone, progress=progress)
    regions = find_regions(options.regions, loaded.places)
    about = {
        **options.as_dict(),
        "regions": regions.about if any("region" in features for features in options.groupings) else None,
        "interval_s": loaded.interval_s,
        "spacing_m": loaded.places.spacing_m,
        "roads": loaded.places.roads_identity,
        "walks": sha256_file(walks),
        "geoblanket": __version__,
        **{name: loaded.about[name] for name in ("training",) if name in loaded.about},
    }
    all_results = _empty_results(
        [Grouping(features, regions) for features in options.groupings], orders=options.largest
    )
    most_tests = sum(len(results.grouping) for results in all_results)
    processes = count_workers(workers, tasks=most_tests, seconds=most_tests * _SECONDS_PER_TEST)
    run = _Run(options, loaded, progress)
    with ExitStack() as stack:
        stack.enter_context(open_workers(processes, cluster=cluster))
        if out is not None:
            run.keep(stack.enter_context(Journal(unfinished_path(out), about, resume=resume)))
        for m in range(1, options.largest + 1):
            for results in all_results:
                run.test(results, m)
        about |= {
            "counts": loaded.counts,
            "outside": {results.grouping.name: results.outside for results in all_results},
        }
        discovery = Discovery(_adjusted(pl.concat([results.frame() for results in all_results])), about)
        if out is not None:
            write_findings(discovery.findings, out, about=about)
            run.finish()
    return discovery


@checked
def discover_table(
    table: SampleTable,
    options: DiscoveryOptions | None = None,
    *,
    workers: int | None = None,
    progress: Progress = silent,
) -> Discovery:
    """Find the Markov blanket of the secret in each group of a table of samples, in any domain.

    For m = 1, 2, ... the hypothesis that X is independent of V_{m+1} given V_1, ..., V_m is tested, as in `discover`.

    Parameters
    ----------
    table
        The samples.
    options
        What is tested, and how. What is about walks (`by`, `regions`, `time_zone`) does not count.
    workers, progress
        Those of `discover`.

    Examples
    --------
    >>> import numpy as np
    >>> from geoblanket import SampleTable, discover_table
    >>> steps = np.random.default_rng(2).normal(size=(500, 4))
    >>> walk = steps.cumsum(axis=1)  # each value depends on the one before, and on no other
    >>> discover_table(SampleTable(walk[:, 3], [walk[:, 2], walk[:, 1], walk[:, 0]])).blankets["order"].to_list()
    [1]
    """
    options = options or DiscoveryOptions()
    options = replace(options, largest=min(options.largest, len(table.context) - 1))
    (results,) = _empty_results([table.grouping], orders=options.largest)
    run = _Run(options, table, progress)
    tests = len(table.grouping)
    processes = count_workers(workers, tasks=tests, seconds=tests * _SECONDS_PER_TEST)
    with open_workers(processes, cluster=None):
        for m in range(1, options.largest + 1):
            run.test(results, m)
    about = {**options.as_dict(), "by": [table.grouping.rows.columns], "geoblanket": __version__}
    return Discovery(_adjusted(results.frame()), about)


@dataclass(eq=False)
class _GroupingResults:
    """What is known of the hypotheses of one grouping, shape (groups, orders) each."""

    grouping: Grouping | TableGroups
    first_group: int
    orders: int
    outside: int = 0
    """Samples that belong to no group, at order 1."""

    def __post_init__(self) -> None:
        shape = (len(self.grouping), self.orders)
        self.available = np.zeros(shape, np.int64)
        self.numbers = {name: np.full(shape, np.nan) for name in (*_POSITION, "statistic", "p_value", "effect_size")}
        self.n = np.zeros(shape, np.int32)
        self.status = np.full(shape, STATUSES.index("too_few"), np.uint8)
        self.rejected = np.zeros(shape, np.bool_)
        self.labels = self.grouping.labels()

    def label(self, group: int) -> tuple[object, ...]:
        return (self.grouping.name, *self.labels.row(group))

    def kept_before(self, m: int) -> Bools:
        """Return in which groups a smaller order was tested and not rejected."""
        earlier = self.status[:, : m - 1] == STATUSES.index("tested")
        result: Bools = (earlier & ~self.rejected[:, : m - 1]).any(axis=1)
        return result

    def unresolved_before(self, m: int) -> Bools:
        """Return in which groups a smaller order could not be resolved."""
        result: Bools = (self.status[:, : m - 1] == STATUSES.index("unresolved")).any(axis=1)
        return result

    def put(self, outcome: HypothesisOutcome, *, alpha: float) -> None:
        at = outcome.group - self.first_group, outcome.m - 1
        self.status[at] = STATUSES.index(outcome.status)
        if outcome.p_value is not None:
            self.numbers["statistic"][at] = outcome.statistic
            self.numbers["p_value"][at] = outcome.p_value
            self.numbers["effect_size"][at] = outcome.effect_size
            self.rejected[at] = outcome.p_value <= alpha
            self.n[at] = outcome.n

    def frame(self) -> pl.DataFrame:
        """Return the rows of `FINDINGS_SCHEMA`, `p_adjusted` empty."""
        groups = len(self.grouping)
        number = np.repeat(np.arange(groups), self.orders)
        status = pl.Series(STATUSES).gather(self.status.ravel().astype(np.uint32))
        known = status.is_in(["tested", "imputed"])
        numbers = {name: pl.Series(values.ravel(), nan_to_null=True) for name, values in self.numbers.items()}
        columns = {
            "group": self.first_group + number,
            "by": pl.repeat(self.grouping.name, len(number), eager=True),
            **{name: self.labels[name].gather(number) for name in self.labels.columns},
            "m": np.tile(np.arange(1, self.orders + 1), groups),
            "available": self.available.ravel(),
            "n": self.n.ravel(),
            **numbers,
            "p_adjusted": pl.repeat(None, len(number), dtype=pl.Float64, eager=True),
            "rejected": pl.Series(self.rejected.ravel()).set(~known, None),
            "status": status,
        }
        kinds = {"group": pl.Int32(), "by": pl.String(), **self.labels.schema, **RESULT_SCHEMA}
        if isinstance(self.grouping, Grouping):  # only walks have positions
            kinds = FINDINGS_SCHEMA
        return pl.DataFrame(columns).select(pl.col(name).cast(kind) for name, kind in kinds.items())


def _empty_results(groupings: Sequence[Grouping | TableGroups], *, orders: int) -> list[_GroupingResults]:
    first = np.cumsum([0, *(len(grouping) for grouping in groupings)]).tolist()
    return [_GroupingResults(grouping, start, orders) for grouping, start in zip(groupings, first, strict=False)]


@dataclass(eq=False)
class _Run:
    """One discovery in progress."""

    options: DiscoveryOptions
    source: LaggedWalks | SampleTable
    progress: Progress
    journal: Journal | None = None
    finished: dict[tuple[int, int], HypothesisOutcome] = field(default_factory=dict)

    def keep(self, journal: Journal) -> None:
        """Keep outcomes in a journal, and take over those it already holds."""
        self.journal = journal
        for record in journal.records:
            outcome = HypothesisOutcome(*record)
            self.finished[outcome.group, outcome.m] = outcome

    def finish(self) -> None:
        if self.journal is not None:
            self.journal.remove()

    def test(self, results: _GroupingResults, m: int) -> None:
        """Test the hypothesis of order m in all groups that go on."""
        samples = self.source.samples(results.grouping, m=m, length=self.options.window_length(m))  # type: ignore[arg-type]
        results.available[:, m - 1] = samples.available
        results.numbers["lat"][:, m - 1], results.numbers["lon"][:, m - 1] = samples.lat, samples.lon
        if m == 1:
            results.outside = samples.outside
        skipped = results.kept_before(m) & self.options.stop_early
        results.status[skipped, m - 1] = STATUSES.index("imputed")
        # Whether a blanket ends at an order that was not resolved is unknown, so a larger one would tell nothing.
        unclear = results.unresolved_before(m) & ~skipped & self.options.stop_early
        results.status[unclear, m - 1] = STATUSES.index("unresolved")
        skipped |= unclear
        open_groups = np.flatnonzero(~skipped & (samples.available >= self.options.smallest_group)).tolist()
        done, left = 0, []
        for group in open_groups:
            finished = self.finished.get((results.first_group + group, m))
            if finished is None:
                left.append(group)
            else:
                results.put(finished, alpha=self.options.alpha)
                done += 1
        phase = f"{results.grouping.name}, order {m}"
        self.progress(phase, done, len(open_groups))
        for outcome in run_in_any_order(run_hypothesis_test, self._tasks(results, m, samples, left)):
            if self.journal is not None:
                self.journal.add(outcome)
            results.put(outcome, alpha=self.options.alpha)
            done += 1
            self.progress(phase, done, len(open_groups))

    def _tasks(
        self, results: _GroupingResults, m: int, samples: Samples, groups: Iterable[int]
    ) -> Iterator[HypothesisTask]:
        options, test = self.options, find_test(self.options.test)
        for group in groups:
            draw_seed, test_seed = seeds_of(results.label(group), m, options.seed)
            steps = samples.draw(group, most=options.largest_sample, seed=draw_seed)
            parts = self.source.hypothesis(steps, m=m, length=options.window_length(m), block=options.block)
            yield HypothesisTask(results.first_group + group, m, *parts, test, test_seed)


def _adjusted(findings: pl.DataFrame) -> pl.DataFrame:
    """Fill `p_adjusted`: Benjamini and Hochberg's over the tested groups of each grouping and order."""
    adjusted = pl.col("p_value").map_batches(
        lambda p: pl.Series(false_discovery_control(p.to_numpy())), return_dtype=pl.Float64, is_elementwise=False
    )
    tested = findings.filter(pl.col("status") == "tested").select(
        "group", "m", adjusted.over("by", "m").alias("p_adjusted")
    )
    joined = findings.drop("p_adjusted").join(tested, on=["group", "m"], how="left", maintain_order="left")
    return joined.select(findings.columns)
