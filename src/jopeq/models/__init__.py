"""Models that hospitals publish, in a few messages: nothing to tune, one ε for the whole fit.

``design`` makes rows of records, ``totals`` adds them up in exact integers, ``inference``,
``hazard`` and ``prediction`` turn noisy sums into coefficients, ``model`` has the terms and runs
the sums, ``fit`` shows and evaluates the result. Imports ``statistics`` and below.
"""

from jopeq.models.fit import Coefficient, Fit, evaluate
from jopeq.models.method import State
from jopeq.models.model import (
    Hazard,
    Linear,
    Logistic,
    Model,
    ModelPlan,
    Poisson,
    Softmax,
    model_from_spec,
)
from jopeq.statistics.columns import Bins, Category, Features, Number, parse_column

__all__ = [
    "Bins",
    "Category",
    "Coefficient",
    "Features",
    "Fit",
    "Hazard",
    "Linear",
    "Logistic",
    "Model",
    "ModelPlan",
    "Number",
    "Poisson",
    "Softmax",
    "State",
    "evaluate",
    "model_from_spec",
    "parse_column",
]
