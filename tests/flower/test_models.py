"""The models people bring: normalisation layers, layers of different scale, clips nobody knows."""

import logging

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq.flower import JoPEQMod, JoPEQStrategy, RoundFailedError
from jopeq.flower.payload import RECORD, from_content, to_record
from jopeq.flower.refusals import read_failure
from jopeq.flower.settings import offer
from jopeq.wire.entries import Entries
from jopeq.wire.payload import open_payload

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
    strategy = JoPEQStrategy(FedAvg(min_train_nodes=5, min_available_nodes=5), scheme)
    apps = {node: flower.trainer(train, [JoPEQMod(scheme, **options)]) for node in NODES}
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


def local(clip=0.05):
    return jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=clip, statistics="local")


def test_local_statistics_stay_and_come_back(flower):
    scheme, path = local(), flower.ledger(1e6)
    chosen, context = JoPEQMod(scheme, budget=1e6, ledger=path), flower.context()
    reply = answer(flower, chosen, context)
    assert open_payload(from_content(reply.content))[0].names == ("conv.weight",)
    assert jopeq.Ledger.load(path).spent.epsilon == 360 * scheme.guarantee.epsilon
    seen = {}
    app = flower.trainer(lambda name, value: seen.setdefault(name, value), [chosen])
    for kind in ("train", "evaluate"):
        seen.clear()
        app(flower.train_message(MODEL, kind=kind), context)
        assert (seen["bn.running_var"] == np.float32(0.02)).all()
        assert not seen["conv.weight"].any()  # the server's


def test_local_statistics_that_diverged_do_not_come_back(flower):
    chosen, context, seen = JoPEQMod(local()), flower.context(), {}
    for variance in (0.5, np.nan, np.inf):

        def train(name, value, variance=variance):
            seen[name] = value
            return np.full_like(value, variance) if name == "bn.running_var" else value

        flower.trainer(train, [chosen])(flower.train_message(MODEL), context)
    assert (seen["bn.running_var"] == 0.5).all()


@pytest.mark.parametrize("clip", [0.05, "layers"])
def test_no_client_moves_statistics_that_are_local(flower, clip):
    scheme = local(clip)
    strategy = JoPEQStrategy(FedAvg(min_train_nodes=1, min_available_nodes=1), scheme)
    app = flower.trainer(lambda _, value: value, [JoPEQMod(scheme)])

    def spoil(_, reply):
        entries = Entries.of_state({"bn.running_var": np.ones(40, np.float32)})
        payload, _ = scheme.codec.encode(entries, scheme.codec.limits(None))
        reply.content["arrays"] = to_record(payload)
        return reply

    with pytest.raises(RoundFailedError, match="running_var"):
        flower.Federation(strategy, {1: app}).round(1, model(), spoil)


def test_the_log_tells_what_coding_did_and_the_reply_does_not(flower, caplog):
    tiny = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=1e-4)
    with caplog.at_level(logging.INFO, logger="flwr"):
        reply = answer(flower, JoPEQMod(tiny))
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
    reply = answer(flower, JoPEQMod(layers), **{RECORD: record})
    payload = from_content(reply.content)
    layers.with_clips(clips).open(payload)
    with pytest.raises(jopeq.PayloadError, match="clips"):
        layers.open(payload)
    for wrong in ([0.25], [0.25, 2.0, -1.0], [0.25, 2.0, 1e31], [0.25, 2.0, float("nan")]):
        record["clips"] = wrong
        refused = answer(flower, JoPEQMod(layers), **{RECORD: record})
        assert read_failure(refused).code == "model"
    del record["clips"]
    layers.open(from_content(answer(flower, JoPEQMod(layers), **{RECORD: record}).content))
