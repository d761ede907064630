"""Models that hospitals publish, in a few messages: nothing to tune, one ε for the whole fit.

``columns`` make a row of a record, ``totals`` add rows up in exact integers, ``inference`` and
``prediction`` turn noisy sums into coefficients, ``model`` has the terms and runs the sums, ``fit``
shows what came out. Imports ``statistics`` and below.
"""

from jopeq.models.columns import Bins, Category, Features, Number, parse_column
from jopeq.models.evaluate import evaluate
from jopeq.models.fit import Coefficient, Fit
from jopeq.models.method import State
from jopeq.models.model import Hazard, Linear, Logistic, Model, Poisson, Softmax, model_from_spec
from jopeq.models.plan import ModelPlan

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
