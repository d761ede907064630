import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.serverapp.strategy import FedAvg

import jopeq
from jopeq.flower import JoPEQMod, JoPEQStrategy
from jopeq.flower.downlink import Downlink, restore

EXACT = jopeq.scheme("none")
SIZE = 4000


def content(w, steps=0):
    arrays = {"w": Array(np.asarray(w, np.float32)), "n": Array(np.array(steps))}
    return RecordDict({"arrays": ArrayRecord(arrays)})


def message(node, w, steps=0):
    return Message(content=content(w, steps), message_type="train", dst_node_id=node)


def delivered(sent, state):
    """What the app of a client sees, and how many bytes of arrays came."""
    size = sum(len(a.data) for r in sent.content.array_records.values() for a in r.values())
    restore(sent.content, sent.content["jopeq"], state)
    assert list(sent.content.array_records) == ["arrays"]
    return sent.content["arrays"], size


def answer(sent):
    return Message(content=RecordDict(), reply_to=sent)


def sent_to_one(link, w, steps=0):
    (sent,) = link.send([message(1, w, steps)])
    link.heard([answer(sent)])
    return sent


def walk(rounds):
    noise = np.random.default_rng(0)
    steps = noise.normal(0, 0.01, (rounds, SIZE)).astype(np.float32)
    return np.cumsum(steps, axis=0, dtype=np.float32)


def test_errors_are_fed_back_and_do_not_add_up():
    link, state, gaps, sizes = Downlink(), RecordDict(), [], []
    for number, w in enumerate(walk(30)):
        arrays, size = delivered(sent_to_one(link, w, number), state)
        gaps.append(np.abs(arrays["w"].numpy() - w).max())
        sizes.append(size)
        assert arrays["n"].numpy() == number
    assert gaps[0] == 0.0
    assert max(gaps[20:]) < 1.5 * max(gaps[1:10])  # no drift
    assert max(gaps) < 0.05  # a few of the largest steps of one round
    assert max(sizes[1:]) < sizes[0] / 6  # 4 bits instead of 32


def test_who_was_away_catches_up_and_who_is_new_gets_all():
    link, states = Downlink(), {node: RecordDict() for node in (1, 2, 3)}
    taking_part = [(1, 2), (1,), (1,), (1, 2, 3)]
    for nodes, w in zip(taking_part, walk(4), strict=True):
        sent = link.send([message(node, w) for node in nodes])
        seen = {m.metadata.dst_node_id: delivered(m, states[m.metadata.dst_node_id]) for m in sent}
        link.heard([answer(m) for m in sent])
    models = {node: arrays["w"].numpy() for node, (arrays, _) in seen.items()}
    np.testing.assert_array_equal(models[1], models[2])
    np.testing.assert_array_equal(models[1], models[3])
    sizes = {node: size for node, (_, size) in seen.items()}
    assert sizes[1] < sizes[2] < sizes[3]


def test_a_lost_reply_does_not_confuse():
    link, state = Downlink(), RecordDict()
    for number, w in enumerate(walk(4)):
        (sent,) = link.send([message(1, w)])
        arrays, _ = delivered(sent, state)
        if number != 1:  # the server never learns that this one arrived
            link.heard([answer(sent)])
    np.testing.assert_array_equal(arrays["w"].numpy(), link._reference["w"])


def test_a_client_that_lost_its_state_says_so_and_gets_the_whole_model():
    link, state = Downlink(), RecordDict()
    for w in walk(2):
        sent = sent_to_one(link, w)
    with pytest.raises(jopeq.JoPEQError, match="holds version 0"):
        delivered(sent, state)
    link.heard([Message(Error(code=6, reason="lost"), reply_to=sent)])
    (sent,) = link.send([message(1, walk(3)[2])])
    arrays, size = delivered(sent, state)
    assert size > SIZE * 4
    np.testing.assert_array_equal(arrays["w"].numpy(), link._reference["w"])


def test_differences_that_no_one_will_get_are_forgotten():
    link, whole = Downlink(), 4 * SIZE
    for w in walk(40):
        sent_to_one(link, w)
        assert sum(map(len, link._payloads.values())) < whole
    assert len(link._payloads) > 5
    link._held[2] = 3  # one that was away for so long gets the model, which is shorter
    (sent,) = link.send([message(2, walk(40)[-1])])
    arrays, size = delivered(sent, RecordDict())
    assert size > whole
    np.testing.assert_array_equal(arrays["w"].numpy(), link._reference["w"])


def test_one_model_for_all_and_only_sdq():
    with pytest.raises(ValueError, match="the same model"):
        Downlink().send([message(1, np.ones(4)), message(2, np.zeros(4))])
    with pytest.raises(ValueError, match="scheme 'sdq', got 'none'"):
        Downlink(EXACT)
    assert Downlink().send([]) == []
    link, state = Downlink(), RecordDict()
    for w in (np.ones(SIZE), np.ones(7)):  # another model starts anew
        arrays, _ = delivered(sent_to_one(link, w), state)
    assert arrays["w"].shape == (7,)


def federation(flower, strategy, mod, config, change):
    apps = {node: flower.trainer(change, [mod]) for node in (1, 2, 3)}
    contexts = {node: flower.context(config, node=node) for node in apps}
    return flower.Federation(strategy, apps, contexts)


def test_in_a_federation_updates_are_added_to_the_exact_model(flower):
    step, down = 0.01, []

    def change(_, value):
        return value if value.dtype.kind == "i" else (value + step).astype(value.dtype)

    config = {"jopeq-scheme": "none", "jopeq-downlink": 4}
    strategy = JoPEQStrategy(FedAvg(), run_config=config)
    clients = federation(flower, strategy, JoPEQMod(), config, change)
    first = np.linspace(-1, 1, SIZE, dtype=np.float32)
    arrays = content(first, 3)["arrays"]
    for number in range(1, 5):
        arrays, metrics = clients.round(number, arrays)
        down.append(metrics["jopeq-bytes-down/1"])
        evaluated = clients.evaluate(number, arrays)
        assert evaluated["jopeq-bytes-down"] > metrics["jopeq-bytes-down"] + 3 * SIZE / 2
    np.testing.assert_allclose(arrays["w"].numpy(), first + 4 * step, atol=1e-4)
    assert arrays["n"].numpy() == 3
    assert down[0] > SIZE * 4
    assert max(down[1:]) < 300  # evaluation has brought the model already
    assert metrics["jopeq-clients"] == 3
    for context in clients.contexts.values():  # all lose their state: the model is sent anew
        context.state.clear()
    kept, metrics = clients.round(5, arrays)
    assert (kept, metrics["jopeq-failed"]) == (None, 3)
    arrays, metrics = clients.round(6, arrays)
    assert metrics["jopeq-bytes-down/1"] > SIZE * 4
    np.testing.assert_allclose(arrays["w"].numpy(), first + 5 * step, atol=1e-4)


SCHEMES = ['["mvu",{"epsilon":3.3,"rate":5.0}]', '["sdq",{"lattice":"E8","rate":2.5}]']
SCHEMES += ['["sdq",{"lattice":[[1.0,0.0],[0.0,1.1e-08]],"rate":2.0}]', '["sdq",{"rate":3.0}]']


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        *(({"model-scheme": spec}, "set jopeq-downlink") for spec in (*SCHEMES, "")),
        ({"model-version": 1 << 62}, "the difference to version 3 of the model"),
        ({"model-version": "x"}, "invalid literal"),
        *((name, "lacks the differences") for name in ("jopeq-differences", "jopeq-integers")),
        ("model-scheme", "set jopeq-downlink"),
    ],
)
def test_a_hostile_difference_is_refused_and_the_model_kept(change, problem, monkeypatch):
    link, state = Downlink(), RecordDict()
    first, second = walk(2)
    delivered(sent_to_one(link, first), state)
    sent = sent_to_one(link, second)
    if isinstance(change, str):
        del (sent.content if change in sent.content else sent.content["jopeq"])[change]
    else:
        sent.content["jopeq"].update(change)
    monkeypatch.setattr(jopeq.Scheme, "__post_init__", None)  # none is built
    with pytest.raises((jopeq.JoPEQError, ValueError), match=problem):
        restore(sent.content, sent.content["jopeq"], state)
    assert state["jopeq-model"]["version"] == 1
    np.testing.assert_array_equal(state["jopeq-model/arrays"]["w"].numpy(), walk(1)[0])


@pytest.mark.parametrize("given", ["code", "key", "neither"])
def test_a_client_reads_its_own_scheme_of_the_way_down(flower, caplog, given):
    coder = jopeq.scheme("sdq", rate=3.0)
    config = {"jopeq-scheme": "none"} | ({"jopeq-downlink": 3} if given == "key" else {})
    mod = JoPEQMod(downlink=coder if given == "code" else None)
    strategy = JoPEQStrategy(FedAvg(), EXACT, downlink=coder)
    clients = federation(flower, strategy, mod, config, lambda _, value: value)
    arrays = content(np.ones(SIZE))["arrays"]
    if given == "neither":
        with pytest.raises(jopeq.JoPEQError, match="the server's model cannot be used"):
            clients.round(1, arrays)
        assert re.search(r"sdq.*3\.0.*this client reads.*4\.0", caplog.text)
    else:
        after, _ = clients.round(1, arrays)
        np.testing.assert_array_equal(after["w"].numpy(), arrays["w"].numpy())


def test_integers_do_not_replace_what_the_differences_lead_to():
    link, states = Downlink(), [RecordDict(), RecordDict()]
    for w in walk(2):
        sent = sent_to_one(link, w)
        honest, hostile = (RecordDict(dict(sent.content.items())) for _ in states)
        if "jopeq-integers" in hostile:
            foreign = {"w": Array(np.full(SIZE, 7.0, np.float32))}
            hostile["jopeq-integers"] = ArrayRecord({**sent.content["jopeq-integers"], **foreign})
        for one, state in zip((honest, hostile), states, strict=True):
            restore(one, one["jopeq"], state)
    np.testing.assert_array_equal(hostile["arrays"]["w"].numpy(), honest["arrays"]["w"].numpy())
    assert not np.array_equal(honest["arrays"]["w"].numpy(), walk(1)[0])
