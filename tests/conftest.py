"""The options ``--slow`` and ``--quick``, reproducible streams, and the statistical verdicts.

Every verdict has the false-alarm probability of about 1e-7 that five standard errors have. Seeds
are fixed, so a verdict that holds once holds always; the threshold says how much it proves.
"""

import gc
import hashlib
import math
import os
from pathlib import Path

# Two processes of tests on two cores: a second thread of NumPy or PyTorch would only wait. Set
# before both are imported; processes that tests start do alike.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings
from scipy import stats

from jopeq.random import portable
from jopeq.random.streams import PrivateStream, SharedStream

# The plain path is the specification, so it is what tests run (and processes they start), unless
# they ask for ``compiled``. JOPEQ_KERNELS=on from outside puts the kernels to all tests.
os.environ.setdefault("JOPEQ_KERNELS", "off")

# The same examples on every run: what fails here fails there.
settings.register_profile("jopeq", derandomize=True, deadline=None)
settings.load_profile("jopeq")

FALSE_ALARM = 1e-7
SIGMAS = 5.0
# P(D·√n > c) → 2·exp(−2c²) for the Kolmogorov–Smirnov distance D of n draws
KOLMOGOROV = math.sqrt(math.log(2 / FALSE_ALARM) / 2)


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--go-live", action="store_true", help="type the commands of docs/go-live.md")
    parser.addoption("--quick", action="store_true", help="run the core alone: QUICK")


# What ``make quick`` runs, below this folder: rooms, and files of other rooms.
QUICK = (
    *("channel", "entries", "lattice", "noise", "privacy", "random", "schemes", "wire"),
    *("analysis/test_exact.py", "cli/test_options.py", "flower/test_node.py"),
    *("circle/test_parts.py", "sphere/test_round.py", "test_errors.py", "test_house.py"),
    "test_ledger.py",
)


NOT_QUICK = ("schemes/test_aggregate.py",)  # compiles the kernels where nobody has


def pytest_ignore_collect(collection_path, config):
    if not config.getoption("--quick") or collection_path.is_dir():
        return None
    place = collection_path.relative_to(Path(__file__).parent).as_posix()
    return None if place.startswith(QUICK) and place not in NOT_QUICK else True


# Files whose tests take longest, in this order. They come first, so that no process is left alone
# with one.
LONGEST = (
    *("test_record_federation.py", "test_site.py", "test_dist.py", "test_sum_federation.py"),
    *("test_guard.py", "test_federation.py", "test_scripts.py", "test_explore.py", "test_codec.py"),
    *("test_memory.py", "test_attack.py", "test_simulation.py", "test_train.py", "test_claims.py"),
)


def pytest_collection_modifyitems(config, items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))
    for mark, option in (("slow", "--slow"), ("golive", "--go-live")):
        skip = pytest.mark.skip(reason=f"{mark}: run with {option}")
        for item in items:
            if mark in item.keywords and not config.getoption(option):
                item.add_marker(skip)


def pytest_collection_finish():
    gc.freeze()  # Flower and the tests of memory collect often: let them look at what is new


def _key(label):
    return hashlib.sha256(label.encode()).digest()


@pytest.fixture
def compiled():
    """Compiled kernels in place of the plain path, for one test."""
    pytest.importorskip("numba")
    from jopeq import kernels

    kernels.use("on")
    yield kernels
    kernels.use(None)


@pytest.fixture(scope="session")
def private():
    """A reproducible private stream for each label."""
    return lambda label: PrivateStream.reproducible(_key(label))


def shared(function):
    """A fixture that is the function itself."""
    return pytest.fixture(scope="session", name=function.__name__)(lambda: function)


@shared
def dither_words(label, rows, dimension):
    """Reproducible rows of L 16-bit words."""
    stream = SharedStream(_key(label))
    return stream.words16(lane=0, start=0, count=rows * dimension).reshape(rows, dimension)


@shared
def assert_follows(sample, cdf):
    """Kolmogorov–Smirnov of a sample against a continuous distribution function."""
    sample = np.sort(np.ravel(sample))
    n = len(sample)
    expected = cdf(sample)
    steps = np.arange(n + 1) / n
    distance = max((steps[1:] - expected).max(), (expected - steps[:-1]).max())
    assert distance * math.sqrt(n) < KOLMOGOROV, (distance, n)


@shared
def assert_same_law(one, two):
    """Two-sample Kolmogorov–Smirnov."""
    one, two = np.sort(np.ravel(one)), np.sort(np.ravel(two))
    both = np.concatenate((one, two))
    shares = [np.searchsorted(some, both, side="right") / len(some) for some in (one, two)]
    distance = np.abs(shares[0] - shares[1]).max()
    effective = len(one) * len(two) / (len(one) + len(two))
    assert distance * math.sqrt(effective) < KOLMOGOROV, (distance, effective)


@shared
def assert_counts(observed, expected=None):
    """Chi-square of counts against their expectations (by default all equal)."""
    observed = np.ravel(observed).astype(float)
    expected = np.full(len(observed), observed.mean()) if expected is None else np.ravel(expected)
    assert expected.min() >= 5, "too few expected for the chi-square law"
    statistic = ((observed - expected) ** 2 / expected).sum()
    p_value = stats.chi2.sf(statistic, len(observed) - 1)
    assert p_value > FALSE_ALARM, (statistic, p_value, observed)


@shared
def assert_independent(first, second):
    """Chi-square of a contingency table of two integer labels."""
    table = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(table, (first, second), 1)
    assert table.sum(axis=1).min() > 0
    assert table.sum(axis=0).min() > 0
    p_value = stats.chi2_contingency(table, correction=False).pvalue
    assert p_value > FALSE_ALARM, (p_value, table)


@shared
def assert_mean(values, expected):
    """The mean of each column within five standard errors of what is expected."""
    values = np.asarray(values, dtype=float)
    error = values.std(axis=0) / math.sqrt(len(values))
    off = np.abs(values.mean(axis=0) - expected)
    assert np.all(off <= SIGMAS * error + 1e-15), (values.mean(axis=0), expected, error)


@shared
def assert_rate(count, expected):
    """A count of rare events against a Poisson law: two-sided exact tail above 1e-7."""
    lower = stats.poisson.cdf(count, expected)
    upper = stats.poisson.sf(count - 1, expected)
    assert min(lower, upper) > FALSE_ALARM / 2, (count, expected)


@shared
def log_chances(output_of, outputs):
    """ln P(output) for outputs that never fall as standard Laplace noise grows: exact.

    The mantissas that lead to an output are counted, octave by octave, by bisection.
    """
    last = (1 << 51) - 1

    def moved(sign, octave, mantissas):
        uniforms = np.ldexp((np.asarray(mantissas) + 0.5) * 2.0**-51 + 1.0, -1 - octave)
        return sign * output_of(-sign * portable.log(uniforms))

    def start(sign, octave, target):
        """The first mantissa with sign·output ≤ target: noise falls as they grow."""
        low, high = np.zeros(len(target), int), np.full(len(target), last + 1)
        while (low < high).any():
            middle = np.minimum((low + high) // 2, last)
            is_open, is_met = low < high, moved(sign, octave, middle) <= target
            high = np.where(is_open & is_met, middle, high)
            low = np.where(is_open & ~is_met, middle + 1, low)
        return low

    total = np.zeros(len(outputs), dtype=np.longdouble)
    for sign in (1.0, -1.0):
        for octave in range(76):
            most, least = moved(sign, octave, [0, last])
            targets = sign * outputs
            if targets.min() <= most and targets.max() >= least:
                count = start(sign, octave, targets - 1) - start(sign, octave, targets)
                total += np.ldexp(count.astype(np.longdouble), -52 - min(octave + 1, 75))
    return np.log(total)
