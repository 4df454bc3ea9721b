"""The forward pass of the predictor's network: three fully connected layers, ReLU between, a sigmoid at the end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from geoblanket._arrays import Bools, Floats, Ints

__all__ = ["LARGEST_LAYER", "LAYERS", "Network", "blanket_lengths", "sigmoid"]

LAYERS = 3
LARGEST_LAYER = 256
"""Units of a hidden layer; more are refused."""


@dataclass(frozen=True)
class Network:
    """Weights and biases of the three layers, as scikit-learn orders them: inputs down, outputs across."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    def probabilities(self, rows: Floats) -> Floats:
        """Return P("fail to reject") of each encoded row."""
        return sigmoid(self.after_first(rows @ self.weights[0] + self.biases[0])[:, 0])

    def after_first(self, sums: Floats) -> Floats:
        """Return the logits, shape (n, 1), that follow from the first layer's sums before its ReLU, (n, units)."""
        second = np.maximum(sums, 0.0) @ self.weights[1] + self.biases[1]
        return np.maximum(second, 0.0) @ self.weights[2] + self.biases[2]


def sigmoid(logits: Floats) -> Floats:
    """Return 1 / (1 + e^-x), without overflow."""
    probabilities: Floats = np.exp(-np.logaddexp(0.0, -logits))
    return probabilities


def blanket_lengths(kept: Bools) -> Ints:
    """Return the blanket's length by Algorithm 2: the first m that is not rejected, and Γ where all are.

    Parameters
    ----------
    kept
        Whether "fail to reject" is predicted for m = 1, ..., Γ, along the last axis.
    """
    lengths: Ints = np.where(kept.any(axis=-1), kept.argmax(axis=-1) + 1, kept.shape[-1])
    return lengths
