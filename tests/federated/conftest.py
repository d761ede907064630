"""What the tests here share: small files of the published formats, models to train, short runs."""

import gzip
import hashlib
import io
import struct
import tarfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from jopeq.federated import data, download, models
from jopeq.federated.config import TrainConfig
from jopeq.federated.local import LocalTrainer, batches
from jopeq.federated.simulation import train as train_all

# Small files of the published formats

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]


def draw(*shape, high=256, seed=0):
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8)


ARRAYS = (draw(60, 5, 4), draw(60, high=10), draw(20, 5, 4, seed=1), draw(20, high=10, seed=1))
PIXELS = [draw(4, 3072, seed=i) for i in range(6)]
LABELS = [draw(4, high=10, seed=i).tolist() for i in range(6)]


def as_idx(array):
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def as_batch(pixels, labels, kind=b"u1", shape=None):
    """A batch as Python 2 and its NumPy pickled it, opcode by opcode."""
    rows, columns = shape or pixels.shape
    content = pixels.tobytes()
    number = lambda value: b"J" + struct.pack("<i", value)  # noqa: E731
    text = lambda value: b"T" + struct.pack("<i", len(value)) + value  # noqa: E731
    dtype = b"cnumpy\ndtype\n" + text(kind) + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + number(-1) + number(-1) + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
    array += b"\x87R(K\x01" + number(rows) + number(columns) + b"\x86" + dtype + b"\x89"
    array += text(content) + b"tb"
    values = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"labels") + values + text(b"data") + array + b"u."


def as_tar(contents, folder="cifar-10-batches-py"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def forbidden(*arguments):
    raise AssertionError(f"nothing should be downloaded: {arguments}")


@pytest.fixture(scope="session")
def idx_files():
    """The four files of both data sets by their names, unzipped and zipped."""
    made = {"mnist": ARRAYS, "fashion-mnist": [array[::-1] for array in ARRAYS]}
    unzipped = {
        name: {file: as_idx(array) for file, array in zip(NAMES, arrays, strict=True)}
        for name, arrays in made.items()
    }
    zipped = {
        name: {f"{file}.gz": gzip.compress(content) for file, content in files.items()}
        for name, files in unzipped.items()
    }
    return SimpleNamespace(names=NAMES, unzipped=unzipped, zipped=zipped)


@pytest.fixture(scope="session")
def cifar_files():
    """The six batches by their names, their archive, and what they are made of."""
    made = zip(BATCHES, PIXELS, LABELS, strict=True)
    contents = {name: as_batch(pixels, labels) for name, pixels, labels in made}
    return SimpleNamespace(
        pixels=PIXELS,
        labels=LABELS,
        encode=as_batch,
        pack=as_tar,
        batches=contents,
        archive={"cifar-10-python.tar.gz": as_tar(contents)},
    )


@pytest.fixture
def published(monkeypatch, idx_files, cifar_files):
    """The digests of the small files in place of the published ones; no network."""
    for name, files in data.PUBLISHED.items():
        held = cifar_files.archive if name == "cifar10" else idx_files.unzipped[name]
        remotes = tuple(
            replace(remote, url=f"https://127.0.0.1:9/{remote.name}", sha256=sha256(content))
            for remote, content in zip(files, held.values(), strict=True)
        )
        monkeypatch.setitem(data.PUBLISHED, name, remotes)
    for name, content in cifar_files.batches.items():
        monkeypatch.setitem(download.CIFAR10_BATCHES, name, sha256(content))
    monkeypatch.setattr(data, "fetch", forbidden)


@pytest.fixture(scope="session")
def write():
    """(folder, contents by name) → files."""

    def write_all(folder, contents):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_bytes(content)

    return write_all


@pytest.fixture(scope="session")
def flip():
    """One bit in the middle changed."""

    def flipped(content):
        middle = len(content) // 2
        return content[:middle] + bytes((content[middle] ^ 1,)) + content[middle + 1 :]

    return flipped


@pytest.fixture(scope="session")
def assert_is_small_idx_set():
    def check(loaded):
        for tensor, array in zip(
            (loaded.train_inputs, loaded.train_labels, loaded.test_inputs, loaded.test_labels),
            ARRAYS if loaded.name == "mnist" else [array[::-1] for array in ARRAYS],
            strict=True,
        ):
            expected = array[:, None] / 255 if array.ndim == 3 else array
            assert tensor.dtype == (torch.float32 if array.ndim == 3 else torch.int64)
            assert np.allclose(tensor.numpy(), expected, atol=1e-7)
        assert loaded.input_shape == (1, 5, 4)
        assert loaded.classes == 10

    return check


@pytest.fixture(scope="session")
def assert_is_small_cifar10():
    def check(loaded):
        images = np.concatenate(PIXELS).reshape(-1, 3, 32, 32) / 255
        both = torch.cat((loaded.train_inputs, loaded.test_inputs)).numpy()
        assert np.allclose(both, images, atol=1e-7)
        assert loaded.train_inputs.shape == (20, 3, 32, 32)
        labels = torch.cat((loaded.train_labels, loaded.test_labels))
        assert labels.tolist() == [label for labels in LABELS for label in labels]
        assert loaded.input_shape == (3, 32, 32)

    return check


# Models to train, and their training

SHAPE, CLASSES, CLIENTS, STEPS, BATCH = (1, 16, 16), 4, 3, 6, 5
PARTS = [np.arange(0, 31), np.arange(31, 53), np.arange(53, 60)]


class Residual(nn.Module):
    """No Sequential, so that vmap must do it."""

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


class Unused(Residual):
    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(2, 2)


MODELS = {
    "linear": lambda: models.build("linear", SHAPE, CLASSES, 0),
    "mlp": lambda: models.build("mlp", SHAPE, CLASSES, 0),
    "cnn": lambda: models.build("cnn", SHAPE, CLASSES, 0),
    "lenet": lambda: models.build("lenet", SHAPE, CLASSES, 0),
    "odd layers": lambda: nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 4, (3, 2), stride=(2, 1), padding=(1, 0), bias=False)),
        *(nn.ReLU(inplace=True), nn.AvgPool2d(2), nn.Identity(), nn.Tanh(), nn.GELU()),
        *(nn.Flatten(), nn.Linear(112, CLASSES, bias=False)),
    ),
    "dense on images": lambda: nn.Sequential(
        nn.Linear(16, 3), nn.Flatten(), nn.Linear(48, CLASSES)
    ),
    "residual": Residual,
    "unused": Unused,
    "dilated": lambda: nn.Sequential(
        nn.Conv2d(1, 2, 3, dilation=2), nn.Flatten(), nn.Linear(288, CLASSES)
    ),
    "branching": Branching,
    "batch norm": lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(588, CLASSES)
    ),
    "batch norm without statistics": lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3, track_running_stats=False),
        *(nn.Flatten(), nn.Linear(588, CLASSES)),
    ),
}


@pytest.fixture(scope="session")
def build():
    """A model, always with the same parameters: one of ``MODELS``, or what a function makes."""

    def built(model):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            return MODELS.get(model, model)()

    return built


@pytest.fixture(scope="session")
def samples():
    source = torch.Generator().manual_seed(1)
    inputs = torch.randn(60, *SHAPE, generator=source)
    return inputs, torch.randint(0, CLASSES, (60,), generator=source)


@pytest.fixture(scope="session")
def parts():
    """The samples of every client."""
    return PARTS


@pytest.fixture(scope="session")
def order():
    """The batches of the first round: indices of samples, (steps, clients, batch)."""
    return batches(PARTS, range(CLIENTS), steps=STEPS, batch_size=BATCH, seed=0, round_number=0)


@pytest.fixture(scope="session")
def trainer_of():
    def make(model, samples, **options):
        return LocalTrainer(model, *samples, **{"steps": STEPS, "batch_size": BATCH, **options})

    return make


@pytest.fixture(scope="session")
def train():
    """Updates and losses of all clients in one round."""

    def train_round(trainer, model, seed=0, rate=0.1, round_number=0):
        chunks = list(
            trainer.train(
                trainer.layout.read(model),
                PARTS,
                range(CLIENTS),
                learning_rates=[rate] * trainer.steps,
                seed=seed,
                round_number=round_number,
            )
        )
        updates, losses = zip(*((c.updates, c.losses) for c in chunks), strict=True)
        return np.concatenate(updates), np.concatenate(losses)

    return train_round


# Short runs

SHORT = {"clients": 4, "rounds": 3, "local_steps": 5, "batch_size": 8, "validation": 40}


def configured(**options):
    return TrainConfig(**{**SHORT, **options})


def make_clusters():
    source = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 1, 4, 4, generator=source)
    labels = torch.arange(300) % 3
    inputs = centres[labels] + 0.5 * torch.randn(300, 1, 4, 4, generator=source)
    return data.Dataset("clusters", inputs[:240], labels[:240], inputs[240:], labels[240:], 3)


@pytest.fixture(scope="session")
def clusters():
    """Three classes that a linear model can tell apart."""
    return make_clusters()


@pytest.fixture(scope="session")
def short_config():
    """The configuration of a short run, with changes."""
    return configured


@pytest.fixture(scope="session")
def run(clusters):
    """A short run, with changes."""

    def run_all(model=None, **options):
        return train_all(configured(**options), dataset=clusters, model=model)

    return run_all
