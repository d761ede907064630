"""Attack and defend: a picture out of a gradient, and what schemes leave of it. Half a minute.

python examples/attack_and_defend.py [PICTURE.png]
"""

# %% A client trains on one picture and sends its gradient. Photographs come with the package
import math
import sys
from pathlib import Path

import torch

import jopeq
from jopeq.attacks import AttackConfig, GradientMap
from jopeq.attacks.compare import compare
from jopeq.attacks.images import photos
from jopeq.attacks.picture import Row, save_grid
from jopeq.federated.models import build
from jopeq.privacy.guarantee import places_up

picture = Path(sys.argv[1]) if len(sys.argv) > 1 else None
if picture and picture.suffix.lower() not in (".png", ".jpg", ".svg", ".pdf"):
    sys.exit(f"the picture must end in .png, .jpg, .svg or .pdf, got {picture}")

torch.set_num_threads(1)
images, labels = photos(1), torch.tensor([0])
model = build("lenet", (3, 32, 32), classes=10, seed=0)
gradient_map = GradientMap(model, (3, 32, 32))

# %% The defences: none, compression alone, the paper's, and one whose ε holds, weak and strong
schemes = {
    "raw": jopeq.scheme("none"),
    "sdq, R=8": jopeq.scheme("sdq", rate=8.0),
    "jopeq, ε=3, R=8": jopeq.scheme("jopeq", epsilon=3.0, rate=8.0),
    "response, ε=3, R=8": jopeq.scheme("response", epsilon=3.0, rate=8.0),
    "response, ε=1, R=2": jopeq.scheme("response", epsilon=1.0, rate=2.0),
}

# %% The published attack: search for the picture whose gradient is the decoded one
config = AttackConfig(method="label", iterations=8)
outcomes = compare(gradient_map, images, labels, schemes, ["label"], config)

# %% An attacker who knows the scheme: search for the picture that makes the payload likely
coded = {label: scheme for label, scheme in schemes.items() if label != "raw"}
config = AttackConfig(method="adaptive", iterations=8)
outcomes += compare(gradient_map, images, labels, coded, ["adaptive"], config)

# %% SSIM is 1 for the picture itself. Noise that stops the first attack need not stop the second
for outcome in outcomes:
    epsilon = schemes[outcome.label].guarantee.epsilon
    promise = "nothing is proven" if math.isinf(epsilon) else f"ε = {places_up(epsilon)} per number"
    ssim = sum(outcome.ssim) / len(outcome.ssim)
    print(f"{outcome.method:<9} {outcome.label:<19} SSIM {ssim:.2f}; {promise}")

# %% See for yourself
if picture:
    rows = [
        Row(
            f"{outcome.method}\n" + outcome.label.replace(", ", "\n", 1),
            outcome.images.numpy(),
            outcome.ssim,
        )
        for outcome in outcomes
    ]
    save_grid(images.numpy(), rows, picture)
    print(f"saved {picture}")
