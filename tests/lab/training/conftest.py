"""The small files in place of the published ones, and noise that repeats."""

import hashlib
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch

from jopeq.random import streams
from jopeq_lab.training import data, download
from tests.lab.training.small import ARCHIVE, CIFAR10, IDX, sha256


def forbidden(*arguments):
    raise AssertionError(f"nothing should be downloaded: {arguments}")


@pytest.fixture
def published(monkeypatch):
    """The digests of the small files; no network."""
    for name, files in data.PUBLISHED.items():
        held = ARCHIVE if name == "cifar10" else IDX[name]
        remotes = tuple(
            replace(remote, url=f"https://127.0.0.1:9/{remote.name}", sha256=sha256(content))
            for remote, content in zip(files, held.values(), strict=True)
        )
        monkeypatch.setitem(data.PUBLISHED, name, remotes)
    for name, content in CIFAR10.items():
        monkeypatch.setitem(download.CIFAR10_BATCHES, name, sha256(content))
    monkeypatch.setattr(data, "fetch", forbidden)


@pytest.fixture(scope="session")
def quadrants():
    """Noisy 6×6 images with one bright quadrant each: its number is the label."""
    draws = np.random.default_rng(5)
    labels = draws.integers(0, 4, 900)
    images = draws.uniform(0.0, 0.6, (900, 1, 6, 6)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        image[0, 3 * (label // 2) :, 3 * (label % 2) :][:3, :3] += 0.4
    parts = map(torch.from_numpy, (images[:700], labels[:700], images[700:], labels[700:]))
    return data.Dataset("quadrants", *parts, 4)


@pytest.fixture
def fixed_noise(monkeypatch):
    """Fresh keys that are the same in every test session."""
    drawn = count()

    def draw(length):
        return hashlib.shake_256(str(next(drawn)).encode()).digest(length)

    monkeypatch.setattr(streams.os, "urandom", draw)
