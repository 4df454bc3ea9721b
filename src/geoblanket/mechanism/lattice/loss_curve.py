"""How well one report of a lattice tells two coordinates apart: an upper bound of its hockey-stick curve.

Let P and Q be the probabilities of all cells from x and from x', and H(α) = Σ_y max(0, P(y) − α·Q(y)).
`lattice_curve` returns H at some α > 1, maximised over **all** pairs of coordinates at most d apart: never below the
truth. For α < 1 the curve follows from H(α) = 1 − α + α·H(1/α), as pairs can be exchanged.

Why it is an upper bound
------------------------
Lengths are in units, h is the side of a cell, and D = ε·d. a = ln 2·ρ/2^33 is the kernel's rate.

*Ideal weights.* With the bounds of `kernel`, W(y | x) ≤ M·e^(θ − a·r) or W(y | x) = c, and W(y | x') ≥
ζ·M'·e^(−a·r'), θ = ln 2·(ρ/2^20 + 1)/2^24, ζ = (1 − 2^-28)·c/(c + 1) (`spec`; r and r' are the distances of the
cell). A cell of weight c from x adds nothing to H, as W(y | x') ≥ c. So with k = ln(ζ·e^(−θ)·min M/max M) and
p(y) = e^(−a·|y − x|), the near cells add at most C·F(α·e^k), C = max M·e^θ, where

    F(β) = Σ_y max(0, p(y) − β·q(y)),  q(y) = e^(−a·|y − x'|),  x and x' any points of the plane.

*Far cells*, floors and what the sink gets on top have the probability T, at most, from x. The promise gives Q ≥
e^(−D)·P for each of them: they add at most T·(1 − α·e^(−D)). Around every far cell the kernel is at most e^(a·h/√2)
times its mean over the cell's square: T follows from an integral.

*Distance.* r' is convex in x', so the loss L = a·(r' − r) grows along a ray from x at least in proportion to the
distance where it is positive. For β ≥ 1, F therefore grows along a ray: only x' on the circle of radius d count, or
beyond it.

*Directions.* Take the polygon with J corners around that circle. Between two corners x'₁, x'₂, at x' = λ·x'₁ + (1 −
λ)·x'₂, λ·q₁ + (1 − λ)·q₂ − q ≤ ½·(a·l)²·e^(2·a·l)·q, l half the edge, because q'' ≤ a²·q (q has a peak at y, which
only helps). As max(0, ·) is convex, F is at most its largest value at a corner plus ½·(a·l)²·e^(2·a·l)·Σ β·q over the
cells with β·q < p.

*Positions.* Shift x and x' together: in a square of side g, by bilinear weights λ_i on its corners δ_i away, Σ
λ_i·δ_i = 0, Σ λ_i·|δ_i|² ≤ g²/2 and Σ λ_i·(w·δ_i)² ≤ g²/4 for unit vectors w. From |v + δ| ≤ |v| + w·δ +
|δ|²/(2·|v|): p − Σ λ_i·p_i ≤ a·p·min(g²/(4·r), g/√2). From |v + δ| ≥ |v| + w·δ: Σ λ_i·q_i − q ≤
(a·g)²/8·e^(√2·a·g)·q. The sums of both over cells with β·q < p are added. The cell has eight symmetries and the
polygon too, so an eighth of it is enough. ∎

Sums are of some thousand floats between 0 and 1. What they round is far below `_FLOATS`, by which α and H are
increased.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from geoblanket._arrays import Floats
from geoblanket.mechanism.certainty import LARGEST_LOSS, LOSSES, LossCurve, excess, loss_grid
from geoblanket.mechanism.lattice.spec import DENOMINATOR, SINK_BASE, LatticeSpec

_REACH: Final = 10.5
"""Cells within this distance times a are summed one by one: all but one report in two thousand."""
_ADDED: Final = 5e-4
"""What directions may add to H, and positions, as a share of D: together .1 points of certainty, or less."""
_SMALL: Final = 0.05
"""For a smaller D as much is added as for this one: nearly nothing."""
_FLOATS: Final = 1e-9


@lru_cache(maxsize=16)  # a few: a service that loads bundle after bundle forgets those that it no longer has
def lattice_curve(spec: LatticeSpec, distance: float) -> LossCurve:
    """Return the curve of one report for points of the frame up to a distance apart, in units."""
    h, a = spec.cell_units, math.log(2) * spec.rate / 2**33
    theta = math.log(2) * (spec.rate / 2**20 + 1) / 2**24
    smallest, largest = int(spec.multipliers.min()), int(spec.multipliers.max())
    k = math.log(smallest / largest) - theta - 1 / spec.floor - 2**-27 - _FLOATS
    top = largest * 2.0 ** (31 - spec.shift) / DENOMINATOR * math.exp(theta)
    pure = spec.epsilon_micro * spec.plane.unit_mm * distance / 10**12
    # α·e^k must be at least 1: for points that are very near to one another there are fewer losses, or none but D.
    losses = loss_grid(pure, min(LOSSES, math.floor(pure / -k / 2 - 0.5)))
    if not len(losses) or pure > LARGEST_LOSS:
        return LossCurve(pure, np.empty(0))
    corners, steps = _net(a * distance, a * h)
    near, far = _cells(spec, a)
    g, edge = h / 2 / steps, a * distance * math.tan(math.pi / corners)
    added = edge**2 / 2 * math.exp(2 * edge) + (a * g) ** 2 / 8 * math.exp(math.sqrt(2) * a * g)
    positions = np.column_stack(np.tril_indices(steps + 1)).astype(np.float64) * g
    curve = top * _largest_sums(near, a, (distance, corners), positions, losses + k)
    curve += added * math.exp(-k) + top * a * _bent(near, a, h, g)
    share = top * far + (spec.floor * spec.cell_count + 2 * SINK_BASE) / DENOMINATOR
    curve += min(share, 1.0) * -np.expm1(losses - pure)
    return LossCurve(pure, np.minimum(curve * (1 + _FLOATS), 1.0))


def _net(loss: float, cell: float) -> tuple[int, int]:
    """Return the corners of the polygon, and the steps of positions from a cell's centre to its edge."""
    allowed = _ADDED * max(loss, _SMALL)
    corners = 8 * math.ceil(math.pi / math.atan(math.sqrt(2 * allowed) / loss) / 8)
    return corners, math.ceil(cell / 2 * math.sqrt(0.45 / allowed))


def _cells(spec: LatticeSpec, a: float) -> tuple[Floats, float]:
    """Return the centres of the near cells from that of x's cell, and the kernel's sum over all others, at most."""
    h = spec.cell_units
    reach = min(_REACH / a, spec.plane.side / 2 - h)
    axis = h * np.arange(-(reach // h), reach // h + 1)
    centres = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    from_here = max(a * (reach - math.sqrt(2) * h), 0.0)
    far = math.exp(a * h / math.sqrt(2) - from_here) * 2 * math.pi * (1 + from_here) / (a * h) ** 2
    return centres[np.hypot(*centres.T) <= reach], far


def _bent(near: Floats, a: float, h: int, g: float) -> float:
    """Return Σ p·min(g²/4r, g/√2) with the distance r of each cell as small as it can be."""
    r = np.hypot(*np.maximum(np.abs(near) - h / 2, 0.0).T)
    return float((np.exp(-a * r) * np.minimum(g * g / 4 / np.maximum(r, 1e-9), g / math.sqrt(2))).sum())


def _largest_sums(near: Floats, a: float, circle: tuple[float, int], positions: Floats, bounds: Floats) -> Floats:
    """Return F at β = e^bound, the largest over positions and the corners of the polygon around a circle.

    A mirror that keeps a position keeps the cells and the polygon too: corners on one side of it are enough. The number
    of corners is a multiple of 8, so that no corner lies on a mirror.
    """
    radius, corners = circle
    angles = (2 * np.arange(corners) + 1) * math.pi / corners
    moves = radius / math.cos(math.pi / corners) * np.column_stack((np.cos(angles), np.sin(angles)))
    above_axis, above_diagonal = angles < math.pi, (angles - math.pi / 4) % (2 * math.pi) < math.pi  # one side of each
    largest = np.zeros(len(bounds))
    for position in positions:
        x, y = (near - position).T
        r = np.hypot(x, y)
        p = np.exp(-a * r)
        needed = (above_axis | (position[1] != 0)) & (above_diagonal | (position[0] != position[1]))
        for east, north in moves[needed]:
            losses = a * (np.sqrt((x - east) ** 2 + (y - north) ** 2) - r)
            np.maximum(largest, excess(p, losses, bounds), out=largest)
    return largest
