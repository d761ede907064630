"""L-BFGS and Adam for many problems at once."""

import pytest
import torch

from jopeq.lab.attacks.optimizers import BatchedAdam, BatchedLBFGS


def rosenbrock(points, rows=None):
    """Curved valleys, each problem with its own weight."""
    weights = 5.0 + (torch.zeros(len(points)) if rows is None else rows.to(points.dtype))
    points = points.detach().requires_grad_()
    bends = points[:, 1:] - points[:, :-1].square()
    losses = (weights[:, None] * bends.square() + (1 - points[:, :-1]).square()).sum(1)
    (gradients,) = torch.autograd.grad(losses.sum(), points)
    return losses.detach(), gradients


def starts(count, size):
    generator = torch.Generator().manual_seed(3)
    return 0.5 * torch.randn(count, size, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("history", [4, 100])
def test_without_a_line_search_it_is_torch_lbfgs(history):
    start = starts(1, 12)
    options = {"line_search": "none", "tolerance": 0, "patience": 0}
    found = BatchedLBFGS(rosenbrock, evaluations=30, history=history, **options).minimize(start)
    point = start[0].clone().requires_grad_()
    optimizer = torch.optim.LBFGS([point], lr=1, max_iter=30, history_size=history)
    optimizer.param_groups[0].update(tolerance_grad=0, tolerance_change=0, max_eval=31)

    def closure():
        optimizer.zero_grad()
        losses, gradients = rosenbrock(point[None])
        point.grad = gradients[0]
        return losses[0]

    optimizer.step(closure)
    assert torch.allclose(found.points[0], point.detach(), rtol=1e-8, atol=1e-8)


def bowl(points, rows=None):
    weights = torch.linspace(1, 4, points.shape[1], dtype=points.dtype)
    shift = 0.25 if rows is None else 0.1 * rows[:, None].to(points.dtype)
    return (weights * (points - shift).square()).sum(1), 2 * weights * (points - shift)


@pytest.mark.parametrize(
    ("optimizer", "evaluate", "options"),
    [
        *((BatchedLBFGS, rosenbrock, {"history": 6, "line_search": s}) for s in ("wolfe", "none")),
        (BatchedAdam, bowl, {"boxed": 5}),
    ],
)
def test_a_problem_takes_the_path_it_takes_alone(optimizer, evaluate, options):
    start, options = starts(5, 10), {"evaluations": 60, "tolerance": 1e-8, **options}
    together = optimizer(evaluate, **options).minimize(start)
    for row in range(5):
        alone = optimizer(
            lambda points, rows, row=row: evaluate(points, torch.full_like(rows, row)), **options
        ).minimize(start[row : row + 1])
        assert torch.allclose(alone.points[0], together.points[row], rtol=1e-7, atol=1e-9)
        assert alone.status[0] == together.status[row]
        assert alone.evaluations[0] == together.evaluations[row]


def test_it_is_torch_adam_on_signs():
    optimizer = BatchedAdam(lambda points, rows: bowl(points), evaluations=1000, tolerance=0)
    states = []
    real = optimizer._step

    def watched(state, rows, number):
        states.append(state["path"][0].clone())
        real(state, rows, number)

    optimizer._step = watched
    optimizer.minimize(starts(1, 5))
    point = starts(1, 5)[0].clone().requires_grad_()
    reference = torch.optim.Adam([point], lr=0.1)
    for number in range(60):  # the learning rate has not fallen yet
        assert torch.allclose(states[number], point.detach(), rtol=1e-9, atol=1e-11)
        point.grad = bowl(point.detach()[None])[1][0].sign()
        reference.step()
