"""Private statistics over all hospitals' records: ask before you train.

>>> import numpy as np
>>> from jopeq.statistics import Histogram, Mean, Survey
>>> survey = Survey(
...     [Mean("age", 0, 120), Histogram("age", (0, 40, 60, 120))],
...     epsilon=1.0, clients=5, threshold=3,
... )
>>> hospitals = [{"age": np.linspace(20, 90, 400)} for _ in range(5)]
>>> answers = survey.ask(hospitals)
>>> answer = answers["age"]["mean"]
>>> bool(abs(answer.value - 55) < 6 * answer.error), answers.epsilon <= 1.0
(True, True)

Questions become parts of one row per record (``parts``), the rows become one ``RecordSum``
(``survey``), and its decoded total becomes answers (``answers``). Imports ``ledger`` and below.
"""

from jopeq.statistics.answers import Answers
from jopeq.statistics.columns import Category
from jopeq.statistics.evaluation import Evaluation, Scoring
from jopeq.statistics.parsing import parse_question
from jopeq.statistics.questions import (
    Answer,
    Correlation,
    Count,
    Histogram,
    Mean,
    Proportions,
    Quantiles,
    Question,
    Variance,
)
from jopeq.statistics.survey import Survey
from jopeq.statistics.survival import Curve, Survival

__all__ = [
    "Answer",
    "Answers",
    "Category",
    "Correlation",
    "Count",
    "Curve",
    "Evaluation",
    "Histogram",
    "Mean",
    "Proportions",
    "Quantiles",
    "Question",
    "Scoring",
    "Survey",
    "Survival",
    "Variance",
    "parse_question",
]
