import numpy as np
import pytest

import jopeq
from jopeq.experiments.concept_numbers import (
    cell_picture,
    pipeline_steps,
    server_view,
    surface,
)


def test_cells_are_those_of_the_codebook():
    shown = cell_picture()
    apart = np.linalg.norm(shown.codewords[1:] - shown.codewords[0], axis=1)
    lattice = jopeq.Lattice("A2", step=float(apart.min()))
    for corners, point in zip(shown.cells, shown.codewords, strict=True):
        inside = 0.999 * (corners - point)
        assert not lattice.nearest(inside).any()
        assert lattice.nearest(1.001 * (corners - point)).any(axis=1).all()


def test_dithered_values_fill_the_cell_around_the_sample_and_noise_goes_beyond():
    shown = cell_picture()
    reach = np.linalg.norm(shown.cells[0][0] - shown.codewords[0])  # to a corner
    assert np.linalg.norm(shown.without_noise - shown.sample, axis=1).max() <= reach * (1 + 1e-6)
    assert np.linalg.norm(shown.with_noise - shown.sample, axis=1).max() > 2 * reach
    way = shown.dithered
    assert np.allclose(way.point - (way.moved - shown.sample), way.decoded)


def test_what_is_drawn_of_the_dither_can_be_told_apart():
    shown = cell_picture()
    way = shown.dithered
    drawn = [shown.sample, way.moved, way.point, way.decoded]
    radius = np.linalg.norm(shown.cells[0][0] - shown.codewords[0])
    for index, one in enumerate(drawn):
        for other in drawn[:index]:
            assert np.linalg.norm(one - other) > 0.25 * radius
    assert np.linalg.norm(way.point - shown.plain.point) > radius  # another cell


def test_the_steps_end_in_what_the_scheme_decodes():
    steps, _ = pipeline_steps()
    assert [step.side for step in steps].count("server") == 3
    assert sum("private" in step.source for step in steps) == 1
    assert sum("shared" in step.source for step in steps) == 2
    assert set(steps[4].numbers) <= {"0", "1", "2", "3"}


def test_steps_that_are_not_the_payloads_are_refused(monkeypatch):
    from jopeq.schemes.jopeq import JoPEQ

    honest = JoPEQ._dither
    monkeypatch.setattr(JoPEQ, "_dither", lambda *given: honest(*given) + 0.01)
    monkeypatch.setattr(JoPEQ, "decode", lambda self, payload: np.zeros(4))
    with pytest.raises(AssertionError, match="do not make the payload"):
        pipeline_steps()


def test_the_server_sees_probabilities_and_the_titles_their_epsilon():
    quiet, paper, ours = server_view()
    for view in (quiet, paper, ours):
        assert np.allclose(view.chances.sum(axis=1), 1.0)
    assert "no ε" in quiet.title
    assert "8.05" in paper.title
    seen = np.log((paper.chances.max(axis=0) / paper.chances.min(axis=0)).max())
    assert seen == pytest.approx(8.042, abs=1e-3)  # the dither that is drawn is a worst one
    assert quiet.chances.min() == 0.0
    ratio = ours.chances.max(axis=0) / ours.chances.min(axis=0)
    assert "4.00" in ours.title
    assert np.log(ratio.max()) == pytest.approx(4.0, abs=1e-6)


def test_the_surface_is_the_schemes_error():
    shown = surface(epsilons=(1.0, 4.0), rates=(1.0, 2.0))
    assert shown.errors["response"][1, 1] == jopeq.scheme("response", epsilon=4, rate=2).distortion
    assert set(shown.errors) == {"laplace+sdq", "jopeq", "response"}
