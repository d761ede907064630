from __future__ import annotations

from jopeq.flower.strategy import RoundReport


def test_metrics_are_sums_and_lists_by_node():
    report = RoundReport(1, "scheme", clip=0.5)
    report.bytes_up = {9: 100, 2: 300}
    report.entries = {9: 800, 2: 800}
    report.epsilon = {9: 1.0, 2: 2.0}
    report.rejected = {4: "why"}
    metrics = report.metrics()
    assert metrics["jopeq-bytes-up"] == [300, 100]
    assert metrics["jopeq-epsilon"] == [2.0, 1.0]
    assert metrics["jopeq-bits-per-parameter"] == 2.0
    assert (metrics["jopeq-clients"], metrics["jopeq-rejected"]) == (2, 1)
    assert metrics["jopeq-clip"] == 0.5


def test_empty_round():
    assert RoundReport(1, "scheme").metrics()["jopeq-bits-per-parameter"] == 0.0
