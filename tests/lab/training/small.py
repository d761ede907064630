"""What the tests here share: small files of the published formats, models to train, short runs."""

import gzip
import hashlib
import io
import struct
import tarfile

import numpy as np
import pytest
import torch
from torch import nn

from jopeq_lab.training import data, models, record, simulation
from jopeq_lab.training.config import TrainConfig
from jopeq_lab.training.local import LocalTrainer

# Small files of the published formats


def draw(*shape, high=256, seed=0):
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8)


ARRAYS = (draw(60, 5, 4), draw(60, high=10), draw(20, 5, 4, seed=1), draw(20, high=10, seed=1))
PIXELS = [draw(4, 3072, seed=i) for i in range(6)]
LABELS = [draw(4, high=10, seed=i).tolist() for i in range(6)]


def as_idx(array):
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def as_batch(pixels, labels):
    """A batch as Python 2 and its NumPy pickled it, opcode by opcode."""
    number = lambda value: b"J" + struct.pack("<i", value)  # noqa: E731
    text = lambda value: b"T" + struct.pack("<i", len(value)) + value  # noqa: E731
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + number(-1) + number(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
    array += b"\x87R(K\x01" + b"".join(map(number, pixels.shape)) + b"\x86" + dtype + b"\x89"
    array += text(pixels.tobytes()) + b"tb"
    values = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"labels") + values + text(b"data") + array + b"u."


def as_tar(contents, folder="cifar-10-batches-py"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


NAMES = [
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
]
MADE = {"mnist": ARRAYS, "fashion-mnist": [array[::-1] for array in ARRAYS]}
IDX = {name: dict(zip(NAMES, map(as_idx, arrays), strict=True)) for name, arrays in MADE.items()}
ZIPPED = {
    name: {f"{file}.gz": gzip.compress(content) for file, content in files.items()}
    for name, files in IDX.items()
}
BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
CIFAR10 = dict(zip(BATCHES, map(as_batch, PIXELS, LABELS), strict=True))
ARCHIVE = {"cifar-10-python.tar.gz": as_tar(CIFAR10)}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def flipped(content):
    """One bit in the middle changed."""
    middle = len(content) // 2
    return content[:middle] + bytes((content[middle] ^ 1,)) + content[middle + 1 :]


def check_idx(loaded):
    parts = loaded.train_inputs, loaded.train_labels, loaded.test_inputs, loaded.test_labels
    for tensor, array in zip(parts, MADE[loaded.name], strict=True):
        expected = array[:, None] / 255 if array.ndim == 3 else array
        assert tensor.dtype == (torch.float32 if array.ndim == 3 else torch.int64)
        assert np.allclose(tensor.numpy(), expected, atol=1e-7)
    assert loaded.input_shape == (1, 5, 4)
    assert loaded.classes == 10


def check_cifar10(loaded):
    images = np.concatenate(PIXELS).reshape(-1, 3, 32, 32) / 255
    both = torch.cat((loaded.train_inputs, loaded.test_inputs)).numpy()
    assert np.allclose(both, images, atol=1e-7)
    assert loaded.train_inputs.shape == (20, 3, 32, 32)
    labels = torch.cat((loaded.train_labels, loaded.test_labels))
    assert labels.tolist() == np.ravel(LABELS).tolist()
    assert loaded.input_shape == (3, 32, 32)


# Models to train, and their training

SHAPE, CLASSES, STEPS, BATCH = (1, 16, 16), 4, 6, 5
PARTS = [np.arange(0, 31), np.arange(31, 53), np.arange(53, 60)]  # the samples of every client
SOURCE = torch.Generator().manual_seed(1)
SAMPLES = (
    torch.randn(60, *SHAPE, generator=SOURCE),
    torch.randint(0, CLASSES, (60,), generator=SOURCE),
)


class Residual(nn.Module):
    """With a buffer that training leaves alone."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 16), nn.Linear(16, CLASSES)
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, inputs):
        hidden = torch.relu(self.first(inputs.flatten(1)))
        return self.second(hidden + torch.tanh(hidden) + self.shift)


class Branching(Residual):
    """Control flow that depends on the data, which vmap refuses."""

    def forward(self, inputs):
        return super().forward(inputs if inputs.mean() > 0 else -inputs)


def layers(*made):
    """The layers, flattened, and a dense layer for the images of ``SHAPE``."""
    body = nn.Sequential(*made, nn.Flatten()).eval()
    width = body(torch.zeros(2, *SHAPE)).shape[1]
    return nn.Sequential(*body, nn.Linear(width, CLASSES)).train()


def odd():
    first = nn.Conv2d(1, 4, (3, 2), stride=(2, 1), padding=(1, 0), bias=False)
    second = nn.Conv2d(4, 3, (2, 3), stride=(2, 1))
    more = nn.ReLU(inplace=True), nn.AvgPool2d(2), nn.Identity(), second, nn.Tanh(), nn.GELU()
    last = nn.Flatten(), nn.Linear(30, CLASSES, bias=False)
    return nn.Sequential(nn.Sequential(first), *more, *last)


MODELS = {
    **{
        name: lambda name=name: models.build(name, SHAPE, CLASSES, 0)
        for name in ("linear", "mlp", "cnn", "lenet")
    },
    "odd layers": odd,
    "residual": Residual,
    "branching": Branching,
    "batch norm": lambda: layers(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU()),
    "batch norm without statistics": lambda: layers(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3, track_running_stats=False)
    ),
}


def build(name):
    """One of ``MODELS``, always with the same parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return MODELS[name]()


def trainer_of(model, samples=SAMPLES, **options):
    return LocalTrainer(model, *samples, **{"steps": STEPS, "batch_size": BATCH, **options})


def train(trainer, model, **options):
    """Updates and losses of all clients in one round."""
    given = {"learning_rate": 0.1, "seed": 0, "round_number": 0, **options}
    found = trainer.train(trainer.layout.read(model), PARTS, range(len(PARTS)), **given)
    return found.updates, found.losses


# Short runs

SHORT = {"clients": 4, "rounds": 3, "local_steps": 5, "batch_size": 8, "validation": 40}


def short(**options):
    """The configuration of a short run, with changes."""
    return TrainConfig(**{**SHORT, **options})


def make_clusters():
    """Three classes that a linear model can tell apart."""
    source = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 1, 4, 4, generator=source)
    labels = torch.arange(300) % 3
    inputs = centres[labels] + 0.5 * torch.randn(300, 1, 4, 4, generator=source)
    return data.Dataset("clusters", inputs[:240], labels[:240], inputs[240:], labels[240:], 3)


CLUSTERS = make_clusters()


def run(model=None, **options):
    """A short run, with changes."""
    return simulation.train(short(**options), dataset=CLUSTERS, model=model)


def stopped_and_resumed(config, last, dataset, folder):
    """A run that is stopped after round ``last`` and goes on, and the rounds on record."""

    def stop(done, _):
        if done.round == last:
            raise KeyboardInterrupt

    given = {"dataset": dataset, "out": folder}
    with pytest.raises(KeyboardInterrupt):
        simulation.train(config, progress=stop, **given)
    resumed = simulation.train(config, resume=True, **given)
    return resumed, [done.round for done in record.read_rounds(folder / record.ROUNDS)]
