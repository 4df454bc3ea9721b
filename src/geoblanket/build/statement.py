"""What the mechanisms of a build are learned from: the statement that goes into its bundle, and why no better one."""

from __future__ import annotations

from pathlib import Path

from geoblanket._training import Training, training_of
from geoblanket.blanket.findings import scan_findings
from geoblanket.blanket.predictor_file import load_predictor
from geoblanket.build.config import BuildConfig
from geoblanket.mobility.walks import scan_walks

__all__ = ["learned_in_words", "training_of_build"]


def training_of_build(walks: str | Path, config: BuildConfig) -> tuple[Training, str | None]:
    """Return the statement of a build, and why it promises less than that of its walks, or None.

    Whatever is computed from walks that were learned privately keeps their promise. Blankets that were found in other
    walks do not: findings and predictors have the statement of the walks that they come from.
    """
    stated = training_of(scan_walks(walks)[1])
    if config.findings is not None:
        blankets, name = training_of(scan_findings(config.findings)[1]), "findings"
    elif config.predictor is not None:
        blankets, name = load_predictor(config.predictor).origin.training, "a predictor"
    else:
        return stated, None
    training = stated.together(blankets)
    if training == stated:
        return training, None
    return training, (
        f"The walks were {stated.in_words()}, and the blankets come from {name}, {blankets.in_words()}: for both "
        f"together no more is claimed than '{training.in_words()}'."
    )


def learned_in_words(training: Training) -> str:
    """Return what those whose trips were learned from have been promised, as a sentence."""
    if training.source == "nobody":
        return "Nothing was learned from anyone's trips."
    if training.source == "released":
        return (
            "People's released reports were learned from, and keep their own promise: the mechanisms were "
            f"{training.in_words()}."
        )
    if training.promise is None:
        return f"Those whose trips were learned from are promised nothing: the mechanisms were {training.in_words()}."
    return f"Those whose trips were learned from are protected too: the mechanisms were {training.in_words()}."
