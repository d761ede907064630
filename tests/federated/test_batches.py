import numpy as np
import pytest
import torch

from jopeq.federated.local import batch_order, batches, participants

PARTS = [np.arange(0, 31), np.arange(31, 53), np.arange(53, 60)]


def test_order_sees_every_sample_before_any_again():
    order = batch_order(7, 20, torch.Generator().manual_seed(0))
    assert sorted(order[:7].tolist()) == sorted(order[7:14].tolist()) == list(range(7))
    assert len(set(order[14:].tolist())) == 6
    with pytest.raises(ValueError, match="at least one sample"):
        batch_order(0, 1, torch.Generator())


def test_batches_are_of_each_client_alone():
    order = batches(PARTS, [0, 2], steps=4, batch_size=3, seed=0, round_number=2)
    assert order.shape == (4, 2, 3)
    assert set(order[:, 0].flatten().tolist()) <= set(PARTS[0].tolist())
    assert set(order[:, 1].flatten().tolist()) == set(PARTS[2].tolist())
    alone = batches(PARTS, [2], steps=4, batch_size=3, seed=0, round_number=2)
    assert torch.equal(alone[:, 0], order[:, 1])  # whoever else takes part


def test_participants():
    assert participants(10, 1.0, 0, 0) == list(range(10))
    assert len(participants(10, 0.01, 0, 0)) == 1
    rounds = [tuple(participants(10, 0.3, 0, number)) for number in range(200)]
    assert {len(set(chosen)) for chosen in rounds} == {3}
    counts = np.bincount(np.ravel(rounds), minlength=10)
    assert counts.min() > 30  # 60 expected, standard deviation 6.5
