"""A fit whose noise is drawn at once."""

import pytest

from jopeq.models import State


@pytest.fixture(scope="session")
def fit_centrally():
    """As ``model.fit``, with Gaussian noise of the plan's error, or none without ``rng``."""

    def fit(model, table, rng):
        records, state = model.read(table), State()
        while state.step < model.method.messages:
            total = model.total(records, state.step, state.sent).to_numpy()
            if rng is not None:
                total += rng.normal(0.0, model.noise_of(state.step), len(total))
            state = model.advance(state, total / model.records)
        return model.finish(state)

    return fit
