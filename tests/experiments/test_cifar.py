import math
from dataclasses import replace

import pytest

from jopeq import scheme
from jopeq.experiments.cifar import (
    AUTHORS_CODE,
    COLUMNS,
    GRID,
    PAPER,
    PUBLISHED,
    TOO_HIGH,
    as_in_the_code,
    authors_rate,
    schemes_at,
    table2_jobs,
    table2_rows,
)
from jopeq.experiments.stoppable import folder_name


def test_table2_is_the_papers_setting():
    jobs = list(table2_jobs(None))
    rows = sum(map(len, table2_rows().values()))
    assert len(jobs) == rows * (3 + 3 + 1)
    for job in jobs:
        config = job.config
        assert (config.clients, config.local_steps, config.batch_size) == (30, 100, 16)
        assert (config.momentum, config.validation) == (0.5, 10_000)
        assert config.rounds == (95 if config.lr == TOO_HIGH else 160)
        assert (config.data, config.model, config.centered) == ("cifar10", "cifar-cnn", True)
    papers = [job for job in jobs if job.config.lr == 0.1]
    assert len(papers) == 3 * rows
    assert jobs[: len(papers)] == papers  # other rates come last
    assert {job.config.lr for job in jobs} == {0.1, *GRID}
    assert {job.config.seed for job in jobs if job.config.lr == TOO_HIGH} == {0}


def test_every_job_has_a_folder_of_its_own():
    jobs = list(table2_jobs(None))
    assert len({folder_name(job) for job in jobs}) == len(jobs)


def test_jobs_are_what_the_table_shows():
    """A row of a column finds its runs by label and spec."""
    made = {(job.label, job.config.coder.spec) for job in table2_jobs(None, count=1)}
    for rate, epsilon in COLUMNS:
        for label, coder in schemes_at(rate, epsilon).items():
            assert (label, coder.spec) in made


def test_rates_are_honest_but_where_the_label_says_otherwise():
    for rate, epsilon in COLUMNS:
        for label, coder in schemes_at(rate, epsilon).items():
            if label not in ("none", "t", "t, published", "sdq, authors' points"):
                assert coder.bits_per_entry <= rate + 0.01, label
        authors = schemes_at(rate, epsilon)["sdq, authors' points"]
        assert authors._codebook.letters == (2**rate + 1) ** 2


def test_published_parameters_are_not_what_they_stand_for():
    for rate, epsilon in COLUMNS:
        rows = schemes_at(rate, epsilon)
        assert rows["t, published"].guarantee.epsilon > 1.5 * epsilon
        assert rows["t"].guarantee.epsilon == pytest.approx(epsilon, rel=1e-6)
        squared_scale, nu = PUBLISHED[epsilon]
        assert rows["t, published"].distortion == pytest.approx(squared_scale * nu / (nu - 2))


def test_what_the_code_does_otherwise():
    coder = as_in_the_code(schemes_at(1.0, 3.0)["jopeq, published"])
    assert coder._codebook.letters == 9
    assert coder._codebook.gamma == pytest.approx(1.5 * math.sqrt(1.4))
    assert (coder.per, coder.center, coder.nu) == ("tensor", True, 4.0)
    assert replace(coder, rate=1.0).noise.nu == 4.0
    with pytest.raises(ValueError, match="at a rate"):
        as_in_the_code(scheme("t", epsilon=3.0))


def test_the_papers_columns_are_complete():
    assert all(len(row) == len(COLUMNS) for row in PAPER.values())
    assert set(AUTHORS_CODE) <= set(PAPER)
    assert authors_rate(1.0) == pytest.approx(math.log2(9) / 2)
    assert authors_rate(2.0) == pytest.approx(math.log2(25) / 2)
