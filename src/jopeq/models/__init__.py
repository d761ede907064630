"""Models that hospitals publish, in a few messages: nothing to tune, one ε for the whole fit.

>>> from jopeq.models import Category, Logistic, Number
>>> model = Logistic(
...     "death", [Number("age", 18, 100), Category("sex", ["F", "M"])],
...     epsilon=1.0, delta=1e-5, clients=10, threshold=8, records=5_000,
... )
>>> print(model.plan())
messages: 8, 128 bytes from each hospital, 168 bytes to it, 14 bits an entry
...

``columns`` make a row of a record, ``totals`` add rows up in exact integers, ``inference`` and
``prediction`` turn noisy sums into coefficients, ``model`` has the terms and runs the sums, ``fit``
shows what came out. Imports ``statistics`` and below.
"""

from jopeq.models.columns import Bins, Category, Column, Features, Number, parse_column
from jopeq.models.fit import Coefficient, Fit
from jopeq.models.method import Records, State
from jopeq.models.model import Linear, Logistic, Model, Poisson, Softmax, model_from_spec
from jopeq.models.plan import ModelPlan

__all__ = [
    "Bins",
    "Category",
    "Coefficient",
    "Column",
    "Features",
    "Fit",
    "Linear",
    "Logistic",
    "Model",
    "ModelPlan",
    "Number",
    "Poisson",
    "Records",
    "Softmax",
    "State",
    "model_from_spec",
    "parse_column",
]
