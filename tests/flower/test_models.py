"""The models people bring: normalisation layers, layers of different scale, clips nobody knows."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq.flower import PayloadMod, PayloadStrategy
from jopeq.flower.arrays import from_content
from jopeq.flower.payload_mod import RECORD, offer
from jopeq.flower.refusals import read_failure

PRIVATE = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.05)
NODES = range(1, 6)
MODEL = {
    "conv.weight": np.zeros((40, 9), np.float32),
    "bn.running_mean": np.zeros(40, np.float32),
    "bn.running_var": np.ones(40, np.float32),
    "bn.num_batches_tracked": np.array(7),
}
TRUTH = {"conv.weight": 0.01, "bn.running_mean": 3.0, "bn.running_var": 0.02}


def train(name, value):
    """Statistics end where the data are, whatever the model was; weights move by a little."""
    if name.endswith("tracked"):
        return value + 5
    target = np.full_like(value, TRUTH[name])
    return value + target if name.startswith("conv") else target


def federation(flower, scheme, **options):
    strategy = PayloadStrategy(FedAvg(min_train_nodes=5, min_available_nodes=5), scheme)
    apps = {node: flower.trainer(train, [PayloadMod(scheme, **options)]) for node in NODES}
    return flower.Federation(strategy, apps)


def model():
    return ArrayRecord({name: Array(value) for name, value in MODEL.items()})


def answer(flower, chosen, context=None, **others):
    app = flower.trainer(train, [chosen])
    return app(flower.train_message(MODEL, **others), context or flower.context())


def test_statistics_reach_the_server_and_stay_positive(flower):
    """Five clients of ε = 4: the noise of a mean is 0.17 deviations, of a variance 19%."""
    arrays, clients = model(), federation(flower, PRIVATE)
    for number in range(1, 13):
        arrays, _ = clients.round(number, arrays)
        assert (arrays["bn.running_var"].numpy() > 0).all()
    variance, mean = (arrays[f"bn.running_{what}"].numpy() for what in ("var", "mean"))
    assert abs(np.log(variance / 0.02)).mean() < 0.5
    assert abs(mean - 3.0).mean() < 0.5 * np.sqrt(0.02)
    assert arrays["bn.num_batches_tracked"].numpy() == 7
    assert 0.05 < arrays["conv.weight"].numpy().mean() < 0.2  # twelve steps of 0.01


def test_the_log_tells_what_coding_did_and_the_reply_does_not(flower, caplog):
    tiny = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=1e-4)
    with caplog.at_level(logging.INFO, logger="flwr"):
        reply = answer(flower, PayloadMod(tiny))
    payload = from_content(reply.content)
    assert f"sent {len(payload)} bytes (2.0" in caplog.text
    assert "100.0% of the update clipped" in caplog.text
    assert "the clip 0.0001 cuts most of this update" in caplog.text
    assert list(reply.content) == ["arrays"]


def test_a_client_takes_the_clips_of_the_round_from_the_server(flower):
    layers = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip="layers")
    floats = [name for name in MODEL if name != "bn.num_batches_tracked"]
    clips = dict(zip(floats, (0.25, 2.0, 4.0), strict=True))
    record = offer(layers)
    record["clips"] = list(clips.values())
    reply = answer(flower, PayloadMod(layers), **{RECORD: record})
    payload = from_content(reply.content)
    layers.with_clips(clips).open(payload)
    with pytest.raises(jopeq.PayloadError, match="clips"):
        layers.open(payload)
    for wrong in ([0.25], [0.25, 2.0, -1.0], [0.25, 2.0, 1e31], [0.25, 2.0, float("nan")]):
        record["clips"] = wrong
        refused = answer(flower, PayloadMod(layers), **{RECORD: record})
        assert read_failure(refused).code == "model"
    del record["clips"]
    layers.open(from_content(answer(flower, PayloadMod(layers), **{RECORD: record}).content))
