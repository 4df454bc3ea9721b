"""Mechanisms: problem, optimiser, exact repair and verification, exact sampling, baselines and bundles; arrays only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import homes, on_first_use

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.signing import check_signature, sign_bundle
    from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism, load_bundle, save_bundle
    from geoblanket.mechanism.bundle.trust import Trust
    from geoblanket.mechanism.mechanism import Mechanism
    from geoblanket.mechanism.problem import Problem
    from geoblanket.mechanism.repairer import Repaired, repair
    from geoblanket.mechanism.solver.optimiser import Event, OptimiseResult, Outcome, optimise
    from geoblanket.mechanism.verifier import DENOMINATOR, Certificate, verify

__all__ = [
    "DENOMINATOR",
    "Bundle",
    "BundledMechanism",
    "Certificate",
    "Event",
    "Mechanism",
    "OptimiseResult",
    "Outcome",
    "Problem",
    "Repaired",
    "Trust",
    "check_signature",
    "load_bundle",
    "optimise",
    "repair",
    "save_bundle",
    "sign_bundle",
    "verify",
]

_HOME = homes(__name__)
__getattr__, __dir__ = on_first_use(__name__, _HOME)
