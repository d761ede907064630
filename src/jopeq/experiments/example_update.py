"""A real update to encode: one client's local training of a linear softmax model.

The task is synthetic (ten Gaussian classes of 784 pixels, drawn from a fixed stream), the training
is not: 100 steps of SGD with momentum, as in the paper's setting, 7,850 parameters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jopeq import samplers
from jopeq.randomness import PrivateStream

CLASSES, PIXELS = 10, 784
STEPS, BATCH, LEARNING_RATE, MOMENTUM = 100, 16, 0.1, 0.5


def example_update(key: bytes = bytes(32)) -> NDArray[np.float32]:
    """The change of all weights and biases after one round of local training.

    >>> example_update().shape
    (7850,)
    """
    stream = PrivateStream.reproducible(key)
    centres = samplers.normal(stream, 0, CLASSES * PIXELS).reshape(CLASSES, PIXELS)
    # real images have dark borders and bright centres: so do these
    brightness = np.outer(np.hanning(28), np.hanning(28)).reshape(-1)
    weights = np.zeros((CLASSES, PIXELS + 1))
    velocity = np.zeros_like(weights)
    for step in range(STEPS):
        labels = (samplers.uniform(stream, step * BATCH, BATCH, lane=8) * CLASSES).astype(int)
        labels = np.minimum(labels, CLASSES - 1)
        pixels = samplers.normal(stream, step * BATCH * PIXELS, BATCH * PIXELS, lane=9)
        images = brightness * (0.4 * centres[labels] + pixels.reshape(BATCH, PIXELS))
        inputs = np.concatenate((images, np.ones((BATCH, 1))), axis=1)
        scores = inputs @ weights.T
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(BATCH), labels] -= 1.0
        velocity = MOMENTUM * velocity + chances.T @ inputs / BATCH
        weights -= LEARNING_RATE * velocity
    return weights.reshape(-1).astype(np.float32)
