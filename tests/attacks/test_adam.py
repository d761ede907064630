import pytest
import torch

from jopeq.attacks.optimizers import CONVERGED, FAILED, SPENT, BatchedAdam


def bowl(points, rows=None):
    weights = torch.linspace(1, 4, points.shape[1], dtype=points.dtype)
    shift = 0.25 if rows is None else 0.1 * rows[:, None].to(points.dtype)
    return (weights * (points - shift).square()).sum(1), 2 * weights * (points - shift)


START = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_unsigned_it_is_torch_adam():
    optimizer = BatchedAdam(
        lambda points, rows: bowl(points), evaluations=1000, is_signed=False, tolerance=0
    )
    states = []
    real = optimizer._step

    def watched(state, rows, number):
        states.append(state["path"][0].clone())
        real(state, rows, number)

    optimizer._step = watched
    optimizer.minimize(START[:1])
    point = START[0].clone().requires_grad_()
    reference = torch.optim.Adam([point], lr=0.1)
    for number in range(60):  # the learning rate has not fallen yet
        assert torch.allclose(states[number], point.detach(), rtol=1e-9, atol=1e-11)
        point.grad = bowl(point.detach()[None])[1][0]
        reference.step()


def test_a_problem_takes_the_path_it_takes_alone():
    together = BatchedAdam(bowl, evaluations=80, boxed=5).minimize(START)
    for row in range(3):
        alone = BatchedAdam(
            lambda points, rows, row=row: bowl(points, torch.full_like(rows, row)),
            evaluations=80,
            boxed=5,
        ).minimize(START[row : row + 1])
        assert torch.allclose(alone.points[0], together.points[row], rtol=1e-12, atol=1e-12)


def test_the_box_holds_and_the_best_point_is_kept():
    found = BatchedAdam(bowl, evaluations=400, boxed=5, tolerance=0).minimize(START.clamp(0, 1))
    assert ((found.points >= 0) & (found.points <= 1)).all()
    losses, _ = bowl(found.points, torch.arange(3))
    assert torch.allclose(losses, found.losses)
    assert (losses < 1e-3).all()


def test_convergence_and_failure_are_told():
    def evaluate(points, rows):
        losses, gradients = bowl(points, rows)
        gradients[rows == 2] = torch.nan
        return losses, gradients

    start = START.clone()
    start[0] = 0.0  # the minimum of problem 0
    found = BatchedAdam(evaluate, evaluations=30, tolerance=1e-12).minimize(start)
    assert found.status.tolist() == [CONVERGED, SPENT, FAILED]
    assert found.evaluations.tolist() == [1, 30, 1]


@pytest.mark.parametrize("bad", [{"evaluations": 0}, {"patience": -1}, {"learning_rate": 0.0}])
def test_bad_parameters_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        BatchedAdam(bowl, **bad)
