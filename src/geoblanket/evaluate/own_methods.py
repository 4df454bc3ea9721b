"""A mechanism of your own in the comparison: a function in a Python file, named `FILE.py:FUNCTION` like other methods.

The function gets a `Problem` and returns a table of probabilities, shape (S, K), or a `Mechanism`. Nothing of it is
trusted: the table is repaired, and whatever it is, it is verified exactly for the problem at hand. Its name is all that
settings, results and worker processes carry; the file is read where the function is called.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from geoblanket.errors import GuaranteeViolation, MechanismError, ParameterError
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import Problem

__all__ = ["OwnMaker", "is_own"]

_FORM: Final = "FILE.py:FUNCTION"
_TRIAL_SIDE: Final = 4
_TRIAL_KM: Final = 0.25


def is_own(method: str) -> bool:
    """Whether a method is named as a function in a file."""
    return ":" in method


@dataclass(frozen=True)
class OwnMaker:
    """Makes mechanisms by a function in a file."""

    file: Path
    function: str

    @classmethod
    def named(cls, method: str) -> OwnMaker:
        """Return the maker that a name stands for; the file is not read yet.

        Raises
        ------
        ParameterError
            If it is not of the form FILE.py:FUNCTION.
        """
        file, _, function = method.rpartition(":")
        if not file.endswith(".py") or not function.isidentifier():
            raise ParameterError(f"A method of your own is named {_FORM}. Got '{method}' instead.")
        return cls(Path(file), function)

    @property
    def label(self) -> str:
        """What reports call it."""
        return self.function.replace("_", " ")

    def load(self) -> Callable[[Problem], Any]:
        """Run the file, and return the function.

        Raises
        ------
        ParameterError
            If the file cannot be run, or has no such function.
        """
        spec = importlib.util.spec_from_file_location(self.file.stem, self.file)
        if not self.file.is_file() or spec is None or spec.loader is None:
            raise ParameterError(f"{self.file}: no such file. A method of your own is named {_FORM}.")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise ParameterError(f"{self.file}: cannot be run ({type(error).__name__}: {error}).") from error
        found: Callable[[Problem], Any] | None = getattr(module, self.function, None)
        if not callable(found):
            raise ParameterError(f"{self.file}: has no function '{self.function}'.")
        return found

    def try_out(self) -> None:
        """Call the function with a small problem, before any long work.

        A mechanism that does not keep its promise there is no reason to stop: the comparison says so of each zone.

        Raises
        ------
        ParameterError
            If the function cannot be loaded, fails, or returns a table of another shape.
        """
        self.load()
        km = _TRIAL_KM * np.stack(np.divmod(np.arange(_TRIAL_SIDE**2), _TRIAL_SIDE), axis=1)
        distance_km = np.linalg.norm(km[:, None] - km, axis=2)
        prior = np.full(len(km), 1 / len(km))
        try:
            self.make(Problem(loss=distance_km, prior=prior, distance_km=distance_km, epsilon=2.0))
        except (GuaranteeViolation, MechanismError):
            return
        except Exception as error:
            raise ParameterError(
                f"{self.file}: '{self.function}' must return a table of probabilities, a row for each secret and a "
                f"column for each output. With {len(km)} places on a grid it failed ({type(error).__name__}: {error})."
            ) from error

    def make(self, problem: Problem) -> Mechanism:
        """Return what the function makes of a problem, verified for this problem."""
        made = self.load()(problem)
        if isinstance(made, Mechanism):
            return Mechanism.from_weights(made.weights, problem)
        return Mechanism.from_probabilities(made, problem)
