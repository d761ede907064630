"""CIFAR-10 from small batches and archives: sound, damaged, and hostile."""

import io
import pickle

import numpy as np
import pytest

from jopeq.errors import DataError
from jopeq.federated import data
from jopeq.federated import data as cifar


@pytest.mark.parametrize("place", ["", "cifar-10-batches-py"])
def test_cifar10_from_a_folder(
    published, tmp_path, place, cifar_files, write, assert_is_small_cifar10
):
    write(tmp_path / place, cifar_files.batches)
    assert_is_small_cifar10(data.load("cifar10", data_dir=tmp_path))


def test_cifar10_from_an_archive(published, tmp_path, cifar_files, write, assert_is_small_cifar10):
    write(tmp_path, cifar_files.archive)
    assert_is_small_cifar10(data.load("cifar10", data_dir=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-python.tar.gz"]


def test_planes_are_red_green_blue(cifar_files):
    pixels = np.repeat(np.array([[10, 20, 30]], np.uint8), 1024, axis=1)
    pixels[0, 33] = 99  # second row, second column, red
    images, labels = cifar.unpickle_batch(cifar_files.encode(pixels, [7]), "here")
    assert images[0, 0, 1, 1] == 99
    assert images[0, :, 0, 0].tolist() == [10, 20, 30]
    assert labels.tolist() == [7]


def test_damaged_batches(published, tmp_path, cifar_files, write, flip):
    for damage in (lambda c: c[:-100], flip, lambda c: b""):
        write(
            tmp_path,
            cifar_files.batches | {"data_batch_5": damage(cifar_files.batches["data_batch_5"])},
        )
        with pytest.raises(
            DataError, match=r"data_batch_5 is not CIFAR-10's data_b.*download http"
        ):
            data.load("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (lambda of: of.pack(of.batches)[:-2000], "cannot be read|lacks|is not CIFAR-10"),
        (lambda of: b"not a tar", r"cifar-10-python\.tar\.gz cannot be read"),
        (lambda of: b"", r"cifar-10-python\.tar\.gz cannot be read"),
        (lambda of: of.pack({}), "lacks data_batch_1"),
        (lambda of: of.pack(of.batches, folder="elsewhere"), "lacks data_batch_1"),
        (lambda of: of.pack(of.batches, folder="../cifar-10-batches-py"), "lacks data_batch_1"),
        (
            lambda of: of.pack(of.batches | {"test_batch": of.batches["data_batch_1"]}),
            "test_batch is CIFAR-10's data_batch_1, not CIFAR-10's test_batch",
        ),
    ],
)
def test_damaged_archives(published, tmp_path, archive, message, cifar_files, write):
    write(tmp_path, {"cifar-10-python.tar.gz": archive(cifar_files)})
    with pytest.raises(DataError, match=message):
        data.load("cifar10", data_dir=tmp_path)


def test_every_truncation_of_a_batch_is_an_error(cifar_files):
    content = cifar_files.encode(cifar_files.pixels[0][:1], [3])
    for length in (*range(60), *range(len(content) - 60, len(content))):
        with pytest.raises(DataError, match="here is no CIFAR-10 batch"):
            cifar.unpickle_batch(content[:length], "here")


CALLED = []


class Hostile:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


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
        lambda of: of.encode(of.pixels[0], of.labels[0], kind=b"O8"),
        lambda of: of.encode(of.pixels[0], of.labels[0], shape=(5, 3072)),
        lambda of: of.encode(of.pixels[0], of.labels[0], shape=(2, 6144)),
        lambda of: of.encode(of.pixels[0], of.labels[0], shape=(-1, 3072)),
        lambda of: of.encode(of.pixels[0], of.labels[0][:3]),
        lambda of: of.encode(of.pixels[0], [1, 2, 3, 10]),
        lambda of: of.encode(of.pixels[0], [1, 2, 3, -1]),
        lambda of: pickle.dumps({"labels": [1]}),
        lambda of: pickle.dumps([1, 2]),
        lambda of: pickle.dumps({"labels": ["x"], "data": 3}),
        lambda of: b"\x80\x02cnumpy\nndarray\n.",
        lambda of: b"\x80\x02}(U\x04datacnumpy\nndarray\n)RU\x06labels]u.",
    ],
)
def test_wrong_batches(content, cifar_files):
    with pytest.raises(DataError, match=r"^here "):
        cifar.unpickle_batch(content(cifar_files), "here")
