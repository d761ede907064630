"""The learning rule against runs that were really trained."""

import pytest

import jopeq
from jopeq.analysis.learning import judge, mean_error

HOSPITALS = {"delta": 1e-5, "clip": 1.0, "rounds": 20}


def hospitals(epsilon, clients, threshold):
    return jopeq.ClientSum(epsilon=epsilon, clients=clients, threshold=threshold, **HOSPITALS)


def people(epsilon):
    return jopeq.ClientSum(epsilon=epsilon, clip=2.5, clients=100, threshold=90)


# MNIST: scheme, clients a round, entries, rounds; accuracy reached and possible without noise
RUNS = [
    (people(4.0), 100, 7850, 60, 88.86, 89.70),
    (people(8.0), 100, 7850, 60, 89.48, 89.70),
    (jopeq.Sphere(epsilon=4.0, clip=0.1), 1562, 5210, 32, 93.74, 95.99),
    (jopeq.Sphere(epsilon=8.0, clip=0.1), 1562, 5210, 32, 95.18, 95.99),
    (hospitals(8.0, 100, 67), 100, 7850, 20, 88.9, 91.1),
    (hospitals(8.0, 100, 67), 100, 9194, 20, 91.9, 97.2),
    (hospitals(4.0, 100, 67), 100, 7850, 20, 86.5, 91.1),
    (hospitals(4.0, 100, 67), 100, 9194, 20, 84.7, 97.2),
    (jopeq.Sphere(epsilon=8.0, clip=1.0), 10, 7850, 10, 70.3, 90.1),
    (hospitals(8.0, 10, 9), 10, 7850, 20, 52.3, 91.8),
    (hospitals(8.0, 10, 9), 10, 9194, 20, 11.4, 97.9),
    (hospitals(4.0, 10, 9), 10, 7850, 20, 30.9, 91.8),
    (hospitals(4.0, 10, 9), 10, 9194, 20, 10.0, 97.9),
    (jopeq.Response(epsilon=4.0, rate=2.0, clip=0.05), 10, 9194, 20, 97.8, 97.9),
]
LEARNT = {"learns": (0.95, 1.0), "loses some": (0.9, 1.0), "loses much": (0.8, 1.0)}
LEARNT |= {"noise": (0.0, 0.8)}


@pytest.mark.parametrize(("scheme", "clients", "entries", "rounds", "reached", "possible"), RUNS)
def test_what_was_learnt_is_what_the_verdict_says(
    scheme, clients, entries, rounds, reached, possible
):
    """As a share of what can be learnt beyond guessing one of ten digits."""
    error, lasting = mean_error(scheme, entries, clients)
    verdict = judge(error, rounds, lasting=lasting)
    least, most = LEARNT[verdict.code]
    assert least <= (reached - 10) / (possible - 10) <= most
    assert verdict.is_hopeless == (verdict.code == "noise")


def test_rounds_lower_noise_and_no_bias():
    assert judge(29.0, 20).code == judge(1.45, 1).code == "loses much"
    assert judge(5.0, 10**6, lasting=2.0).averaged == pytest.approx(2.0, abs=1e-5)
    with pytest.raises(ValueError, match="rounds"):
        judge(1.0, 0)
