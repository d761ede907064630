"""A server that chooses the model so that training fails exactly when a private pixel is lit.

One round asks for one pixel. Enough rounds would read an image, whatever ε says, if anything
but the noised letters of a reply told whether training went well.
"""

import asyncio
import math
import warnings

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import jopeq
from jopeq.flower import PayloadMod, SumMod
from jopeq.flower.arrays import from_content
from jopeq.flower.payload_mod import offer
from jopeq.flower.refusals import read_failure
from jopeq.wire.payload import open_payload

PIXELS = 16
IMAGE = (np.random.default_rng(0).random(PIXELS) < 0.5).astype(np.float32)
WHOLE = jopeq.Sphere(epsilon=0.5, clip=1.0, draws=1 << 12)
ENTRIES = jopeq.scheme("response", epsilon=0.5, rate=2.0, clip=0.1)


def probe(pixel):
    """Weights whose score overflows if that pixel is lit and is 0 if not."""
    weights = np.zeros(PIXELS, np.float32)
    weights[pixel] = np.finfo(np.float32).max
    return {"w": weights, "b": np.zeros(3, np.float32)}


def trained(msg):
    """A step of linear regression on the image: NaN and inf where the probe found its pixel."""
    w, b = (msg.content["arrays"][name].numpy() for name in ("w", "b"))
    with np.errstate(all="ignore"):
        score = np.float32(4.0) * (w * IMAGE).sum(dtype=np.float32)
        return {"w": w - np.float32(0.01) * score * IMAGE, "b": b + np.float32(0.01)}


def content(arrays):
    record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    metrics = MetricRecord({"num-examples": 10, "loss": float(np.abs(arrays["w"]).max())})
    return RecordDict({"arrays": record, "metrics": metrics})


def went_well(arrays):
    return bool(np.isfinite(arrays["w"]).all())


def raises(content):
    raise FloatingPointError(f"training diverged: {content}")


EXITS = (SystemExit, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)


def exits(kind):
    def leave(_):
        raise kind

    return leave


def with_array(**arrays):
    """The reply with these arrays in place of its own; None leaves an array out."""

    def change(content):
        record = content["arrays"]
        for name, array in arrays.items():
            if array is None:
                del record[name]
            else:
                record[name] = array
        return content

    return change


def with_more(content):
    content["arrays"]["diverged"] = Array(np.ones(2))
    content["diverged"] = ConfigRecord({"jopeq": 1})
    content["metrics"]["steps"] = [1, 2, 3]
    return content


def with_record(**records):
    return lambda content: RecordDict({**content, **{k: f(content) for k, f in records.items()}})


# What an app answers where the probe found its pixel; elsewhere it answers what it trained
FAILURES = {
    "sends what it has": lambda content: content,
    "raises": raises,
    **{f"exits by {kind.__name__}": exits(kind) for kind in EXITS},
    "answers with an error": lambda _: Error(code=3, reason="training diverged"),
    "answers nothing": lambda _: None,
    "sends no arrays": lambda _: RecordDict(),
    "leaves an array out": with_array(w=None),
    "sends another shape": with_array(w=Array(np.zeros(7, np.float32))),
    "sends another kind": with_array(w=Array(np.zeros(PIXELS, np.complex64))),
    "sends no array": with_array(w=Array("float32", (PIXELS,), "numpy.ndarray", b"?")),
    "sends more": with_more,
    "sends in another order": with_record(
        arrays=lambda content: ArrayRecord(dict(reversed(content["arrays"].items())))
    ),
    "sends our own record": with_record(jopeq=lambda _: ConfigRecord({"clip-bit": 7})),
}


def app(failure):
    def answer(msg, arrays):
        result = content(arrays)
        if not went_well(arrays):
            result = FAILURES[failure](result)
        return None if result is None else Message(result, reply_to=msg)

    return answer


def layout(reply):
    """All that a server sees of a reply but the noised letters."""
    if reply.has_error():
        return "error", reply.error.code, reply.error.reason
    payload = from_content(reply.content)
    is_report = len(payload) < 8
    header, body = (None, payload) if is_report else open_payload(payload)
    return (
        reply.metadata.message_type,
        [(key, type(record).__name__, list(record)) for key, record in reply.content.items()],
        [
            (array.dtype, array.shape, array.stype)
            for record in reply.content.array_records.values()
            for array in record.values()
        ],
        dict(reply.content.get("metrics", {})),
        (len(payload), len(body)),
        header and header._replace(seed=b""),
    )


def offered(scheme):
    """The server's record; a ``Sphere`` has the terms of a round."""
    if scheme is not WHOLE:
        return offer(scheme)
    return offer(scheme, scheme.round(dimension=PIXELS + 3, seed=bytes(32)), 0)


def attacked(flower, answer, mod, scheme, probe=probe, context=None):
    """The layout of the reply to each probe."""
    client = ClientApp(mods=[mod])
    client.train()(lambda msg, _: answer(msg, trained(msg)))
    messages = [
        flower.train_message(probe(pixel), jopeq=offered(scheme)) for pixel in range(PIXELS)
    ]
    return [layout(client(message, context or flower.context())) for message in messages]


def test_the_probe_finds_its_pixel(flower):
    found = [not went_well(trained(flower.train_message(probe(pixel)))) for pixel in range(PIXELS)]
    np.testing.assert_array_equal(found, IMAGE == 1)


CASES = [(failure, WHOLE) for failure in FAILURES]
CASES += [(one, ENTRIES) for one in ("sends what it has", "raises")]


@pytest.mark.parametrize(("failure", "scheme"), CASES)
def test_no_reply_tells_a_pixel_and_every_reply_is_charged(flower, failure, scheme):
    cost = scheme.guarantee.epsilon * (1 if scheme.guarantee.unit == "update" else PIXELS + 3)
    budget = (PIXELS + 0.5) * cost
    path = flower.ledger(budget)
    mod = PayloadMod(scheme, budget=budget, ledger=path)
    seen = attacked(flower, app(failure), mod, scheme)
    assert all(one == seen[0] for one in seen)
    assert seen[0][0] == "train"
    ledger = jopeq.Ledger.load(path)
    assert (ledger.rounds, ledger.spent.epsilon) == (PIXELS, pytest.approx(PIXELS * cost))

    client = ClientApp(mods=[mod])
    client.train()(lambda *_: pytest.fail("trained although the budget is spent"))
    for pixel in (int(IMAGE.argmin()), int(IMAGE.argmax())):
        message = flower.train_message(probe(pixel), jopeq=offered(scheme))
        assert read_failure(client(message, flower.context())).code == "budget-spent"


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("metrics", [{"num-examples": 10}, ["num-examples"]])
def test_a_metric_that_stays_the_same_does_not_tell_either(flower, failure, metrics):
    """A declared one in any run; one that is only named as long as its first round goes well."""
    assert not IMAGE[0]
    context = None if isinstance(metrics, dict) else flower.context()  # None: each a run of its own
    mod = PayloadMod(WHOLE, metrics=metrics)
    seen = attacked(flower, app(failure), mod, WHOLE, context=context)
    assert seen[0][3] == {"num-examples": 10}
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("kind", EXITS)
@pytest.mark.parametrize("message_type", ["evaluate", "query"])
def test_an_exit_in_another_message_is_answered_as_any_error_is(flower, kind, message_type):
    summed = jopeq.ClientSum(epsilon=4.0, clip=1.0, clients=5, threshold=4)
    for mod in (
        PayloadMod(WHOLE, metrics=["loss"]),
        PayloadMod(WHOLE),
        SumMod(summed, unsigned=True),
    ):
        message = flower.train_message(probe(0), kind=message_type)
        reply = mod(message, flower.context(), lambda *_: exits(kind)(None))
        told = [dict(record) for record in reply.content.values()]
        assert told == ([{"loss": 1}] if told else [])
        assert list(reply.content) == ["metrics"][: len(told)]


def faint_probe(pixel):
    """A weight of 1e-310, which an app of single precision reads as 0.

    A dark pixel then has an update of −1e-310, a lit one that of training.
    """
    weights = np.zeros(PIXELS)
    weights[pixel] = 1e-310
    return {"w": weights, "b": np.zeros(3, np.float32)}


def rounds_to_single(msg, arrays):
    with np.errstate(under="ignore"):
        single = arrays["w"].astype(np.float32) + np.float32(0.01) * IMAGE
    return Message(content({"w": single, "b": arrays["b"]}), reply_to=msg)


@pytest.mark.parametrize(
    "scheme",
    [
        WHOLE,
        ENTRIES,
        jopeq.scheme("jopeq", epsilon=0.5, rate=3.0, clip=0.1),
        jopeq.scheme("laplace", epsilon=0.5, clip=0.1),
    ],
)
@pytest.mark.parametrize("strict", ["seterr", "warnings"])
def test_what_an_app_lets_numpy_raise_does_not_tell_a_pixel(flower, caplog, strict, scheme):
    """Nor may a fallback hide it: no encoding fails."""
    mod = PayloadMod(scheme)
    errors = np.errstate(all="raise" if strict == "seterr" else "warn")
    with errors, warnings.catch_warnings(action="error"):
        seen = attacked(flower, rounds_to_single, mod, scheme, faint_probe)
    assert all(one == seen[0] for one in seen)
    assert seen[0][0] == "train"
    assert "could not be encoded" not in caplog.text


def test_norm_scaling_answers_too(flower):
    """Its scale travels in the clear, so it tells more; that a reply comes must not."""
    scheme = jopeq.scheme("laplace+sdq", epsilon=4.0, rate=3.0)
    client = ClientApp(mods=[PayloadMod(scheme)])
    client.train()(lambda msg, _: app("raises")(msg, trained(msg)))
    for pixel in range(PIXELS):
        reply = client(flower.train_message(probe(pixel)), flower.context())
        assert math.isfinite(open_payload(from_content(reply.content))[0].scales[0].unit)
