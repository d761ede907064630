"""Runs and attacks as they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

KEPT = Path(__file__).parents[2] / "results"


@pytest.fixture
def mnist_run():
    """A run of ``jopeq`` on MNIST as it is kept, with changes."""
    from jopeq.federated.runs import Run

    def make(**changes):
        values = {
            "label": "jopeq",
            "scheme": '["jopeq",{"epsilon":4.0,"rate":1.0}]',
            "model": "linear",
            "data": "mnist",
            "seed": 0,
            "rounds": 2,
            "test_accuracy": 0.9,
            "best_round": 2,
            "validation": [0.8, 0.9],
            "snr": 0.5,
            "bytes_per_client": 1000.0,
            "bits_per_parameter": 1.02,
            "overload_rate": 0.0,
            "nominal": 4.0,
            "epsilon": 10.119,
            "epsilon_client": 1e6,
            "settings": {},
        }
        return Run(**{**values, **changes})

    return make


@pytest.fixture
def cifar_run():
    """A run of a row of Table II's last column as it is kept, with changes."""
    from jopeq.experiments.cifar import COLUMNS, schemes_at
    from jopeq.federated.runs import Run

    rows = schemes_at(*COLUMNS[-1])

    def make(label="jopeq, published", coder=None, lr=0.1, **changes):
        values = {
            "label": label,
            "scheme": (coder or rows[label]).spec,
            "model": "cifar-cnn",
            "data": "cifar10",
            "seed": 0,
            "rounds": 3,
            "test_accuracy": 0.66,
            "best_round": 3,
            "validation": [0.5, 0.6, 0.7],
            "snr": 0.15,
            "bytes_per_client": 21_000.0,
            "bits_per_parameter": 1.01,
            "overload_rate": 0.01,
            "nominal": 3.0,
            "epsilon": 8.72,
            "epsilon_client": 1e6,
            "settings": {
                "lr": lr,
                "clients": 30,
                "local_steps": 100,
                "batch_size": 16,
                "momentum": 0.5,
                "schedule": "constant",
                "centered": True,
                "torch": "2.11.0+cu130",
            },
            "test": [0.51, 0.61, 0.66],
        }
        return Run(**{**values, **changes})

    return make


@pytest.fixture
def kept_attack():
    """A cell as if it had been attacked over three images, with changes."""
    from jopeq.experiments.attack_runs import Attacked

    def make(cell, middle=0.4, **changes):
        values = {
            "label": cell.label,
            "spec": cell.spec,
            "method": cell.method,
            "epoch": cell.epoch,
            "variant": cell.variant,
            "images": 3,
            "iterations": 150,
            "ssim": [middle, middle + 0.2, middle - 0.2],
            "mse": [0.01, 0.02, 0.03],
            "loss": [0.1, 0.2, None],
            "status": {"spent": 3},
            "labels_right": 2,
            "evaluations": 3000.0,
            "snr": 4.0,
            "seconds": 1.0,
            "settings": {
                "device": "cpu",
                "dtype": "float32",
                "torch": "2",
                "grey_ssim": 0.1,
                "grey_mse": 0.06,
            },
        }
        return Attacked(**{**values, **changes})

    return make


@pytest.fixture
def two_photos():
    """Two images as a data set; a second thread of PyTorch would only wait for the first."""
    import torch

    from jopeq.attacks.images import photos
    from jopeq.federated.data import Dataset

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    images, labels = photos(2), torch.tensor([3, 8])
    yield Dataset("tiny", images, labels, images, labels, 10)
    torch.set_num_threads(before)


@pytest.fixture
def kept_speed():
    """The measurements that are committed."""
    if not (KEPT / "bench.json").exists():
        pytest.skip("no kept results")
    return json.loads((KEPT / "bench.json").read_text(encoding="utf-8"))
