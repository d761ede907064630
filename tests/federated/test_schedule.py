import pytest
import torch

from jopeq.federated.config import Schedule


def test_constant():
    assert Schedule(lr=0.3).rates(7, [0.1], steps=3) == [0.3] * 3


def test_theorem_counts_all_steps():
    schedule = Schedule(kind="theorem", convexity=2.0, smoothness=3.0)
    tau, phi = 5, 5 * 6.0  # φ = τ·max(1, 4·3/2)
    expected = [tau / (2.0 * (t + phi)) for t in range(10)]
    assert schedule.rates(0, [], tau) + schedule.rates(1, [], tau) == pytest.approx(expected)
    assert Schedule(kind="theorem", convexity=9.0, smoothness=1.0).rates(0, [], 4)[0] == (
        pytest.approx(1 / 9)
    )


def test_plateau_is_pytorchs():
    source = torch.Generator().manual_seed(3)
    accuracies = (torch.rand(80, generator=source) * 0.1 + 0.5).tolist()
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.5, patience=3
    )
    ours = Schedule(kind="plateau", factor=0.5, patience=3)
    for number in range(80):
        (rate,) = ours.rates(number, accuracies[:number], steps=1)
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"])
        theirs.step(accuracies[number])
    assert rate < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "cosine"}, "schedule must be one of constant, plateau, theorem, got 'cosine'"),
        ({"lr": float("nan")}, "lr must be a positive number, got nan"),
        ({"convexity": 0.0}, "convexity must be"),
        ({"factor": 1.0}, "plateau_factor must lie between 0 and 1"),
        ({"patience": -1}, "plateau_patience must not be negative"),
    ],
)
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**options)
