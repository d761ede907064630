from jopeq.experiments.mnist import (
    AUTHORS_CODE,
    MODELS,
    PAPER,
    fig2_jobs,
    fig3_jobs,
    schemes_at,
    table1_jobs,
)


def test_table1_is_the_papers_setting():
    jobs = list(table1_jobs(None, count=2))
    assert len(jobs) == 2 * len(MODELS) * len(schemes_at())
    for job in jobs:
        config = job.config
        assert (config.clients, config.local_steps, config.batch_size) == (10, 100, 16)
        assert (config.lr, config.momentum, config.rounds) == (0.1, 0.5, 95)
        assert (config.data, config.validation) == ("mnist", 10_000)
    assert {job.config.seed for job in jobs} == {0, 1}


def test_every_row_of_the_paper_is_there():
    assert list(PAPER) == list(AUTHORS_CODE) == list(schemes_at())[: len(PAPER)]


def test_figure_3_adds_mvu_to_the_linear_rows():
    labels = {job.label for job in fig3_jobs(None, count=1)}
    assert labels == {*schemes_at(), "mvu"}
    assert {job.config.model for job in fig3_jobs(None)} == {"linear"}


def test_figure_2_spans_rates_and_epsilons():
    jobs = list(fig2_jobs(None))
    assert len(jobs) == 3 * 8 * 4
    assert len({job.label for job in jobs}) == len(jobs)
    for job in jobs:
        assert job.config.coder.bits_per_entry <= 8
