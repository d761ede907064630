"""Data sets from small files of the published formats, sound and damaged."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile

import numpy as np
import pytest
import torch

from jopeq.errors import DataError
from jopeq.federated import cifar, data
from jopeq.federated.download import RemoteFile

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]


def md5(content):
    return hashlib.md5(content).hexdigest()


def idx(array):
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes((0, 0, 8, array.ndim)) + shape + array.astype(np.uint8).tobytes()


def draw(*shape, high=256, seed=0):
    return np.random.default_rng(seed).integers(0, high, shape, dtype=np.uint8)


ARRAYS = (draw(60, 5, 4), draw(60, high=10), draw(20, 5, 4, seed=1), draw(20, high=10, seed=1))


def batch_pickle(pixels, labels, kind=b"u1", shape=None):
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


PIXELS = [draw(4, 3072, seed=i) for i in range(6)]
LABELS = [draw(4, high=10, seed=i).tolist() for i in range(6)]
CONTENTS = {
    name: batch_pickle(pixels, labels)
    for name, pixels, labels in zip(BATCHES, PIXELS, LABELS, strict=True)
}


def tar_of(contents, folder="cifar-10-batches-py"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def small(monkeypatch):
    """The MD5s of the small files in place of the published ones; no network."""
    zipped = {
        f"{name}.gz": gzip.compress(idx(array)) for name, array in zip(NAMES, ARRAYS, strict=True)
    }
    files = tuple(
        RemoteFile(name, f"http://127.0.0.1:9/{name}", md5(c)) for name, c in zipped.items()
    )
    archive = tar_of(CONTENTS)
    tar = RemoteFile(
        "cifar-10-python.tar.gz", "http://127.0.0.1:9/cifar-10-python.tar.gz", md5(archive)
    )
    for name, remote in (("mnist", files), ("fashion-mnist", files), ("cifar10", (tar,))):
        monkeypatch.setitem(data.PUBLISHED, name, remote)
    monkeypatch.setattr(cifar, "_CIFAR_BATCHES", {name: md5(c) for name, c in CONTENTS.items()})
    monkeypatch.setattr(data, "fetch", forbidden)
    return {"zipped": zipped, "archive": {"cifar-10-python.tar.gz": archive}}


def forbidden(*arguments):
    raise AssertionError(f"nothing should be downloaded: {arguments}")


def write(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def assert_is_small_idx_set(loaded):
    for tensor, array in zip(
        (loaded.train_inputs, loaded.train_labels, loaded.test_inputs, loaded.test_labels),
        ARRAYS,
        strict=True,
    ):
        expected = array[:, None] / 255 if array.ndim == 3 else array
        assert tensor.dtype == (torch.float32 if array.ndim == 3 else torch.int64)
        assert np.allclose(tensor.numpy(), expected, atol=1e-7)
    assert loaded.input_shape == (1, 5, 4)
    assert loaded.classes == 10


def assert_is_small_cifar10(loaded):
    images = np.concatenate(PIXELS).reshape(-1, 3, 32, 32) / 255
    both = torch.cat((loaded.train_inputs, loaded.test_inputs)).numpy()
    assert np.allclose(both, images, atol=1e-7)
    assert loaded.train_inputs.shape == (20, 3, 32, 32)
    labels = torch.cat((loaded.train_labels, loaded.test_labels))
    assert labels.tolist() == [label for labels in LABELS for label in labels]
    assert loaded.input_shape == (3, 32, 32)


# Sound files


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("is_zipped", [True, False])
@pytest.mark.parametrize("place", ["", "own", "torchvision"])
def test_idx_sets(small, tmp_path, name, is_zipped, place):
    torchvision = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    folder = tmp_path / {"": "", "own": name, "torchvision": torchvision}[place]
    raw = {f"{n.removesuffix('.gz')}": gzip.decompress(c) for n, c in small["zipped"].items()}
    write(folder, small["zipped"] if is_zipped else raw)
    loaded = data.load(name, data_dir=str(tmp_path))
    assert loaded.name == name
    assert_is_small_idx_set(loaded)


def test_own_folder_comes_first(small, tmp_path):
    write(tmp_path, dict.fromkeys(small["zipped"], b"of another data set"))
    write(tmp_path / "fashion-mnist", small["zipped"])
    assert_is_small_idx_set(data.load("fashion-mnist", data_dir=tmp_path))
    with pytest.raises(DataError, match="MD5"):
        data.load("mnist", data_dir=tmp_path)


@pytest.mark.parametrize("place", ["", "cifar-10-batches-py"])
def test_cifar10_from_a_folder(small, tmp_path, place):
    write(tmp_path / place, CONTENTS)
    assert_is_small_cifar10(data.load("cifar10", data_dir=tmp_path))


def test_cifar10_from_an_archive(small, tmp_path):
    write(tmp_path, small["archive"])
    assert_is_small_cifar10(data.load("cifar10", data_dir=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-python.tar.gz"]


def test_planes_are_red_green_blue():
    pixels = np.repeat(np.array([[10, 20, 30]], np.uint8), 1024, axis=1)
    pixels[0, 33] = 99  # second row, second column, red
    images, labels = cifar.unpickle_batch(batch_pickle(pixels, [7]), "here")
    assert images[0, 0, 1, 1] == 99
    assert images[0, :, 0, 0].tolist() == [10, 20, 30]
    assert labels.tolist() == [7]


def test_bundled_sets():
    pytest.importorskip("sklearn")
    digits = data.load("digits", data_dir="/nowhere", download=False)
    assert digits.train_inputs.shape == (1442, 1, 8, 8)
    assert digits.test_labels.shape == (355,)
    assert digits.classes == 10
    again = data.load("digits")
    assert torch.equal(digits.train_inputs, again.train_inputs)


# Cache and download


@pytest.mark.parametrize("how", ["argument", "JOPEQ_CACHE", "XDG_CACHE_HOME", "home"])
def test_cache_folders(small, tmp_path, monkeypatch, how):
    for variable in ("JOPEQ_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    arguments = {}
    if how == "argument":
        monkeypatch.setenv("JOPEQ_CACHE", str(tmp_path / "not this"))
        folder = arguments["cache_dir"] = tmp_path / "cache"
    elif how == "JOPEQ_CACHE":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not this"))
        monkeypatch.setenv("JOPEQ_CACHE", "~/mine")
        folder = tmp_path / "home" / "mine"
    elif how == "XDG_CACHE_HOME":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        folder = tmp_path / "xdg" / "jopeq"
    else:
        folder = tmp_path / "home" / ".cache" / "jopeq"
    write(folder / "mnist", small["zipped"])
    write(folder / "cifar10", small["archive"])
    assert_is_small_idx_set(data.load("mnist", download=False, **arguments))
    assert_is_small_cifar10(data.load("cifar10", download=False, **arguments))


def test_downloads_into_the_cache(small, tmp_path, monkeypatch):
    contents, asked, steps = small["zipped"] | small["archive"], [], []

    def fetch(remote, folder, progress):
        asked.append(remote.name)
        write(folder, {remote.name: contents[remote.name]})
        progress(1, 1)

    monkeypatch.setattr(data, "fetch", fetch)
    progress = lambda *step: steps.append(step)  # noqa: E731
    assert_is_small_idx_set(data.load("fashion-mnist", cache_dir=tmp_path, progress=progress))
    assert asked == [f"{name}.gz" for name in NAMES]
    assert_is_small_cifar10(data.load("cifar10", cache_dir=tmp_path, progress=progress))
    assert len(steps) == 5


def test_data_dir_is_never_left(small, tmp_path):
    """Whoever names a folder wants its files: neither cache nor network takes their place."""
    write(tmp_path / "cache" / "mnist", small["zipped"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty lacks train-images-idx3-ubyte.gz: download http"):
        data.load("mnist", data_dir=tmp_path / "empty", cache_dir=tmp_path / "cache")


# Damaged files


def test_missing(small, tmp_path):
    with pytest.raises(DataError, match=r"data_dir .*nowhere is not a folder"):
        data.load("mnist", data_dir=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"lacks train-images-idx3-ubyte\.gz.*download=True"):
        data.load("mnist", cache_dir=tmp_path, download=False)
    with pytest.raises(DataError, match=r"neither cifar-10-batches-py nor cifar-10-python\.tar"):
        data.load("cifar10", data_dir=tmp_path)
    for missing in NAMES:
        folder = tmp_path / missing
        write(folder, {n: c for n, c in small["zipped"].items() if missing not in n})
        with pytest.raises(DataError, match=rf"lacks {missing}\.gz: download http"):
            data.load("mnist", data_dir=folder)
    write(tmp_path / "batches", {n: c for n, c in CONTENTS.items() if n != "data_batch_3"})
    with pytest.raises(DataError, match="batches lacks data_batch_3"):
        data.load("cifar10", data_dir=tmp_path / "batches")


@pytest.mark.parametrize("damage", [lambda c: c[:-9], lambda c: c + b"x", lambda c: b"", "flip"])
@pytest.mark.parametrize("victim", [f"{NAMES[0]}.gz", f"{NAMES[3]}.gz"])
def test_damaged_gz(small, tmp_path, damage, victim):
    content = small["zipped"][victim]
    changed = flip(content) if damage == "flip" else damage(content)
    write(tmp_path, small["zipped"] | {victim: changed})
    with pytest.raises(DataError, match=rf"{victim} has MD5 .* where the published file has .*do"):
        data.load("mnist", data_dir=tmp_path)


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes((content[middle] ^ 1,)) + content[middle + 1 :]


def test_gz_that_is_none(small, tmp_path, monkeypatch):
    files = tuple(RemoteFile(f.name, f.url, md5(b"zip?")) for f in data.PUBLISHED["mnist"])
    monkeypatch.setitem(data.PUBLISHED, "mnist", files)
    write(tmp_path, {file.name: b"zip?" for file in files})
    with pytest.raises(DataError, match="cannot be unzipped"):
        data.load("mnist", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("position", "content", "message"),
    [
        (0, idx(ARRAYS[0])[:-1], r"has 1215 bytes where its header announces 1216"),
        (0, idx(ARRAYS[0]) + b"x", r"has 1217 bytes where its header announces 1216"),
        (0, b"", "must begin with the bytes 00000803, it begins with nothing"),
        (0, b"\0\0\x08\x03\0", "has 5 bytes where"),
        (0, b"\0\0\x08\x03" + b"\xff" * 12, "has 16 bytes where its header announces 7922816"),
        (0, idx(ARRAYS[1]), "must begin with the bytes 00000803, it begins with 00000801"),
        (1, idx(ARRAYS[0]), "must begin with the bytes 00000801, it begins with 00000803"),
        (1, idx(ARRAYS[1][:-1]), "train-labels-idx1-ubyte .*holds 59 labels up to 9 for 60 images"),
        (3, idx(ARRAYS[3] + 1), "t10k-labels-idx1-ubyte .*holds 20 labels up to 10"),
        (2, idx(draw(20, 4, 4)), "differ in size"),
    ],
)
def test_damaged_idx(small, tmp_path, position, content, message):
    raw = {name: idx(array) for name, array in zip(NAMES, ARRAYS, strict=True)}
    write(tmp_path, raw | {NAMES[position]: content})
    with pytest.raises(DataError, match=message) as caught:
        data.load("mnist", data_dir=tmp_path)
    assert "download http" in str(caught.value)


def test_damaged_batches(small, tmp_path):
    for damage in (lambda c: c[:-100], flip, lambda c: b""):
        write(tmp_path, CONTENTS | {"data_batch_5": damage(CONTENTS["data_batch_5"])})
        with pytest.raises(DataError, match=r"data_batch_5 has MD5 .*download http"):
            data.load("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (tar_of(CONTENTS)[:-2000], "cannot be read|lacks|MD5"),
        (b"not a tar", r"cifar-10-python\.tar\.gz cannot be read"),
        (b"", r"cifar-10-python\.tar\.gz cannot be read"),
        (tar_of({}), "lacks data_batch_1"),
        (tar_of(CONTENTS, folder="elsewhere"), "lacks data_batch_1"),
        (tar_of(CONTENTS, folder="../cifar-10-batches-py"), "lacks data_batch_1"),
        (tar_of(CONTENTS | {"test_batch": CONTENTS["data_batch_1"]}), "test_batch has MD5"),
    ],
)
def test_damaged_archives(small, tmp_path, archive, message):
    write(tmp_path, {"cifar-10-python.tar.gz": archive})
    with pytest.raises(DataError, match=message):
        data.load("cifar10", data_dir=tmp_path)


def test_every_truncation_of_a_batch_is_an_error():
    content = batch_pickle(PIXELS[0][:1], [3])
    for length in (*range(60), *range(len(content) - 60, len(content))):
        with pytest.raises(DataError, match="here is no CIFAR-10 batch"):
            cifar.unpickle_batch(content[:length], "here")


class Hostile:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


CALLED = []


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    "hostile",
    [
        Hostile(CALLED.append, 1),
        Hostile(eval, "CALLED.append(1)"),
        Hostile(getattr, [], "append"),
        Hostile(np.frombuffer, b"1234"),
        Hostile(io.open, "/dev/null"),
        np.array([1.0]),
        np.array([object()]),
    ],
    ids=["bound", "eval", "getattr", "numpy", "open", "floats", "objects"],
)
def test_hostile_pickles_call_nothing(hostile, protocol):
    content = pickle.dumps({"labels": [1], "data": hostile}, protocol=protocol)
    with pytest.raises(DataError, match=r"here is no CIFAR-10 batch.*not allowed"):
        cifar.unpickle_batch(content, "here")
    assert not CALLED


@pytest.mark.parametrize(
    "content",
    [
        batch_pickle(PIXELS[0], LABELS[0], kind=b"O8"),
        batch_pickle(PIXELS[0], LABELS[0], shape=(5, 3072)),
        batch_pickle(PIXELS[0], LABELS[0], shape=(2, 6144)),
        batch_pickle(PIXELS[0], LABELS[0], shape=(-1, 3072)),
        batch_pickle(PIXELS[0], LABELS[0][:3]),
        batch_pickle(PIXELS[0], [1, 2, 3, 10]),
        batch_pickle(PIXELS[0], [1, 2, 3, -1]),
        pickle.dumps({"labels": [1]}),
        pickle.dumps([1, 2]),
        pickle.dumps({"labels": ["x"], "data": 3}),
        b"\x80\x02cnumpy\nndarray\n.",
        b"\x80\x02}(U\x04datacnumpy\nndarray\n)RU\x06labels]u.",
    ],
)
def test_wrong_batches(content):
    with pytest.raises(DataError, match=r"^here "):
        cifar.unpickle_batch(content, "here")


# Data sets of one's own, and their splits


def dataset(count=60, **changes):
    fields = {
        "name": "mine",
        "train_inputs": torch.arange(count * 4, dtype=torch.float32).reshape(count, 1, 2, 2),
        "train_labels": torch.arange(count) % 10,
        "test_inputs": torch.zeros(3, 1, 2, 2),
        "test_labels": torch.zeros(3, dtype=torch.int64),
        "classes": 10,
    }
    return data.Dataset(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_inputs": torch.zeros(60, 4)}, "train_inputs must be"),
        ({"test_inputs": torch.zeros(3, 1, 2, 3)}, "test_inputs must be"),
        ({"test_inputs": torch.zeros(3, 1, 2, 2).double()}, "must be float32"),
        ({"train_labels": torch.zeros(60)}, "train_labels int64"),
        ({"train_labels": torch.zeros(59, dtype=torch.int64)}, r"must have shape \(60,\)"),
        ({"classes": 9}, "from 0 to classes - 1 = 8"),
        ({"test_labels": torch.tensor([0, -1, 0])}, "test_labels must be from 0"),
    ],
)
def test_datasets_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        dataset(**changes)


def test_datasets_are_frozen():
    with pytest.raises(AttributeError):
        dataset().name = "other"


@pytest.mark.parametrize("count", [0, 1, 10, 59, np.int64(7)])
def test_split_validation(count):
    mine = dataset()
    inputs, labels, held_inputs, held_labels = data.split_validation(mine, count, seed=4)
    assert len(held_inputs) == len(held_labels) == count
    both = torch.cat((inputs, held_inputs))
    order = both[:, 0, 0, 0].argsort()
    assert torch.equal(both[order], mine.train_inputs)
    assert torch.equal(torch.cat((labels, held_labels))[order], mine.train_labels)


def test_split_validation_by_seed():
    mine = dataset(600)
    one, same, other = (data.split_validation(mine, seed=seed)[2] for seed in (1, 1, 2))
    assert len(one) == 100
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_split_validation_default_is_the_papers():
    labels = torch.zeros(60_000, dtype=torch.int64)
    large = dataset(train_inputs=torch.zeros(60_000, 1, 2, 2), train_labels=labels)
    assert [len(part) for part in data.split_validation(large)] == [50_000, 50_000, 10_000, 10_000]


@pytest.mark.parametrize("count", [-1, 60, 1.5, True, "10"])
def test_split_validation_errors(count):
    with pytest.raises(ValueError, match="count must be an integer from 0 to 59"):
        data.split_validation(dataset(), count)


def test_unknown_names():
    with pytest.raises(ValueError, match="one of digits, mnist5k, mnist, fashion-mnist, cifar10"):
        data.load("imagenet")
