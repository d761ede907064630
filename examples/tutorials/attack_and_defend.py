"""Attack and defend

A gradient tells more than it seems to. This tutorial takes a photograph out of
a client's gradient, then defends with several schemes, then attacks those. It
takes half a minute and downloads nothing.
"""

# %% A client trains on one picture and sends its gradient
# Photographs come with the package. The model is a small LeNet with random
# weights, as at the beginning of a training.
import math
from pathlib import Path

import torch

import jopeq
from jopeq.privacy.guarantee import places_up
from jopeq_lab.attacks import AttackConfig, GradientMap
from jopeq_lab.attacks.compare import compare
from jopeq_lab.attacks.images import photos
from jopeq_lab.attacks.picture import Row, save_grid
from jopeq_lab.training.models import build

torch.set_num_threads(1)
images, labels = photos(1), torch.tensor([0])
model = build("lenet", (3, 32, 32), classes=10, seed=0)
gradient_map = GradientMap(model, (3, 32, 32))

# %% The defences
# None; compression alone; the paper's scheme; one whose ε holds for each entry,
# weak and strong; and one whose ε is of the whole gradient.
schemes = {
    "raw": jopeq.scheme("none"),
    "sdq, R=8": jopeq.scheme("sdq", rate=8.0),
    "jopeq, ε=3, R=8": jopeq.scheme("jopeq", epsilon=3.0, rate=8.0),
    "response, ε=3, R=8": jopeq.scheme("response", epsilon=3.0, rate=8.0),
    "response, ε=1, R=2": jopeq.scheme("response", epsilon=1.0, rate=2.0),
    "sphere, ε=8": jopeq.Sphere(epsilon=8.0, clip=1.0),
}

# %% The published attack
# Search for the picture whose gradient is the decoded one.
config = AttackConfig(method="label", iterations=8)
outcomes = compare(gradient_map, images, labels, schemes, ["label"], config)

# %% An attacker who knows the scheme
# Search for the picture that makes the received payload likely.
coded = {label: scheme for label, scheme in schemes.items() if label != "raw"}
config = AttackConfig(method="adaptive", iterations=8)
outcomes += compare(gradient_map, images, labels, coded, ["adaptive"], config)

# %% What they found
# SSIM is 1 for the picture itself. Noise that stops the first attack need not
# stop the second: over 15,826 entries an ε per entry adds up.
for outcome in outcomes:
    guarantee = schemes[outcome.label].guarantee
    promise = "nothing is proven"
    if not math.isinf(guarantee.epsilon):
        unit = "entry" if guarantee.unit == "sample" else guarantee.unit
        promise = f"ε = {places_up(guarantee.epsilon)} per {unit}"
    ssim = sum(outcome.ssim) / len(outcome.ssim)
    print(
        f"{outcome.method:<9} {outcome.label:<19} SSIM {ssim:5.2f}; {promise}"
    )

# %% The pictures
# The photograph, then what each attacker made of what was sent. First the
# published attack, then the one that knows the scheme.
for method in ("label", "adaptive"):
    rows = [
        Row(one.label.replace(", ", "\n", 1), one.images.numpy(), one.ssim)
        for one in outcomes
        if one.method == method
    ]
    save_grid(images.numpy(), rows, Path(f"{method}.svg"))
