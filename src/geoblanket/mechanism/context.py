"""Secrets with a context, in any domain: from a metric, context variables, a prior and a loss to a problem.

The secret X has the context variables V_1, ..., V_T. The distance of two secrets with their contexts is
d(x, x') + Σ w_j·d_j(v_j, v'_j): the metric of the secrets, augmented. The Markov blanket of X are the variables that
tell something about it; the mechanism looks at these and at no others (the paper's CD policy). Distances over the
blanket alone are never larger than over all variables, so the promise holds for all of them, whether the blanket is
right or not.

A row is a distribution over outputs, for a secret and the values of the blanket. Where the prior gives a context no
chance, the row of the nearest one counts that has a chance with that secret; where it gives a secret no chance, that
secret has one row for all contexts. Distances between rows are the smallest between all histories that use them
(`row_distances`), the same as between the histories of a vehicle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from geoblanket._arguments import checked
from geoblanket._arrays import Floats, Indices, Ints
from geoblanket._display import counted, short_repr
from geoblanket.errors import MismatchError, ParameterError
from geoblanket.mechanism.costs import weight_in_micro
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.metric import Metric, as_numbers
from geoblanket.mechanism.problem import NEVER_MM, Problem, check_prior
from geoblanket.mechanism.row_distances import RowTree, row_distances

_MOST_HISTORIES: Final = 10**6
"""Secrets times contexts: the prior and the loss name them all."""
_MOST_ROWS: Final = 5_000
_BYTES_PER_PAIR: Final = 40
"""What distances, bounds and their verification hold for a pair of rows."""


@checked
@dataclass(frozen=True, eq=False)
class ContextVariable:
    """A variable that may tell something about the secret.

    Examples
    --------
    >>> from geoblanket import ContextVariable, Metric
    >>> ContextVariable("weekday", Metric.matrix([[0, 1], [1, 0]], unit="kind of day"), weight=0.5).name
    'weekday'
    """

    name: str
    metric: Metric
    """Distances between its values."""
    weight: float = 1.0
    """How much it counts, in units of the secret for each unit of its own metric. 0: the mechanism cannot use it;
    `inf`: it is known anyway, and not protected."""

    def __post_init__(self) -> None:
        weight_in_micro(self.weight)


class _ContextTree(RowTree):
    """Histories of secrets and contexts; of the values that are listed, the nearest by its metric counts."""

    def __init__(self, metrics: Sequence[Metric], histories: Indices, rows: Indices) -> None:
        super().__init__(histories, rows, [len(metric) for metric in metrics])
        self._whole = [metric.whole for metric in metrics[1:]]

    def _nearest(self, lag: int, nodes: Ints, values: Ints) -> Ints:
        listed = self._listed[lag - 1][nodes]
        distance = np.where(listed < 0, NEVER_MM, self._whole[lag - 1][values[:, None], listed])
        # What is listed comes first: where all of it is infinitely far, the first counts.
        nearest: Ints = self._first[lag - 1][nodes] + distance.argmin(axis=1)
        return nearest


@dataclass(frozen=True, eq=False)
class ContextProblem:
    """The problem of secrets with a context, reduced to the blanket; made by `contextual_problem`.

    Examples
    --------
    With the `asked` in the example of `contextual_problem`:

    >>> asked.row_of("low", 1) == asked.row_of("low", 0)  # low prices have no chance in the second season
    True
    >>> asked.problem.prior
    array([0.3, 0.2, 0.2, 0.3])
    """

    secrets: Metric
    blanket: tuple[ContextVariable, ...]
    """The context variables that rows look at."""
    histories: Indices
    """The secret and the context that each row stands for, −1 for any value; shape (S, 1 + variables)."""
    problem: Problem
    """What `optimise` takes: its rows are those of `histories`."""

    @property
    def _metrics(self) -> list[Metric]:
        return [self.secrets, *(variable.metric for variable in self.blanket)]

    @cached_property
    def _tree(self) -> RowTree:
        return _ContextTree(self._metrics, self.histories, np.arange(len(self.histories), dtype=np.int32))

    def row_of(self, secret: str | int, *context: str | int) -> int:
        """Return the row of a secret and the values of the blanket, given as labels or numbers."""
        values = (secret, *context)
        if len(values) != len(self._metrics):
            names = ", ".join(["the secret", *(variable.name for variable in self.blanket)])
            raise ParameterError(f"A history needs {counted(len(self._metrics), 'value')}: {names}. Got {len(values)}.")
        numbers = [metric.number(value) for metric, value in zip(self._metrics, values, strict=True)]
        return int(self._tree.rows_of(np.array([numbers]))[0])

    def rows_of(self, histories: npt.ArrayLike) -> Indices:
        """Return the rows of many histories, given as numbers, shape (n, 1 + variables of the blanket)."""
        asked, counts = np.asarray(histories), np.array(self._tree.value_counts)
        if asked.ndim != 2 or asked.shape[1] != len(counts) or not np.issubdtype(asked.dtype, np.integer):
            raise ParameterError(
                f"histories must be whole numbers of the shape (n, {len(counts)}): a secret and the values of its "
                f"blanket. Got the shape {asked.shape}."
            )
        if ((asked < 0) | (asked >= counts)).any():
            raise ParameterError("Some histories hold values that are not in their domain.")
        return self._tree.rows_of(asked.astype(np.int64))

    def promise(self, mechanism: Mechanism) -> str:
        """Return what a mechanism of this problem promises, in words of the domain.

        Raises
        ------
        MismatchError
            The mechanism was verified for another promise than this problem asks for.
        """
        wanted = self.problem
        promised = (mechanism.epsilon_micro, mechanism.eta_mm, mechanism.unit)
        same = promised == (wanted.epsilon_micro, wanted.eta_mm, wanted.unit)
        if not (same and np.array_equal(mechanism.distance_mm, wanted.distance_mm)):
            raise MismatchError("The mechanism was verified for another problem: its distances, ε, η or unit differ.")
        counted_in = [variable for variable in self.blanket if 0 < variable.weight < math.inf]
        terms = ["d(secret)", *(f"{variable.weight:g}·d({variable.name})" for variable in counted_in)]
        lines = [
            f"The distance of two secrets with their contexts is d = {' + '.join(terms)}.",
            mechanism.guarantee_between("two secrets with their contexts at distance d"),
            "It holds for every secret and context of the domain, whether the prior gives it a chance or not.",
        ]
        if known := [variable.name for variable in self.blanket if variable.weight == math.inf]:
            lines.append(f"Taken as known, and not protected: {', '.join(known)}.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        names = ", ".join(variable.name for variable in self.blanket) or "nothing"
        return short_repr(
            self, counted(len(self.secrets), "secret"), f"blanket: {names}", counted(len(self.histories), "row")
        )


@checked
def contextual_problem(
    secrets: Metric,
    context: Sequence[ContextVariable] = (),
    *,
    prior: npt.ArrayLike | Callable[..., float],
    loss: npt.ArrayLike | Callable[..., npt.ArrayLike],
    epsilon: float,
    eta: float = math.inf,
    blanket: Sequence[str] | None = None,
) -> ContextProblem:
    """Return the problem of finding the best mechanism for secrets with a context.

    Parameters
    ----------
    secrets
        The metric between secrets. Its unit is that of ε and η.
    context
        The context variables V_1, ..., V_T.
    prior
        How probable each secret is together with each context: an array of the shape (secrets, values of V_1, ...) that
        sums to 1, or a function of a secret and its context.
    loss
        What each output costs: an array of the shape (secrets, outputs), or (secrets, values of V_1, ..., outputs), or
        a function of a secret and its context that returns a cost for each output.
    epsilon
        ε per unit.
    eta
        The largest distance at which two secrets with their contexts are protected from one another, in units.
    blanket
        The names of the variables that the mechanism may look at: a Markov blanket. All of them by default. The loss is
        the mean over the others, weighted by the prior.

    Notes
    -----
    Functions get labels where a metric has them, else numbers.

    Raises
    ------
    ParameterError
        Something does not fit, or there would be more rows than memory.

    Examples
    --------
    >>> import numpy as np
    >>> from geoblanket import ContextVariable, Metric, contextual_problem, optimise
    >>> price = Metric.norm([0.0, 1.0, 2.0], unit="euro", labels=["low", "middle", "high"])
    >>> season = ContextVariable("season", Metric.matrix([[0, 1], [1, 0]], unit="season"), weight=0.5)
    >>> chance = np.array([[0.3, 0.0], [0.2, 0.2], [0.0, 0.3]])  # low in one season, high in the other
    >>> asked = contextual_problem(price, [season], prior=chance, loss=price.whole / 1e6, epsilon=2.0)
    >>> asked
    <ContextProblem: 3 secrets, blanket: season, 4 rows>
    >>> mechanism = optimise(asked.problem).mechanism
    >>> print(asked.promise(mechanism))
    The distance of two secrets with their contexts is d = d(secret) + 0.5·d(season).
    One report changes the odds between two secrets with their contexts at distance d by at most ... ε = 2 per euro...
    >>> mechanism.sample(asked.row_of("high", 0)) in {0, 1, 2}
    True
    """
    domain = [secrets, *(variable.metric for variable in context)]
    chosen = _chosen(context, blanket)
    _check_domain(domain)
    shape, joint = tuple(map(len, domain)), _table(prior, domain, "prior")
    _check_prior(joint, shape)
    unseen = joint.reshape(len(secrets), -1).sum(axis=1) == 0
    # What never occurs has no mean loss of its own: for such a secret all contexts count alike.
    share = np.where(unseen.reshape(-1, *[1] * len(context)), 1.0, joint)
    support = np.argwhere(share > 0)
    seen = support[:, [0, *(1 + number for number in chosen)]]
    seen[unseen[support[:, 0]], 1:] = -1
    different, row = np.unique(seen, axis=0, return_inverse=True)
    histories, row = different.astype(np.int32), row.ravel()
    if len(histories) > _MOST_ROWS:
        raise ParameterError(
            f"There would be {len(histories):,} rows, and {len(histories) ** 2 * _BYTES_PER_PAIR / 1e9:,.0f} GB of "
            f"memory for the pairs of them. At most {_MOST_ROWS:,} are taken. Use a smaller blanket, variables with "
            "fewer values, or a prior that gives fewer contexts a chance."
        )
    kept = tuple(context[number] for number in chosen)
    metrics = [secrets, *(variable.metric for variable in kept)]
    tree = _ContextTree(metrics, histories, np.arange(len(histories), dtype=np.int32))
    at = tuple(support.T)
    chance: Floats = np.bincount(row, joint[at], len(histories)).astype(np.float64)
    problem = Problem.in_millimetres(
        loss=_row_loss(_table(loss, domain, "loss"), shape, at, row, share[at]),
        prior=chance,
        distance_mm=row_distances(tree, metrics, [weight_in_micro(variable.weight) for variable in kept]),
        epsilon=epsilon,
        eta_km=eta,
        unit=secrets.unit,
    )
    return ContextProblem(secrets, kept, histories, problem)


def _chosen(context: Sequence[ContextVariable], blanket: Sequence[str] | None) -> list[int]:
    """Return the numbers of the variables of the blanket, ascending."""
    names = [variable.name for variable in context]
    if len(set(names)) < len(names):
        raise ParameterError(f"Context variables must have different names. Got {', '.join(names)}.")
    if unknown := sorted(set(blanket or ()) - set(names)):
        raise ParameterError(
            f"The blanket must be some of the context variables: {', '.join(names) or 'there are none'}. "
            f"Got {unknown[0]!r} too."
        )
    return [number for number, name in enumerate(names) if blanket is None or name in blanket]


def _check_domain(domain: Sequence[Metric]) -> None:
    if len(domain[0]) < 2:
        raise ParameterError("A domain needs two secrets or more: of one alone there is nothing to hide.")
    if (histories := math.prod(map(len, domain))) > _MOST_HISTORIES:
        raise ParameterError(
            f"There are {histories:,} secrets with contexts, and a prior of {histories * 8 / 1e9:,.1f} GB. At most "
            f"{_MOST_HISTORIES:,} are taken. Leave out variables that are not in the blanket, or group their values."
        )


def _table(values: Any, domain: Sequence[Metric], name: str) -> Floats:
    """Return an array as it is, or what a function returns for every secret and context."""
    if not callable(values):
        return as_numbers(values, name)
    shape = tuple(map(len, domain))
    named = [range(len(metric)) if metric.labels is None else metric.labels for metric in domain]
    returned = [as_numbers(values(*history), name) for history in itertools.product(*named)]
    if len({one.shape for one in returned}) > 1:
        raise ParameterError(f"{name} must return as many numbers for every secret and context.")
    return np.stack(returned).reshape(*shape, *returned[0].shape)


def _check_prior(joint: Floats, shape: tuple[int, ...]) -> None:
    if joint.shape != shape:
        raise ParameterError(f"The prior must have the shape {shape}: secrets, then context. Got {joint.shape}.")
    if problems := check_prior(joint):
        raise ParameterError(f"This is not a prior: {problems[0]}.")


def _row_loss(costs: Floats, shape: tuple[int, ...], at: tuple[Ints, ...], row: Ints, share: Floats) -> Floats:
    """Return what outputs cost in each row: the mean over its histories, weighted by their share, shape (S, K)."""
    if costs.shape[:-1] not in (shape[:1], shape):
        shapes = (f"({', '.join(map(str, sizes))}, outputs)" for sizes in dict.fromkeys((shape[:1], shape)))
        raise ParameterError(f"The loss must have the shape {' or '.join(shapes)}. Got {costs.shape}.")
    total = np.zeros((int(row.max()) + 1, costs.shape[-1]))
    np.add.at(total, row, costs[at[: costs.ndim - 1]] * share[:, None])
    mean: Floats = total / np.bincount(row, share)[:, None]
    return mean
