"""Published mechanisms to compare with, each a function of a problem that returns a verified mechanism.

Closed forms are the constant, exponential, truncated exponential, planar Laplace and tight-constraints mechanisms and
the peaks. ConstOPT solves a small linear program. `remap` improves the outputs of any of them. Every result is repaired
to whole numbers and verified like any other mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

import highspy
import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.linalg import LinAlgError, solve
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import Delaunay, QhullError
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from geoblanket._arrays import Bools, Floats, Ints
from geoblanket.errors import MechanismError, MismatchError, ParameterError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem
from geoblanket.mechanism.repairer import repair
from geoblanket.mechanism.solver.highs import LARGEST_RATIO, MOST_CONSTRAINTS, run_highs
from geoblanket.mechanism.verifier import DENOMINATOR

_LARGEST_FACTOR = 2**20
_HALVINGS = 40
_CROSSINGS_AT_ONCE = 1 << 17  # a megabyte, which stays in the processor's cache
_ROUNDING = 1e-9
"""Masses between this below 0 and 0 count as 0."""
MOST_PLACES = 2000
"""The exact verification looks at every pair of places for every output: minutes for more."""
_SHARE_LEFT_OUT = 3
Table = TypeVar("Table", Floats, Ints)


def constant(problem: Problem) -> Mechanism:
    """Return the mechanism that always gives the output of least expected loss (the first of them).

    It discloses nothing, at any ε.
    """
    weights = np.zeros((problem.row_count, problem.output_count), np.int64)
    weights[:, np.argmin(problem.prior @ problem.loss)] = DENOMINATOR
    return Mechanism.from_weights(weights, problem)


def exponential(problem: Problem, output_distance_km: npt.ArrayLike, *, calibrated: bool = False) -> Mechanism:
    """Return the exponential mechanism: the further an output lies from the row, the less probable it is.

    q[s, y] = e^(−t·D[s, y]) / Z_s with D the distance from row to output (McSherry and Talwar, FOCS 2007; for metrics,
    Chatzikokolakis, Andrés, Bordenabe, Palamidessi, PETS 2013). If |D[s, y] − D[s', y]| ≤ d(s, s'), then t = ε/2 keeps
    the promise, one half for the exponentials and one for Z: the published form. Z seldom uses its half, so a larger t
    often keeps the promise, too: the calibrated form takes the largest.

    Parameters
    ----------
    problem
        Its loss and prior are not used.
    output_distance_km
        How far each output lies from each row, kilometres, shape (S, K). Where rows share a class (0 mm apart) the
        mean over the class is used.
    calibrated
        False: the published form, t = ε/2 (less where the distances do not obey the triangle inequality, so that it
        would break the promise). True: the largest t that keeps the promise, found by doubling and bisection.
    """
    return _from_probabilities(_exponential_probabilities(problem, output_distance_km, calibrated=calibrated), problem)


def _exponential_probabilities(problem: Problem, output_distance_km: npt.ArrayLike, *, calibrated: bool) -> Floats:
    """Return the probabilities of the exponential mechanism for the rows of `problem.merged()`."""
    scale = _Scale(_output_distances(problem, output_distance_km), problem.merged().log_bound)
    half = problem.epsilon / 2
    t = scale.largest(problem.epsilon) if calibrated or not scale.keeps_promise(half) else half
    return np.exp(scale.log_probabilities(t))


class _Scale:
    """Which scales t keep the promise.

    ln(q[s, y] / q[s', y]) = t·(D[s', y] − D[s, y]) + ln Z_s' − ln Z_s, so the worst output of a pair does not depend
    on t: one pass over the outputs, then each t costs a look at the pairs.
    """

    def __init__(self, distance_km: Floats, log_bound: Floats) -> None:
        self.distance_km = distance_km
        self.log_bound = log_bound
        self.worst = np.stack([(distance_km - row).max(axis=1) for row in distance_km])

    def log_probabilities(self, t: float) -> Floats:
        exponents = -t * self.distance_km
        result: Floats = exponents - logsumexp(exponents, axis=1, keepdims=True)
        return result

    def keeps_promise(self, t: float) -> bool:
        log_z = logsumexp(-t * self.distance_km, axis=1)
        return bool((t * self.worst + log_z - log_z[:, None] <= self.log_bound).all())

    def largest(self, epsilon: float) -> float:
        """Return a t that keeps the promise such that a little more does not; 2^20·ε where any t does."""
        low, high = 0.0, epsilon / 2
        while self.keeps_promise(high):
            low, high = high, 2 * high
            if high > _LARGEST_FACTOR * epsilon:
                return low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.keeps_promise(middle) else (low, middle)
        return low


def truncated_exponential(problem: Problem, output_distance_km: npt.ArrayLike, *, radius_km: float) -> Mechanism:
    """Return the truncated exponential mechanism, TEM: all outputs beyond a radius are equally probable.

    As published (Carvalho, Vasiloudis, Feyisetan, Wang, "TEM: High utility metric differential privacy on text", SDM
    2023), near outputs have the score −D[s, y], one element ⊥ stands for the F far ones with the score
    −γ + 2·ln(F)/ε, Gumbel noise of scale 2/ε is added, and the largest is taken; ⊥ is replaced by a far output at
    random. The largest of such scores is y with probability ∝ e^(score·ε/2), so ⊥ has F·e^(−εγ/2) and each far output
    e^(−εγ/2). That is the exponential mechanism of the distance min(D, γ), in which the triangle inequality holds.

    Parameters
    ----------
    output_distance_km
        As in `exponential`.
    radius_km
        γ, kilometres.
    """
    if not radius_km >= 0:
        raise ParameterError(f"radius_km must be 0 or more. Got {radius_km} instead.")
    shape = (problem.row_count, problem.output_count)
    distance = _check_table(output_distance_km, "output_distance_km", shape)
    return exponential(problem, np.minimum(distance, radius_km))


def planar_laplace(
    problem: Problem, row_xy_km: npt.ArrayLike, output_xy_km: npt.ArrayLike, *, rays: int = 1024
) -> Mechanism:
    """Return the planar Laplace mechanism, remapped to the nearest output.

    A point is drawn around the row's position x with density ε²/(2π)·e^(−ε·|x − z|) and replaced by its nearest output
    (Andrés, Bordenabe, Chatzikokolakis, Palamidessi, CCS 2013). Replacing is post-processing, so the promise of the
    noise holds for the outputs: no normalisation, no loss of ε.

    An output's probability is the mass of its Voronoi cell. Cells are convex, so a ray from x meets one in an interval
    [a, b], on which the noise has the mass T(a) − T(b), T(r) = (1 + εr)·e^(−εr), exactly. The mean over evenly spread
    rays is the probability, up to the error of the rays, which the repair makes good. The certificate of the result
    tells the ε that is really spent.

    Parameters
    ----------
    problem
        Its loss and prior are not used. Where row distances are smaller than distances in the plane, ε is scaled
        down by the worst ratio, so that the promise holds in row distances.
    row_xy_km, output_xy_km
        Positions in one plane, kilometres, shapes (S, 2) and (K, 2). Of outputs at the same position the first is used;
        rows of one class (0 mm apart) stand at their mean.
    rays
        How many directions are integrated over.
    """
    rows = problem.class_means(_check_table(row_xy_km, "row_xy_km", (problem.row_count, 2), signed=True))
    outputs = _check_table(output_xy_km, "output_xy_km", (problem.output_count, 2), signed=True)
    sites, first = np.unique(outputs, axis=0, return_index=True)
    table = np.zeros((len(rows), problem.output_count))
    table[:, first] = _cell_masses(rows, sites, _plane_epsilon(problem, rows), rays)
    return _from_probabilities(table, problem)


def _plane_epsilon(problem: Problem, rows: Floats) -> float:
    """Return the largest ε of the noise, at most the problem's, with ε·|x − x'| ≤ the bound of every pair of rows."""
    in_plane = cdist(rows, rows)
    apart = in_plane > 0
    bound = problem.merged().log_bound[apart] / in_plane[apart]
    return float(bound.min(initial=problem.epsilon))


def _cell_masses(rows: Floats, sites: Floats, epsilon: float, rays: int) -> Floats:
    """Return the mass of the noise around each row in the Voronoi cell of each site."""
    if len(sites) == 1:
        return np.ones((len(rows), 1))
    offsets, neighbours = _neighbours(sites)
    owners = np.repeat(np.arange(len(sites)), np.diff(offsets))
    normals = 2 * (sites[neighbours] - sites[owners])
    limits = (sites[neighbours] ** 2).sum(axis=1) - (sites[owners] ** 2).sum(axis=1)
    angles = (np.arange(rays) + 0.5) * (2 * np.pi / rays)
    mass = np.zeros((len(rows), len(sites)))
    for block in np.array_split(angles, -(-rays * len(normals) // _CROSSINGS_AT_ONCE)):
        # A ray x + r·u is in the cell while r·speed ≤ room for every neighbour.
        speed = normals @ np.stack([np.cos(block), np.sin(block)])
        speed[speed == 0] = 1e-300
        outward, pace = speed > 0, 1 / speed
        for row, position in enumerate(rows):
            crossing = pace * (limits - normals @ position)[:, None]
            leave = np.minimum.reduceat(np.where(outward, crossing, np.inf), offsets[:-1])
            enter = np.maximum.reduceat(np.where(outward, 0.0, crossing), offsets[:-1])
            enter = np.maximum(enter, 0.0)
            mass[row] += (_tail(epsilon * enter) - _tail(epsilon * np.maximum(leave, enter))).sum(axis=1)
    return mass / rays


def _tail(x: Floats) -> Floats:
    """Return the probability that the noise goes further than x / ε."""
    x = np.minimum(x, 700.0)
    result: Floats = (1 + x) * np.exp(-x)
    return result


def _neighbours(sites: Floats) -> tuple[Ints, Ints]:
    """Return the sites whose cells may touch each site's, as offsets and indices."""
    try:
        triangles = Delaunay(sites)
        if not len(triangles.coplanar):
            offsets, indices = triangles.vertex_neighbor_vertices
            return offsets.astype(np.int64), indices.astype(np.int64)
    except QhullError:
        pass  # fewer than three sites, or all on a line
    others = ~np.eye(len(sites), dtype=bool)
    return np.arange(len(sites) + 1) * (len(sites) - 1), np.nonzero(others)[1]


def tight_constraints(problem: Problem, *, remapped: bool = True) -> Mechanism:
    """Return the tight-constraints mechanism: every constraint that can bind, binds.

    With M[s, j] = e^(−ε·d(s, j)) and μ = M⁻¹·1, the table q[s, j] = M[s, j]·μ_j has rows that sum to 1 and columns that
    keep the promise, wherever μ ≥ 0 (Chatzikokolakis, Elsalamouny, Palamidessi, PoPETs 2017, and before them Ghosh,
    Roughgarden, Sundararajan, STOC 2009, where on a line it is the truncated geometric mechanism). The columns are
    peaks, one for each row; each is then given to the output that suits it best, which is exact as it adds columns.

    d here is the length of the shortest chain of constrained pairs: a peak must not fall faster than along any chain.
    It is the row distance itself if that obeys the triangle inequality and η = ∞; without a chain the peak is 0.

    Parameters
    ----------
    remapped
        True: the peak of each row goes to the output of least expected loss. False: the peak of row j goes to output
        j, as published; the problem must then have as many outputs as rows.

    Raises
    ------
    MechanismError
        The mechanism does not exist: μ has negative entries. It exists if ε times the distances is large enough.
    """
    merged = problem.merged()
    columns = _tight_columns(merged.log_bound)
    if remapped:
        table = add_columns(columns, best_replacements(columns, merged), problem.output_count)
    elif problem.output_count != problem.row_count:
        raise ParameterError(
            f"Without remapping, outputs must be the rows. Got {problem.output_count} outputs for "
            f"{problem.row_count} rows; remap, or give the loss of each row as an output."
        )
    else:
        _, first = np.unique(problem.row_class, return_index=True)
        table = add_columns(columns, first, problem.output_count)
    return _from_probabilities(table, problem)


def _falls_and_masses(log_bound: Floats) -> tuple[Floats, Floats]:
    """Return e^(−ε·d) along the shortest chains, shape (S, S), and μ, shape (S,); NaN where there is none."""
    chain: Floats = shortest_path(np.where(np.isfinite(log_bound), log_bound, 0.0), directed=False)
    fall: Floats = np.exp(-chain)
    return fall, _masses(fall)


def _masses(fall: Floats) -> Floats:
    """Return μ = M⁻¹·1 for a table M; NaN where it cannot be solved."""
    try:
        mu: Floats = solve(fall, np.ones(len(fall)), assume_a="sym")
    except LinAlgError:
        return np.full(len(fall), np.nan)
    return mu


def _tight_columns(log_bound: Floats) -> Floats:
    fall, mu = _falls_and_masses(log_bound)
    negative = int(np.count_nonzero(~(mu >= -_ROUNDING)))
    if negative:
        raise MechanismError(
            f"The tight-constraints mechanism does not exist for this problem: {negative} of {len(mu)} rows would get "
            "a negative probability. It needs a larger ε or rows further apart; use the exponential mechanism instead."
        )
    columns: Floats = fall * np.maximum(mu, 0.0)
    return columns


@dataclass(frozen=True, eq=False)
class Peaks:
    """The peaks of a city, verified."""

    mechanism: Mechanism
    """A row for each place, and an output for each. Its distances are those of the kept places that rows stand for."""
    kept: Ints
    """The places that have peaks, ascending."""
    nearest: Ints
    """The kept place whose row each place uses, shape (S,)."""
    snapped_mm: int
    """How far a place lies from the one whose row it uses, at most, millimetres; 0 where all places are kept."""


def peaks(problem: Problem) -> Peaks:
    """Return the peaks of a city: the tight-constraints mechanism over all its places, wherever it exists.

    Outputs are the places themselves: q[s, j] = μ_j·e^(−ε·d(s, j)). Where places are too near together for ε (nearer
    than about 0.5/ε km), μ has negative entries and there is no such mechanism. Then places are left out, the most
    negative first, until there is one; a place that was left out uses the row of its nearest kept place. For one report
    no better mechanism is known between the places of a whole city, except the linear program, which takes minutes.

    Parameters
    ----------
    problem
        Its rows are the places; loss and prior are not used, and as many outputs are made as there are rows.

    Raises
    ------
    ParameterError
        There are more than 2,000 places.
    MechanismError
        No places can be kept.
    """
    count = problem.row_count
    if count > MOST_PLACES:
        raise ParameterError(f"Peaks are verified for at most {MOST_PLACES:,} places. Got {count:,} instead.")
    fall, mu = _falls_and_masses(problem.log_bound)
    kept: Ints = np.arange(count)
    while not (mu >= -_ROUNDING).all():
        if len(kept) == 1 or np.isnan(mu).any():
            raise MechanismError("There are no peaks for this problem: no places can be kept.")
        negative = np.flatnonzero(mu < -_ROUNDING)
        worst = negative[np.argsort(mu[negative])[: max(1, len(negative) // _SHARE_LEFT_OUT)]]
        kept = np.delete(kept, worst)
        mu = _masses(fall[np.ix_(kept, kept)])
    nearest = kept[np.argmin(problem.distance_mm[:, kept], axis=1)]
    table = np.zeros((len(kept), count))
    table[:, kept] = fall[np.ix_(kept, kept)] * np.maximum(mu, 0.0)
    of_kept = _from_probabilities(table, _between(problem, kept, count))
    weights = of_kept.weights[np.searchsorted(kept, nearest)]
    return Peaks(
        mechanism=Mechanism.from_weights(weights, _between(problem, nearest, count)),
        kept=kept,
        nearest=nearest,
        snapped_mm=int(problem.distance_mm[np.arange(count), nearest].max()),
    )


def _between(problem: Problem, places: Ints, outputs: int) -> Problem:
    """Return a problem whose rows stand for some places, which may be the same."""
    return Problem.in_millimetres(
        loss=np.zeros((len(places), outputs)),
        prior=np.full(len(places), 1 / len(places)),
        distance_mm=problem.distance_mm[np.ix_(places, places)],
        epsilon=problem.epsilon,
        eta_km=problem.eta_km,
    )


def const_opt(
    problem: Problem, output_distance_km: npt.ArrayLike, *, near_km: float, far: Literal["scaled", "peaks"] = "scaled"
) -> Mechanism:
    """Return the ConstOPT mechanism, by HiGHS: a linear program over near outputs, exponential for far ones.

    It is for small problems. After Imola, Kasiviswanathan, White, Aggarwal, Teissier, "Balancing utility and
    scalability in metric differential privacy", UAI 2022, as its abstract describes it: the linear program is made
    smaller by constraining certain pairs of input and output to probabilities derived from the exponential mechanism.

    A pair is near if the output lies within a radius of the row, and q[s, y] is then a variable. How a far pair is
    derived can be read in two ways, each with one variable c_y for each output:

    - `scaled`: q[s, y] = c_y·E[s, y], with E the published exponential mechanism. It always exists, because all
      c_y = 1 is the exponential mechanism itself.
    - `peaks`: q[s, y] = c_y·e^(−ε·D[s, y]), the exponential without its normalisation, and so with the whole ε. It is
      tighter, and may not exist where places are near together for ε, as `tight_constraints`.

    In both, constraints between two far entries of a column hold by themselves and are left out.

    Parameters
    ----------
    output_distance_km
        How far each output lies from each row, kilometres, shape (S, K).
    near_km
        Outputs within this distance of a row are optimised, kilometres. With `inf` it is the whole linear program.
    far
        How far pairs are derived.

    Raises
    ------
    MechanismError
        HiGHS gave no answer, or there is no such mechanism.
    ParameterError
        Among others: there are more than 20 million pairs of rows times outputs.
    """
    if not near_km >= 0:
        raise ParameterError(f"near_km must be 0 or more. Got {near_km} instead.")
    merged = problem.merged()
    size = int(np.count_nonzero(merged.constrained)) * problem.output_count
    if size > MOST_CONSTRAINTS:
        raise ParameterError(
            f"ConstOPT is for at most {MOST_CONSTRAINTS:,} pairs of rows times outputs, small problems. Got {size:,}."
        )
    distance = _output_distances(problem, output_distance_km)
    derived = (
        _exponential_probabilities(problem, output_distance_km, calibrated=False)
        if far == "scaled"
        else np.exp(-problem.epsilon * distance)
    )
    program = _ConstOptProgram(merged, derived, distance <= near_km)
    return _from_probabilities(program.solve(), problem)


class _ConstOptProgram:
    """The linear program of ConstOPT: entries q[s, y] = factor[s, y] · x[variable[s, y]], x ≥ 0."""

    def __init__(self, problem: Problem, far: Floats, near: Bools) -> None:
        self.problem = problem
        self.near = near
        rows, outputs = near.shape
        self.variable: Ints = np.tile(np.arange(outputs), (rows, 1))
        self.variable[near] = outputs + np.arange(np.count_nonzero(near))
        self.factor = np.where(near, 1.0, far)
        self.size = outputs + int(np.count_nonzero(near))

    def solve(self) -> Floats:
        """Return the best probabilities."""
        cost = np.zeros(self.size)
        np.add.at(cost, self.variable, self.problem.prior[:, None] * self.problem.loss * self.factor)
        sums, privacy = self._sums(), self._privacy()
        matrix = sparse.vstack([sums, privacy], format="csr")
        lower = np.concatenate([np.ones(sums.shape[0]), np.full(privacy.shape[0], -np.inf)])
        upper = np.concatenate([np.ones(sums.shape[0]), np.zeros(privacy.shape[0])])
        solver = run_highs(cost, (matrix.indptr, matrix.indices, matrix.data), lower, upper)
        status = solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise MechanismError(
                f"HiGHS did not solve the linear program of ConstOPT: {solver.modelStatusToString(status)}."
            )
        result: Floats = np.array(solver.getSolution().col_value)[self.variable] * self.factor
        return result

    def _sums(self) -> sparse.csr_array:
        """Return the rows of Σ_y q[s, y] = 1."""
        rows, outputs = self.near.shape
        row = np.repeat(np.arange(rows), outputs)
        return sparse.csr_array((self.factor.ravel(), (row, self.variable.ravel())), shape=(rows, self.size))

    def _privacy(self) -> sparse.csr_array:
        """Return the rows of q[s, y] − a·q[s', y] ≤ 0, where one of the two is near."""
        row, other = np.nonzero(self.problem.constrained)
        ratio = np.minimum(np.exp(np.minimum(self.problem.log_bound[row, other], 700.0)), LARGEST_RATIO)
        pair, output = np.nonzero(self.near[row] | self.near[other])
        row, other, ratio = row[pair], other[pair], ratio[pair]
        index = np.arange(len(pair))
        values = np.concatenate([self.factor[row, output], -ratio * self.factor[other, output]])
        variables = np.concatenate([self.variable[row, output], self.variable[other, output]])
        return sparse.csr_array((values, (np.tile(index, 2), variables)), shape=(len(pair), self.size))


def remap(mechanism: Mechanism, problem: Problem) -> Mechanism:
    """Replace each output of a mechanism by the best output of a problem; never costs more than leaving it.

    This is what a service would do that knows the prior and the loss: each output is replaced by the one with the least
    expected loss given that it was seen (Chatzikokolakis, Elsalamouny, Palamidessi, "Efficient utility improvement for
    location privacy", PoPETs 2017). Columns of weights are added up, nothing else, so the promise holds exactly: a sum
    of inequalities.

    Parameters
    ----------
    mechanism
        Any verified mechanism with as many rows as the problem; its outputs may be others than the problem's.
    problem
        Gives the prior and the loss. The promise stays the mechanism's own: its ε, η and distances.
    """
    if mechanism.row_count != problem.row_count:
        raise MismatchError(
            f"The mechanism has {mechanism.row_count} rows and the problem {problem.row_count}: they must be the same."
        )
    replacement = best_replacements(mechanism.weights.astype(np.float64), problem)
    return Mechanism.from_weights(add_columns(mechanism.weights, replacement, problem.output_count), mechanism)


def best_replacements(columns: Floats, problem: Problem) -> Ints:
    """Return, for each column of probabilities (S, any), the problem's output of least expected loss (the first)."""
    expected_loss: Floats = (columns * problem.prior[:, None]).T @ problem.loss
    best: Ints = expected_loss.argmin(axis=1)
    return best


def add_columns(table: Table, replacement: Ints, output_count: int) -> Table:
    """Return the table of `output_count` columns in which each column is added to its replacement."""
    result = np.zeros_like(table, shape=(len(table), output_count))
    np.add.at(result.T, replacement, table.T)
    return result


def _from_probabilities(probabilities: Floats, problem: Problem) -> Mechanism:
    """Return the mechanism of a problem with these probabilities, repaired to integers and verified.

    Parameters
    ----------
    probabilities
        Of the rows of `problem.merged()`, shape (classes, K).
    """
    # A repair may prefer the constant mechanism where that costs less. Here the mechanism is given, whatever it costs:
    # without a loss nothing is cheaper, and what rounding leaves goes to the first output. That should be one which is
    # probable everywhere, as it changes least there.
    without_loss = Problem.in_millimetres(
        loss=np.zeros_like(problem.loss),
        prior=problem.prior,
        distance_mm=problem.distance_mm,
        epsilon=problem.epsilon,
        eta_km=problem.eta_km,
    )
    order = np.argsort(-probabilities.min(axis=0), kind="stable")
    weights = np.empty(problem.loss.shape, np.int64)
    weights[:, order] = repair(probabilities[:, order][problem.row_class], without_loss).weights
    return Mechanism.from_weights(weights, problem)


def _output_distances(problem: Problem, output_distance_km: npt.ArrayLike) -> Floats:
    """Return how far each output lies from each row of `problem.merged()`, kilometres: means over classes of rows."""
    shape = (problem.row_count, problem.output_count)
    return problem.class_means(_check_table(output_distance_km, "output_distance_km", shape))


def _check_table(values: npt.ArrayLike, name: str, shape: tuple[int, int], *, signed: bool = False) -> Floats:
    """Return `values` as floats; raise unless they have this shape, are finite and (if not `signed`) not negative."""
    table = np.asarray(values, np.float64)
    if table.shape != shape:
        raise ParameterError(f"{name} must have the shape {shape}. Got {table.shape} instead.")
    if not np.isfinite(table).all() or not (signed or (table >= 0).all()):
        raise ParameterError(f"{name} must be finite{'' if signed else ' and not negative'}.")
    return table
