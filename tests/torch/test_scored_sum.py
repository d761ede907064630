"""Evaluations of PyTorch models: exact totals, all kinds of outputs, the check beforehand."""

import numpy as np
import pytest
import torch
from torch import nn

from jopeq.statistics import Scoring
from jopeq.sums.clipped_total import UNITS
from jopeq.torch import check_scores, scored_sum


def make(outputs, count=40):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs))
    return model.eval(), torch.randn(count, 6), torch.randint(max(outputs, 2), (count,))


def rated(outputs, targets):
    return 1 / (1 + (outputs[:, 0] - targets) ** 2)


CASES = {
    "one logit": (1, Scoring(threshold=0.3), None),
    "two outputs": (2, Scoring(levels=("a", "b")), None),
    "classes": (4, Scoring(kind="classes"), None),
    "score": (1, Scoring(kind="score"), rated),
}


def scores_of(model, inputs, targets, kind):
    outputs = model.double()(inputs.double()).detach()
    if kind == "score":
        return rated(outputs, targets), torch.ones(len(targets))
    if kind == "classes":
        chances = outputs.softmax(1)
        return chances.amax(1), (outputs.argmax(1) == targets).double()
    logits = outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]
    return logits.sigmoid(), targets.double()


@pytest.mark.parametrize("name", CASES)
def test_totals_are_those_of_the_rows_of_all_records(name):
    size, scoring, score = CASES[name]
    model, inputs, targets = make(size)
    check_scores(model, scoring, (torch.zeros(6), torch.tensor(0)), score=score)  # passes
    by = np.resize(["a", "b", "c"], len(inputs)) if scoring.levels else None

    def found(some, **options):
        groups = None if by is None else by[some]
        given = (model.float(), inputs[some], targets[some], scoring)
        return scored_sum(*given, score=score, by=groups, chunk=16, **options)

    p, y = scores_of(model, inputs, targets, scoring.kind)
    rows = scoring.rows(p.numpy(), y.numpy(), None if by is None else scoring.places(by))
    total = found(slice(None))
    assert total.to_numpy() == pytest.approx(rows.sum(axis=0), abs=1e-4)
    assert found(slice(None), padded=100).to_numpy() == pytest.approx(total.to_numpy(), abs=1e-7)
    assert not found(slice(0)).values.any()
    # one record less moves no other: the difference is its own row
    apart = (total.values - found(slice(1, None)).values) / UNITS
    assert apart == pytest.approx(rows[0], abs=1e-5)
    # a patient counts once, whatever the number of records
    group = np.repeat([0, 1, 2, 3], [1, 4, 5, 30])
    means = sum(rows[group == one].mean(axis=0) for one in range(4))
    assert found(slice(None), group=group, most_rows=30).to_numpy() == pytest.approx(
        means, abs=1e-4
    )
    inputs[1], without = torch.nan, rows.sum(axis=0) - rows[1]  # counts as nothing
    if score is None:
        targets[2], without = 99, without - rows[2]
    assert found(slice(None)).to_numpy() == pytest.approx(without, abs=1e-4)


def wrong(outputs, targets):
    return outputs @ torch.ones(7)


CLASSES, SCORE = Scoring(kind="classes"), Scoring(kind="score")


@pytest.mark.parametrize(
    ("size", "scoring", "score", "width", "target", "told"),
    [
        (3, Scoring(), None, 6, 0, "one logit or two outputs"),
        (1, CLASSES, None, 6, 0, "several classes"),
        (1, SCORE, None, 6, 0, "score goes with"),
        (1, Scoring(), rated, 6, 0, "score goes with"),
        (1, SCORE, wrong, 6, 0, "size mismatch"),
        (1, SCORE, lambda outputs, targets: outputs[0] / 0.0 * 0.0, 6, 0, "no number"),
        (1, SCORE, lambda outputs, targets: 1.0, 6, 0, "no attribute"),
        (1, Scoring(), None, 5, 0, "shapes"),
        (1, Scoring(), None, 6, 2, "none of the outcomes"),
        (3, CLASSES, None, 6, 0.0, "several classes"),
        (3, CLASSES, None, 6, 3, "none of the outcomes"),
    ],
)
def test_the_check_tells_what_would_fail(size, scoring, score, width, target, told):
    example = torch.zeros(width), torch.tensor(target)
    with pytest.raises(ValueError, match=told):
        check_scores(make(size)[0], scoring, example, score=score)
