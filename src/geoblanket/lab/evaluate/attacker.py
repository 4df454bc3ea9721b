"""The best attacker on one report, given the mechanism and what it knows beforehand.

The attacker knows the mechanism, the rule from histories to rows, and how probable each case (a history of the zone)
is. It sees the report y and guesses the present place among those of the zone, by Bayes' rule:

- *error*: the guess with the least expected distance from the true place, E_y min_g Σ_x Pr[x | y]·d(g, x);
- *success*: the most probable place, E_y max_x Pr[x | y], the probability that it is right;
- *likeliest error*: the expected distance of that most probable place, which is the paper's expected inference error.

No attacker with the same knowledge has a smaller error or a larger success. What it knows of this vehicle
beforehand is a label z of each case. *Context-free*: nothing, all labels are the same. *Context-aware*: the places
before the present one, known exactly, so that the prior is Pr[x | x_{t-1}, ...]. All sums are exact: nothing is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Ints
from geoblanket._display import counted, short_repr
from geoblanket._geodesy import haversine_m
from geoblanket.build.rows import ZoneRows
from geoblanket.errors import ParameterError
from geoblanket.mobility.histories import HistoryCounts


@dataclass(frozen=True)
class Inference:
    """How well the best attacker does with one report, and without it.

    Examples
    --------
    With the `rows` in the example of `make_rows`, and reports that are true:

    >>> from geoblanket.lab.evaluate import Cases, attack_report, zone_distance_km
    >>> truth = (rows.histories[:, :1] == rows.zone).astype(float)
    >>> round(attack_report(truth, Cases.of_rows(rows), zone_distance_km(rows)).success, 6)
    1.0
    """

    error_km: float
    """Expected distance of the guess from the true place, kilometres."""
    success: float
    """How probably the most probable place is the true one."""
    prior_error_km: float
    """The same attacker's error without the report: from what it knew beforehand alone."""
    prior_success: float
    likeliest_error_km: float
    """Expected distance of the most probable place from the true one, as the paper's attacker guesses, kilometres."""

    def __repr__(self) -> str:
        error = f"{self.error_km:.4g} km off (without the report {self.prior_error_km:.4g} km)"
        return short_repr(self, error, f"right {self.success:.1%} of the time (without {self.prior_success:.1%})")


@checked
@dataclass(frozen=True, eq=False)
class Cases:
    """The possible truths, their probabilities, and what the attacker knows of them beforehand.

    Examples
    --------
    With the `rows` and the `counts` in the example of `make_rows`:

    >>> from geoblanket.lab.evaluate import Cases
    >>> cases = Cases.of_counts(rows, counts, known_past=1)
    >>> f"{cases.weight.sum():.6f}"
    '1.000000'
    """

    row: Ints
    """The row of the mechanism that each case uses, shape (N,)."""
    place: Ints
    """Its present place, as a position in the zone, shape (N,)."""
    weight: Floats
    """How probable it is, shape (N,); sums to 1."""
    known: Ints
    """The label that the attacker knows it by beforehand, counted from 0, shape (N,)."""

    @classmethod
    @checked
    def of_rows(cls, rows: ZoneRows) -> Cases:
        """Return the rows of a zone as cases, with the prior that the mechanism was designed for; nothing is known."""
        return cls(
            row=np.arange(len(rows)),
            place=np.searchsorted(rows.zone, rows.histories[:, 0]).astype(np.int64),
            weight=rows.prior,
            known=np.zeros(len(rows), np.int64),
        )

    @classmethod
    @checked
    def of_counts(cls, rows: ZoneRows, counts: HistoryCounts, *, known_past: int = 0) -> Cases:
        """Return the histories that were seen in a zone as cases, the same for every mechanism.

        Parameters
        ----------
        rows
            The rows of the mechanism.
        counts
            Histories of walks; those elsewhere are left out.
        known_past
            How many earlier places the attacker knows exactly; 0 for the context-free attacker.

        Raises
        ------
        ParameterError
            If no history was seen in the zone, or histories have fewer earlier places.
        """
        here = counts.where(np.isin(counts.histories[:, 0], rows.zone))
        if not len(here):
            raise ParameterError("No history was seen in the zone, so there is nothing to infer.")
        if not 0 <= known_past <= here.largest:
            raise ParameterError(
                f"Histories have {here.largest} earlier place(s), so that {known_past} cannot be known."
            )
        _, known = np.unique(here.histories[:, 1 : 1 + known_past], axis=0, return_inverse=True)
        return cls(
            row=rows.row_of(here.histories).astype(np.int64),
            place=np.searchsorted(rows.zone, here.histories[:, 0]).astype(np.int64),
            weight=here.count / here.count.sum(),
            known=known.ravel().astype(np.int64),
        )

    def __repr__(self) -> str:
        return short_repr(self, counted(len(self.row), "case"), counted(len(np.unique(self.place)), "place"))


@checked
def attack_report(probabilities: npt.ArrayLike, cases: Cases, distance_km: npt.ArrayLike) -> Inference:
    """Return how well the best attacker does on one report.

    Parameters
    ----------
    probabilities
        Probability of each report from each row, shape (S, K).
    cases
        The possible truths, and what is known of them.
    distance_km
        Distances of the zone's places, kilometres, shape (P, P).

    Examples
    --------
    With the `rows` in the example of `make_rows`, and reports that reveal nothing:

    >>> import numpy as np
    >>> from geoblanket.lab.evaluate import Cases, attack_report, zone_distance_km
    >>> attack = attack_report(np.full((len(rows), 8), 1 / 8), Cases.of_rows(rows), zone_distance_km(rows))
    >>> round(attack.success - attack.prior_success, 6)
    0.0
    """
    q, distance = np.asarray(probabilities, np.float64), np.asarray(distance_km, np.float64)
    _check(q, cases, distance)
    pairs, which = np.unique(np.column_stack([cases.known, cases.place]), axis=0, return_inverse=True)
    weights = csr_array((cases.weight, (which.ravel(), cases.row)), shape=(len(pairs), len(q)))
    mass: Floats = np.asarray(weights.sum(axis=1)).ravel()
    error = success = likeliest_error = prior_error = prior_success = 0.0
    for some in np.split(np.arange(len(pairs)), np.flatnonzero(np.diff(pairs[:, 0])) + 1):
        from_place = distance[:, pairs[some, 1]]
        joint = np.asarray(weights[some] @ q)
        success += float(joint.max(axis=0).sum())
        expected = from_place @ joint
        error += float(expected.min(axis=0).sum())
        likeliest = pairs[some, 1][joint.argmax(axis=0)]
        likeliest_error += float(expected[likeliest, np.arange(len(likeliest))].sum())
        prior_success += float(mass[some].max())
        prior_error += float((from_place @ mass[some]).min())
    return Inference(
        error_km=error,
        success=success,
        prior_error_km=prior_error,
        prior_success=prior_success,
        likeliest_error_km=likeliest_error,
    )


@checked
def zone_distance_km(rows: ZoneRows) -> Floats:
    """Return the great-circle distances of a zone's places, kilometres, shape (P, P).

    Examples
    --------
    With the `rows` in the example of `make_rows`:

    >>> from geoblanket.lab.evaluate import zone_distance_km
    >>> zone_distance_km(rows).shape
    (8, 8)
    """
    lat, lon = (rows.places_e7[rows.zone] * 1e-7).T
    return haversine_m(lat[:, None], lon[:, None], lat, lon) / 1000


def _check(q: Floats, cases: Cases, distance: Floats) -> None:
    problems = []
    if q.ndim != 2 or (len(cases.row) and cases.row.max() >= len(q)):
        problems.append("some cases use rows that the mechanism does not have")
    if distance.ndim != 2 or distance.shape[0] != distance.shape[1]:
        problems.append(f"distance_km must be square, got the shape {distance.shape}")
    elif len(cases.place) and cases.place.max() >= len(distance):
        problems.append("some cases are at places that distance_km does not have")
    if not abs(float(cases.weight.sum()) - 1) < 1e-9:
        problems.append("the weights of cases must sum to 1")
    if problems:
        raise ParameterError("This report cannot be attacked: " + "; ".join(problems) + ".")
