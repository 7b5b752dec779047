"""A predictor that joins a physical model of a training step with a Gaussian process, after Kennedy and O'Hagan."""

from __future__ import annotations

from predictors.models.physical_gp.predictor import PhysicalGP

__all__ = ["PhysicalGP"]
