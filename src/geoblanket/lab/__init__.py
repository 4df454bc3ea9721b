"""Experiments with the system: evaluation, the paper's study, a synthetic city, audits. The system uses none of it."""
