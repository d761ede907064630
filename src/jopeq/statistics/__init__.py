"""Private statistics over all hospitals' records: ask before you train.

Questions become parts of one row per record (``parts``), the rows become one ``RecordSum`` and its
decoded total becomes answers (``survey``). Imports ``ledger`` and below.
"""

from jopeq.statistics.columns import Category
from jopeq.statistics.evaluation import Evaluation, Scoring
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
    parse_question,
)
from jopeq.statistics.survey import Answers, Survey
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
