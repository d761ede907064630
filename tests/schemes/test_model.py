"""From two states of a model to an update and back, and the scales of running statistics."""

import numpy as np
import pytest

import jopeq
from jopeq.errors import StateMismatchError
from jopeq.schemes.model import apply_move, moves

torch = pytest.importorskip("torch")

PRIVATE = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.05)


def normalised(seed=0):
    torch.manual_seed(seed)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.BatchNorm1d(32))
    return torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(32, 10))


def trained(model, steps=3, scale=5.0):
    model.train()
    for _ in range(steps):
        model(scale * torch.randn(20, 64) + 1.0)
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_an_update_leads_from_one_state_to_the_other():
    model = normalised()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    after = trained(model)
    update = jopeq.state_update(before, after)
    assert "1.num_batches_tracked" not in update
    assert all(value.dtype == torch.float32 for value in update.values())
    found = jopeq.updated_state(before, update)
    for name, value in after.items():
        if value.is_floating_point():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)
    assert found["1.num_batches_tracked"] == 0
    still = jopeq.updated_state(after, {name: 0.0 * value for name, value in update.items()})
    assert all(torch.equal(still[name], value) for name, value in after.items())
    model.load_state_dict(found)


@pytest.mark.parametrize("before", [1.0, 0.0, -3.0, 1e-30, 1e30, np.nan, np.inf])
@pytest.mark.parametrize("after", [2.0, 0.0, -1.0, 1e30, np.nan, np.inf])
def test_whatever_the_numbers_are_a_variance_is_not_negative(before, after):
    states = [
        {"bn.running_var": np.full(3, x), "bn.running_mean": np.ones(3)} for x in (before, after)
    ]
    update = jopeq.state_update(*states)
    assert {value.shape for value in update.values()} == {(3,)}
    payload = PRIVATE.encode(update)  # NaN counts as 0
    decoded = PRIVATE.decode(payload, like=update)
    for change in (decoded["bn.running_var"], np.full(3, -1e30), np.full(3, 1e30)):
        assert not (apply_move("bn.running_var", np.full(3, before), change, None) < 0).any()


def test_statistics_have_coordinates_of_their_own():
    """A mean counts in standard deviations of the received model, a variance in factors of e."""
    before = {"a.running_mean": np.zeros(1), "a.running_var": np.full(1, 4.0 - 1e-5)}
    after = {"a.running_mean": np.ones(1), "a.running_var": np.full(1, 4.0 * np.e - 1e-5)}
    update = jopeq.state_update(before, after)
    assert update["a.running_mean"] == pytest.approx(0.5)
    assert update["a.running_var"] == pytest.approx(1.0)
    alone = moves("running_mean", np.zeros(1), np.ones(1), None)  # no variance beside it
    assert alone == 1.0


@pytest.mark.parametrize(
    "scheme",
    [PRIVATE, jopeq.scheme("response", epsilon=4.0, rate=2.0), jopeq.scheme("sdq", rate=2.0)],
    ids=["clip", "norm", "sdq"],
)
def test_weights_and_statistics_do_not_share_a_scale(scheme):
    """The error of each is in proportion to its own scale, whatever the other's is."""
    source = np.random.default_rng(0)
    update = {
        "w": 1e-3 * source.standard_normal(20_000),
        "bn.running_var": source.uniform(-0.9, 0.9, 20_000),
    }
    decoded = scheme.decode(scheme.encode(update), like=update)
    unit = 0.05 if scheme.clip else 3e-3
    for name, scale in (("w", unit), ("bn.running_var", 1.0)):
        error = np.square(decoded[name] - update[name]).mean() / scale**2
        # the noise at the centre, up to 1.73 times as much at the edge, and a little clipping
        assert 0.8 * scheme.distortion < error < 1.9 * scheme.distortion


def test_states_that_do_not_fit_are_named():
    state = {"w": np.ones(3), "n": np.array(1)}
    with pytest.raises(StateMismatchError, match="lacks tensor 'w'"):
        jopeq.state_update(state, {"n": np.array(1)})
    with pytest.raises(StateMismatchError, match="'w'"):
        jopeq.state_update(state, {"w": np.ones(2)})
    with pytest.raises(StateMismatchError, match="'v', not of this model"):
        jopeq.updated_state(state, {"v": np.ones(3)})
    with pytest.raises(StateMismatchError, match="'w'"):
        jopeq.updated_state(state, {"w": np.ones(2)})
