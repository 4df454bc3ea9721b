"""The limit: no mechanism with the promise of a lattice is nearer than 2/ε on average, and how near a lattice comes.

*Theorem.* Let a mechanism be ε-indistinguishable per kilometre between all points of the plane. Whatever is computed
from its report, the estimate is off by at least 2/ε km on average, all points being equally probable.

*Proof.* Let y be the estimate from x. Averaging over shifts of the plane keeps the promise and the mean error, so let
u = y − x have one density f for all x, with |ln f(u) − ln f(v)| ≤ ε·|u − v|. Along a ray, f(r)·e^(ε·r) then never
falls. So r·f(r) divided by r·e^(−ε·r) never falls: given its direction, the distance r is at least a Γ(2, 1/ε)
variable in the likelihood-ratio order, whose mean is 2/ε. ∎ Planar Laplace noise attains it. In a frame, which has
borders, and with a prior that knows the roads, somewhat less is possible.

*On the way.* |∇ ln f| ≤ ε also bounds the Fisher information of a report by ε² in both directions together. Which
part of it goes which way matters little to a walk that has no direction: ε²/2 each is best, as 1/j is convex. The
inequality of van Trees (the posterior Cramér–Rao bound) then holds for every mechanism and every tracker:
`tracking_limit_km`.
"""

from __future__ import annotations

import math

import numpy as np

from geoblanket.mechanism.lattice.spec import DENOMINATOR, SINK_BASE, LatticeSpec

_FROM_THE_MIDDLE = (math.sqrt(2) + math.asinh(1)) / 6
"""Mean distance from the middle of a square to its points, in sides: how far a cell of the torus is away."""


def limit_km(epsilon: float) -> float:
    """Return the least mean error of any mechanism that is ε-indistinguishable per kilometre, kilometres."""
    return 2 / epsilon


def tracking_limit_km(epsilon: float, step_km: float) -> float:
    """Return the least error of any tracker that follows a Gaussian random walk by one report after each step.

    Parameters
    ----------
    epsilon
        ε of a report, per kilometre, of whatever mechanism.
    step_km
        The root mean square length of a step, kilometres.

    Returns
    -------
    error_km
        The root mean square error in the long run, kilometres.
    """
    report, step = epsilon**2 / 2, step_km**2 / 2
    # By axis, the variance v solves 1/v = 1/(v + step) + report.
    return math.sqrt(step * (math.sqrt(1 + 4 / (report * step)) - 1))


def mean_error_km(spec: LatticeSpec) -> float:
    """Return how far reports of a lattice lie from the truth on average, kilometres, all points being equally probable.

    From all weights, but for what lies outside the window, where a mean distance is taken: one report in 10,000.
    """
    n, window, total, inside = spec.cell_units, spec.window, 0.0, 0.0
    for a, b in zip(*np.tril_indices(n // 2 + 1), strict=True):
        # How many positions of a cell are the same but for reflections.
        times = (1 + (0 < 2 * a < n)) * (1 + (0 < 2 * b < n)) * (1 + (a != b))
        distances = np.sqrt(window.squares[b][:, None] + window.squares[a])
        total += times * float((window.weights(int(a), int(b)) * distances).sum())
        inside += times * float(distances.sum())
    everywhere = _FROM_THE_MIDDLE * spec.plane.side
    outside = spec.floor * (spec.cell_count * everywhere - inside / n**2) + SINK_BASE * everywhere
    return (total / n**2 + outside) / DENOMINATOR * spec.plane.unit_mm / 10**6
