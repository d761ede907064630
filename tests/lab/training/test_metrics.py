"""What is measured of a model and of a round."""

import json
import math

import numpy as np
import pytest

import jopeq
from jopeq_lab.training.metrics import RoundMetrics, decibels, mean, signal_to_noise, spent


def metrics(**changes):
    return RoundMetrics(**{**dict.fromkeys(RoundMetrics.__dataclass_fields__, 1.0), **changes})


def test_signal_to_noise_is_a_ratio_of_variances():
    update = np.array([1.0, 2.0, 3.0, 6.0], dtype=np.float32)
    error = np.array([0.1, -0.1, 0.1, -0.1], dtype=np.float32)
    assert signal_to_noise(update, update + error) == pytest.approx(3.5 / 0.01, rel=1e-5)
    assert signal_to_noise(update, update + 5.0) == math.inf  # a shift has no variance
    assert signal_to_noise(update, update) == math.inf
    assert decibels(math.inf) == math.inf
    assert decibels(0.0) == -math.inf
    assert decibels(0.1) == pytest.approx(-20.0)
    assert mean([1.0, math.inf]) == math.inf


def test_json_has_no_infinity_and_comes_back():
    first = metrics(snr=math.inf, snr_db=math.inf, epsilon_sample=math.inf, clip=None)
    nothing = metrics(snr=0.0, snr_db=-math.inf)  # an update of zeros behind noise
    for each in (first, nothing):
        text = json.dumps(each.as_dict(), allow_nan=False)
        assert RoundMetrics.from_dict(json.loads(text)) == each
    assert first.as_dict()["snr"] is None


def test_spent_composes():
    sample = jopeq.scheme("jopeq", epsilon=4.0, rate=1.0).guarantee
    plain = spent(sample, 100, 3)
    assert plain["nominal_update"] == 400.0
    assert plain["nominal_client"] == 1200.0
    assert plain["epsilon_update"] == pytest.approx(100 * sample.epsilon)
    assert plain["epsilon_client"] == pytest.approx(3 * 100 * sample.epsilon)
    nothing = spent(jopeq.scheme("none").guarantee, 100, 3)
    assert nothing["epsilon_client"] == math.inf
    assert nothing["nominal_sample"] is None
