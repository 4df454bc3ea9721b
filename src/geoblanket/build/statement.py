"""What the mechanisms of a build are learned from: the statement that goes into its bundle, and why no better one."""

from __future__ import annotations

from pathlib import Path

from geoblanket._training import WALKS, Training
from geoblanket.blanket.findings import scan_findings
from geoblanket.build.config import BuildConfig
from geoblanket.errors import InputError
from geoblanket.mobility.walks import scan_walks, training_of

__all__ = ["learned_in_words", "training_of_build"]


def training_of_build(walks: str | Path, config: BuildConfig) -> tuple[Training, str | None]:
    """Return the statement of a build, and why it promises less than that of its walks, or None.

    Whatever is computed from walks that were learned privately keeps their promise. Blankets that were found in other
    walks do not: findings have the statement of their own walks, predictors have none.
    """
    stated = training_of(scan_walks(walks)[1])
    blankets, name = stated, ""
    if config.findings is not None:
        blankets, name = _training_of_findings(config.findings), "findings"
    elif config.predictor is not None:
        blankets, name = WALKS, "predictor"
    training = stated.together(blankets)
    if training == stated:
        return training, None
    return training, (
        f"The walks were {stated.in_words()}, but the blankets come from {name} that cannot be shown to be: no privacy "
        "is claimed."
    )


def learned_in_words(training: Training) -> str:
    """Return what those whose trips were learned from have been promised, as a sentence."""
    if training.source == "nobody":
        return "Nothing was learned from anyone's trips."
    if training.promise is None:
        return f"Those whose trips were learned from are promised nothing: the mechanisms were {training.in_words()}."
    return f"Those whose trips were learned from are protected too: the mechanisms were {training.in_words()}."


def _training_of_findings(path: str | Path) -> Training:
    try:
        return training_of(scan_findings(path)[1])
    except ValueError as error:
        raise InputError(str(error), path=path, hint="Discover again") from error
