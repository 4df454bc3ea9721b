"""Mechanisms: problem, optimiser, exact repair and verification, exact sampling, baselines and bundles; arrays only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geoblanket._lazy import on_first_use

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

_HOME = {
    "DENOMINATOR": "geoblanket.mechanism.verifier",
    "Bundle": "geoblanket.mechanism.bundle.storage",
    "BundledMechanism": "geoblanket.mechanism.bundle.storage",
    "Certificate": "geoblanket.mechanism.verifier",
    "Event": "geoblanket.mechanism.solver.optimiser",
    "Mechanism": "geoblanket.mechanism.mechanism",
    "OptimiseResult": "geoblanket.mechanism.solver.optimiser",
    "Outcome": "geoblanket.mechanism.solver.optimiser",
    "Problem": "geoblanket.mechanism.problem",
    "Repaired": "geoblanket.mechanism.repairer",
    "Trust": "geoblanket.mechanism.bundle.trust",
    "check_signature": "geoblanket.mechanism.bundle.signing",
    "load_bundle": "geoblanket.mechanism.bundle.storage",
    "optimise": "geoblanket.mechanism.solver.optimiser",
    "repair": "geoblanket.mechanism.repairer",
    "save_bundle": "geoblanket.mechanism.bundle.storage",
    "sign_bundle": "geoblanket.mechanism.bundle.signing",
    "verify": "geoblanket.mechanism.verifier",
}

__getattr__, __dir__ = on_first_use(__name__, _HOME)
