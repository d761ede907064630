import torch
from torch import nn

from jopeq.attacks.attack import Objective, total_variation
from jopeq.attacks.gradients import GradientMap

SHAPE = (1, 4, 4)


def objective(**changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Sigmoid(), nn.Linear(8, 3))
    found = GradientMap(model.double(), SHAPE, dtype=torch.float64)
    images = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(0)).double()
    targets = found.one_hot(torch.arange(3))
    given = {"received": found(images, targets).detach(), "targets": targets, **changes}
    return Objective(gradient_map=found, **given), images.flatten(1)


def test_the_truth_is_the_minimum_of_both_distances():
    for distance in ("squares", "cosine"):
        wanted, truth = objective(distance=distance)
        losses, slopes = wanted.evaluate(truth)
        assert losses.abs().max() < 1e-12
        assert slopes.abs().max() < 1e-6
        assert (wanted.evaluate(truth.flip(1))[0] > 1e-4).all()


def test_only_the_direction_counts_for_the_cosine():
    near, truth = objective(distance="cosine")
    far, _ = objective(distance="cosine", received=7.0 * near.received)
    assert torch.allclose(near(truth.flip(1)), far(truth.flip(1)))


def test_labels_can_be_sought_with_the_images():
    joint, truth = objective(targets=None)
    assert joint.variables == 16 + 3
    sure = 40.0 * torch.eye(3, dtype=torch.float64)
    assert joint(torch.cat((truth, sure), 1)).max() < 1e-12
    assert joint(torch.cat((truth, sure.flip(1)), 1)).max() > 1e-2
    assert torch.autograd.gradcheck(
        joint, torch.cat((truth, 0.1 * sure), 1).requires_grad_(), fast_mode=True
    )


def test_rows_are_selected_with_all_that_belongs_to_them():
    wanted, truth = objective(variation=0.3, is_boxed=True)
    candidates = 1.3 * truth.flip(1)
    some = torch.tensor([2, 0])
    assert torch.allclose(wanted.select(some)(candidates[some]), wanted(candidates)[some])


def test_leaving_the_box_costs():
    free, truth = objective()
    boxed, _ = objective(is_boxed=True)
    assert torch.equal(free(truth), boxed(truth))
    assert (boxed(truth + 2.0) > free(truth + 2.0)).all()


def test_total_variation_counts_neighbours():
    flat = torch.full((1, 3, 5, 5), 0.4)
    assert total_variation(flat).abs().item() < 1e-6
    checked = (
        torch.arange(36).reshape(1, 1, 6, 6) // 6 % 2 ^ torch.arange(36).reshape(1, 1, 6, 6) % 2
    )
    assert abs(total_variation(checked.float()).item() - 1.0) < 2e-3
