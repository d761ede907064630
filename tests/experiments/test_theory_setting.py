import numpy as np

from jopeq.experiments.theory_setting import noise, seed

LABELS = ("dither", "dither: noise", "aggregation")
NUMBERS = ((), (0,), (1,), (-1,), (0, 0), (0, 1), (1, 0), (1 << 40,))


def test_seeds_differ_by_label_and_numbers():
    seeds = {seed(label, *numbers) for label in LABELS for numbers in NUMBERS}
    assert len(seeds) == len(LABELS) * len(NUMBERS)
    assert {len(each) for each in seeds} == {32}


def test_the_same_experiment_every_time():
    drawn = [noise("dither", 3).words64(lane=0, start=0, count=50) for _ in range(2)]
    assert np.array_equal(*drawn)
    other = noise("dither", 4).words64(lane=0, start=0, count=50)
    assert not np.array_equal(drawn[0], other)


def test_noise_is_not_drawn_from_the_seed_that_the_dither_has():
    assert noise("dither", 3).key_words.tobytes() != seed("dither", 3)
    assert noise("dither", 3).key_words.tobytes() == seed("dither: noise", 3)
