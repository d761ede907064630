"""Two real processes on the loopback run every case once; the tests read what they saw.

This file is also the program of those processes (see ``main``). Noise and dither have fixed seeds
there, so a statistical verdict that holds once holds always.
"""

import gc
import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import jopeq
import jopeq.torch
from jopeq.random import streams as randomness
from jopeq.torch import ddp

WORLD = 2
HANG = 600  # seconds that only a hang reaches
SDQ4 = jopeq.scheme("sdq", rate=4.0)
SDQ1 = jopeq.scheme("sdq", rate=1.0)
RESPONSE = jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=1.0)
ENTROPY = jopeq.scheme("sdq", step=0.5, coding="entropy")
SCHEMES = {
    "none": jopeq.scheme("none"),
    "sdq": SDQ4,
    "sdq, entropy": ENTROPY,
    "sdq, per tensor": jopeq.scheme("sdq", rate=2.0, per="tensor"),
    "sdq, rotated": jopeq.scheme("sdq", rate=2.0, rotate=True),
    "sdq, A2": jopeq.scheme("sdq", rate=2.0, lattice="A2"),
    "laplace": jopeq.scheme("laplace", epsilon=4.0, clip=0.05),
    "staircase": jopeq.scheme("staircase", epsilon=4.0, clip=0.05),
    "response": jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.05),
    "sphere": jopeq.Sphere(epsilon=8.0, clip=9.0, draws=1 << 12),
}
STEPS = 20
PASSES, COPIES = 10, 100
BAD = {"nan": math.nan, "inf": math.inf, "large": 1e300, "faint": 1e-310}
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}


class Given(nn.Module):
    """A model whose gradient is what its input says."""

    def __init__(self, *sizes, dtype=torch.float32):
        super().__init__()
        self.weights = nn.ParameterList([torch.zeros(size, dtype=dtype) for size in sizes])

    def forward(self, gradient):
        flat = torch.cat([weight.reshape(-1) for weight in self.weights])
        return (flat * gradient).sum()

    @property
    def gradient(self):
        return torch.cat([weight.grad.reshape(-1) for weight in self.weights])


def given(scheme, gradient, *sizes, hook=None, **options):
    """(hook, averaged gradient) of one backward pass."""
    model = DistributedDataParallel(Given(*(sizes or (len(gradient),)), dtype=gradient.dtype))
    hook = (hook or jopeq.torch.ddp_hook(scheme, **options)).attach(model)
    model(gradient).backward()
    return hook, model.module.gradient


def gradient_of(rank, entries=60):
    return torch.rand(entries, generator=torch.Generator().manual_seed(rank)) * 2 - 1


def digest(*tensors):
    content = b"".join(tensor.detach().double().numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(content).hexdigest()


# What the two processes run


def train(rank, scheme, steps=STEPS):
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(512, 20, generator=generator)
    labels = (inputs @ torch.randn(20, 3, generator=generator)).argmax(1)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 3))
    model = DistributedDataParallel(network)
    hook = None if scheme is None else jopeq.torch.ddp_hook(scheme).attach(model)
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=1.0), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[rank::WORLD]), labels[rank::WORLD])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        last = nn.functional.cross_entropy(network(inputs), labels).item()
    found = {"first": losses[0], "last": last, "digest": digest(*network.parameters())}
    if hook is not None:
        found |= {"bits": hook.traffic.bits_per_entry, "payloads": hook.traffic.payloads}
    return found


def case_training(rank):
    return {name: train(rank, scheme) for name, scheme in {"plain": None, **SCHEMES}.items()}


def case_unbiased(rank):
    """Many copies of a gradient, each with noise of its own."""
    seen = [given(RESPONSE, gradient_of(rank).repeat(COPIES))[1] for _ in range(PASSES)]
    return torch.cat(seen).reshape(PASSES * COPIES, -1).tolist()


def case_feedback(rank):
    """Each rank pulls to its own target: at their mean no rank's own gradient is zero."""
    targets = [torch.randn(300, generator=torch.Generator().manual_seed(r)) for r in range(WORLD)]
    found = {}
    for name, has_memory in (("forgets", False), ("remembers", True)):
        model = DistributedDataParallel(Given(100, 200))
        hook = jopeq.torch.ddp_hook(SDQ1, error_feedback=has_memory).attach(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        errors = []
        for _ in range(100):
            optimizer.zero_grad()
            flat = torch.cat([weight.detach() for weight in model.module.weights])
            errors.append((flat - sum(targets) / WORLD).square().mean().item())
            model(flat - targets[rank]).backward()
            optimizer.step()
        memory = float(np.linalg.norm(np.concatenate([*hook._residuals.values(), [0.0]])))
        error = float(np.mean(errors[-20:]))
        found[name] = {"error": error, "memory": memory, "digest": digest(*model.parameters())}
    return found


def case_buckets(rank):
    """Above a megabyte DDP makes several buckets, and regroups them after the first pass."""
    sizes = (300_000, 7, 300_000, 1, 50_001)
    model = DistributedDataParallel(Given(*sizes), bucket_cap_mb=1)
    hook = jopeq.torch.ddp_hook(SDQ4, error_feedback=True).attach(model)
    gradient = gradient_of(rank, sum(sizes))
    mean = sum(gradient_of(r, sum(sizes)) for r in range(WORLD)) / WORLD
    due, errors = torch.zeros(sum(sizes)), []
    for _ in range(3):
        model.zero_grad()
        model(gradient).backward()
        due += mean - model.module.gradient
        errors.append((model.module.gradient - mean).square().mean().item())
    lost = np.concatenate([hook._residuals[weight] for weight in model.module.weights])
    all_lost = torch.from_numpy(lost)
    dist.all_reduce(all_lost)
    return {
        "errors": errors,
        "digest": digest(model.module.gradient),
        "buckets": len(hook.guarantees),
        "unaccounted": (due - all_lost / WORLD).abs().max().item(),
        "payloads": hook.traffic.payloads,
    }


def failure(action):
    try:
        action()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def case_failures(rank):
    found = {}
    for name, value in BAD.items():
        gradient = torch.ones(5, dtype=torch.float64)
        gradient[3] = value if rank == 1 else 1.0
        hook = jopeq.torch.ddp_hook(SDQ4)
        found[name] = failure(lambda g=gradient, h=hook: given(None, g, hook=h))
        found[name] += [hook.traffic.payloads, len(hook.guarantees)]
        for scheme in (RESPONSE, jopeq.scheme("laplace", epsilon=4.0)):
            with np.errstate(all="raise"):  # whatever a training script sets
                hook, average = given(scheme, gradient)
            kept = [hook.traffic.payloads, hook.spent.epsilon, digest(average)]
            found[f"{name}, {scheme.name}"] = [bool(average.isfinite().all()), *kept]

    def run_out(*_):
        raise MemoryError("no room")

    original = ddp.encode_state
    ddp.encode_state = run_out if rank == 1 else original
    found["memory"] = failure(lambda: given(SDQ4, torch.ones(5)))
    ddp.encode_state = original
    other = jopeq.scheme("sdq", rate=2.0 + rank)
    found["schemes differ"] = failure(lambda: given(other, torch.ones(5)))
    halves = torch.full((5,), 6e4, dtype=torch.float16)
    wide = jopeq.scheme("sdq", rate=1.0, clip=1e5)
    found["overflow"] = failure(lambda: given(wide, halves.repeat(20)))
    gc.collect()
    found["digest"] = train(rank, SDQ4, steps=3)["digest"]  # afterwards
    return found


def case_small(rank):
    zeros = {name: given(scheme, torch.zeros(11))[1] for name, scheme in SCHEMES.items()}
    ones = [given(scheme, torch.tensor([0.5]))[1] for scheme in SCHEMES.values()]
    halves = {
        name: given(SDQ4, gradient_of(rank).to(dtype), 20, 40)[1] for name, dtype in HALVES.items()
    }
    feedback = given(SDQ1, gradient_of(rank).half(), error_feedback=True)[1]
    return {
        "zeros": {name: average.tolist() for name, average in zeros.items()},
        "halves": {name: [str(one.dtype), one.tolist()] for name, one in halves.items()},
        "feedback in half": str(feedback.dtype),
        "digest": digest(*zeros.values(), *ones, *halves.values(), feedback),
    }


def case_traffic(rank):
    # a gradient of few values on one rank, of many on the other: entropies differ
    gradient = gradient_of(0, 1000) if rank else torch.eye(1000)[0]
    schemes = {"fixed": SDQ4, "entropy": ENTROPY, "response": RESPONSE}
    hooks = {name: given(scheme, gradient)[0] for name, scheme in schemes.items()}
    return {n: {**vars(h.traffic), "epsilon": h.guarantees[0].epsilon} for n, h in hooks.items()}


def case_groups(rank):
    """A second group of the same ranks carries the payloads; the ranks of another are refused."""
    both = dist.new_group([0, 1])
    alone = [dist.new_group([one]) for one in range(WORLD)][rank]
    hook, average = given(SDQ4, gradient_of(rank), process_group=both)
    model = DistributedDataParallel(Given(3))
    refused = failure(lambda: jopeq.torch.ddp_hook(SDQ4, process_group=alone).attach(model))
    inside = DistributedDataParallel(Given(60), process_group=alone)
    jopeq.torch.ddp_hook(SCHEMES["none"]).attach(inside)  # by default the model's own group
    inside(gradient_of(rank)).backward()
    own = torch.equal(inside.module.gradient, gradient_of(rank))
    outsider = [dist.new_group([1]), dist.new_group([0])][rank]
    return {
        "digest": digest(average),
        "is_given": hook.process_group is both,
        "refused": refused,
        "own": own,
        "outsider": failure(lambda: jopeq.torch.ddp_hook(SDQ4, process_group=outsider)),
    }


CASES = [value for name, value in list(globals().items()) if name.startswith("case_")]


def repeatable(label):
    """Stands in for ``os``: a fixed source of seeds and noise keys."""
    count = itertools.count(1)
    drawn = lambda size: hashlib.shake_256(f"{label} {next(count)}".encode()).digest(size)  # noqa: E731
    return SimpleNamespace(urandom=drawn, getpid=os.getpid)


def main(rank, folder):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), WORLD)
    limit = timedelta(seconds=HANG)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=limit)
    found = {}
    for case in CASES:
        randomness.os = repeatable(f"{case.__name__} {rank}")
        found[case.__name__.removeprefix("case_")] = case(rank)
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(found))


# What the tests read


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """All that rank 0 and rank 1 found, case by case."""
    folder = tmp_path_factory.mktemp("ddp")
    command = [sys.executable, "-P", "-W", "error", __file__]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    workers = [
        subprocess.Popen([*command, str(rank), str(folder)], **streams) for rank in range(WORLD)
    ]
    try:
        said = [worker.communicate(timeout=HANG)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0] * WORLD, "\n".join(said)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.fixture
def alone(tmp_path):
    """A world of one rank, this process."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    gc.collect()
    dist.destroy_process_group()


def mean_gradient(entries=60):
    return sum(gradient_of(rank, entries) for rank in range(WORLD)) / WORLD


def both(ranks, case):
    """What the two ranks found; their averages were the same to the bit."""
    one, two = (rank[case] for rank in ranks)
    places = [one, *(part for part in one.values() if isinstance(part, dict))]
    twins = [two, *(part for part in two.values() if isinstance(part, dict))]
    digests = [[part.get("digest") for part in parts] for parts in (places, twins)]
    assert digests[0] == digests[1]
    assert any(digests[0])
    return one, two


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_learns_and_replicas_stay_the_same_to_the_bit(ranks, name):
    training, _ = both(ranks, "training")
    plain, found = training["plain"], training[name]
    assert found["payloads"] == STEPS
    if name != "sphere":
        assert found["last"] < found["first"] / 3
    if name in ("none", "sdq"):  # these learn like uncompressed training
        assert found["last"] == pytest.approx(plain["last"], rel=1e-4 if name == "none" else 0.1)
    if name == "sdq":
        assert 4.0 < found["bits"] < 4.5


def test_response_is_unbiased(ranks, assert_mean):
    assert ranks[0]["unbiased"] == ranks[1]["unbiased"]
    assert_mean(ranks[0]["unbiased"], mean_gradient().numpy())


def test_error_feedback_improves_one_bit_and_its_memory_stays_bounded(ranks):
    """ω = 3 for one bit at spread 3: without the factor a the memory would grow 3^½-fold a step."""
    one, two = both(ranks, "feedback")
    assert one["remembers"]["error"] < 0.5 * one["forgets"]["error"]
    assert one["forgets"]["memory"] == 0.0
    for rank in (one, two):
        assert 0.0 < rank["remembers"]["memory"] < 10 * math.sqrt(300)
    assert one["remembers"]["memory"] != two["remembers"]["memory"]


def test_error_memory_follows_its_parameter_into_another_bucket(ranks):
    """All that three passes owe is in the memories of the ranks."""
    one, _ = both(ranks, "buckets")
    assert one["buckets"] == 2
    assert one["payloads"] == 1 + 2 + 2  # regrouped after the first pass
    # gradients are uniform in [−1, 1], one unit is √3, a cell 2/15 of it; two ranks are averaged
    assert one["errors"][0] == pytest.approx(3 * (2 / 15) ** 2 / 12 / WORLD, rel=0.05)
    assert one["unaccounted"] < 1e-5


@pytest.mark.parametrize("name", BAD)
def test_a_bad_gradient_on_one_rank_raises_on_all_or_is_sent_like_any_other(ranks, name):
    """No rank can tell from a private answer that a gradient was not finite, or underflowed."""
    one, two = (rank["failures"] for rank in ranks)
    if name != "faint":
        for found in (one, two):
            kind, message, payloads, charged = found[name]
            assert kind == "UpdateError"
            assert "gradient bucket 0 (5 entries) could not be encoded on rank 1" in message
            assert (payloads, charged) == (0, 1)  # on all ranks, before any of them looked
        assert "at position (3,)" in two[name][1]
        assert "position" not in one[name][1]
    for scheme in ("response", "laplace"):
        assert one[f"{name}, {scheme}"] == two[f"{name}, {scheme}"]
        is_finite, payloads, epsilon, _ = one[f"{name}, {scheme}"]
        assert (is_finite, payloads) == (True, 1)
        assert 0.0 < epsilon <= 20.0


def test_any_other_trouble_on_one_rank_raises_on_all(ranks):
    for rank, found in enumerate(both(ranks, "failures")):
        assert found["memory"][0] == "UpdateError"
        kind, message = found["schemes differ"]
        assert kind == "PayloadError"
        assert f"of rank {1 - rank}: the payload was made by scheme" in message
        kind, message = found["overflow"]
        assert kind == "UpdateError"
        assert "too large for torch.float16" in message
    assert "here: no room" in ranks[1]["failures"]["memory"][1]


def test_zero_gradients_single_entries_and_other_float_types(ranks):
    one, _ = both(ranks, "small")
    for name, zeros in one["zeros"].items():
        assert SCHEMES[name].clip is not None or zeros == [0.0] * 11
    for name, (dtype, average) in one["halves"].items():
        assert dtype == f"torch.{name}"
        cell = 2 / 15 * 3 * 1.0  # spread 3 times a norm below 1 per entry
        assert np.abs(np.array(average) - mean_gradient().numpy()).max() < cell / 2 + 0.01
    assert one["feedback in half"] == "torch.float16"


def test_traffic_is_what_was_sent(ranks):
    """Payloads of entropy coding are padded to the longest; ε of a bucket is of all its entries."""
    traffic = [rank["traffic"] for rank in ranks]
    length = len(SDQ4.encode(np.ones(1000)))
    sent = {"payloads": 1, "entries": 1000, "payload_bytes": length, "bytes_sent": length + 8}
    for found in traffic:
        assert found["fixed"] == {**sent, "epsilon": math.inf}
        assert found["response"]["epsilon"] == RESPONSE.guarantee.for_update(1000).epsilon
    lengths = [found["entropy"]["payload_bytes"] for found in traffic]
    assert lengths[0] < lengths[1]
    assert [found["entropy"]["bytes_sent"] for found in traffic] == [max(lengths) + 8] * 2


def test_the_group_of_the_payloads(ranks):
    for rank, found in enumerate(both(ranks, "groups")):
        assert found["is_given"]
        assert found["own"]
        assert f"process_group holds the ranks [{rank}]" in found["refused"][1]
        assert "process_group must be a group that this rank is in" in found["outsider"][1]


@pytest.mark.usefixtures("alone")
def test_a_world_of_one_is_coded_and_charged_too():
    model = DistributedDataParallel(Given(40))
    hook = jopeq.torch.ddp_hook(RESPONSE).attach(model)
    assert hook.spent.epsilon == hook.traffic.bits_per_entry == 0.0
    for _ in range(3):
        model.zero_grad()
        model(gradient_of(0, 40)).backward()
    assert not torch.equal(model.module.gradient, gradient_of(0, 40))
    assert hook.traffic.payloads == 3
    assert hook.guarantees[0].unit == "update"
    assert hook.spent.epsilon == pytest.approx(3 * hook.guarantees[0].epsilon)
    assert hook.spent.unit == "client"
    assert hook.spent.mechanisms.epsilon_at(1e-5)[0] < hook.spent.epsilon
    scheme = SCHEMES["sphere"]
    hook, _ = given(scheme, gradient_of(0))
    assert hook.guarantees[0] == scheme.guarantee_for(60)
    assert hook.spent.epsilon == scheme.guarantee_for(60).epsilon  # once a bucket


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("rank", range(3))
def test_payloads_are_added_in_the_order_of_ranks(monkeypatch, rank):
    """With three summands the order shows: in that of ranks, 1 is lost beside 10¹⁷."""
    none = SCHEMES["none"]
    payloads = [none.encode(np.float32([value])) for value in (1e17, 1.0, -1e17)]
    model = DistributedDataParallel(Given(1))
    jopeq.torch.ddp_hook(none).attach(model)
    monkeypatch.setattr(ddp, "_gather_lengths", lambda *_: list(map(len, payloads)))
    monkeypatch.setattr(ddp, "_gather_payloads", lambda *_: payloads)
    monkeypatch.setattr(dist, "get_rank", lambda *_: rank)
    model(torch.ones(1)).backward()
    assert model.module.gradient.tolist() == [0.0]


@pytest.mark.usefixtures("alone")
def test_a_hook_serves_one_model():
    hook, _ = given(SDQ4, gradient_of(0))
    with pytest.raises(ValueError, match="make one with ddp_hook for each"):
        hook.attach(DistributedDataParallel(Given(3)))
    with pytest.raises(ValueError, match="must be a DistributedDataParallel, got a Linear"):
        jopeq.torch.ddp_hook(SDQ4).attach(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("scheme", "options", "match"),
    [
        ("sdq", {}, "make one with jopeq.scheme"),
        (SDQ4, {"process_group": 3}, "process_group must be"),
        (SDQ4, {"error_feedback": 1}, "must be True or False, got 1"),
        (RESPONSE, {"error_feedback": True}, "ε of scheme 'response' does not count"),
        (SCHEMES["sphere"], {"error_feedback": True}, "does not count"),
        (SCHEMES["none"], {"error_feedback": True}, "is for scheme 'sdq', got 'none'"),
        (jopeq.scheme("sdq", rate=2.0, clip=1.0), {"error_feedback": True}, "got clip=1.0"),
    ],
)
def test_bad_arguments(scheme, options, match):
    with pytest.raises(ValueError, match=match):
        jopeq.torch.ddp_hook(scheme, **options)


@pytest.mark.parametrize("rate", [2.0, 3.0])
@pytest.mark.parametrize("lattice", ["Z", "A2", "E8"])
def test_relative_error_is_what_is_measured(rate, lattice):
    scheme = jopeq.scheme("sdq", rate=rate, lattice=lattice, coding="entropy", spread=2.0)
    update = np.random.default_rng(0).standard_normal(80_000).astype(np.float32)
    error = np.square(scheme.decode(scheme.encode(update, seed=bytes(32))) - update).sum()
    assert error / np.square(update).sum() == pytest.approx(ddp.relative_error(scheme), rel=0.03)


@pytest.mark.parametrize("length", [1 << 62, 10_000_000])
def test_a_rank_cannot_make_all_others_allocate(length, monkeypatch):
    ones = torch.ones(10)
    bucket = SimpleNamespace(index=lambda: 0, buffer=lambda: ones, gradients=lambda: [ones])
    monkeypatch.setattr(ddp, "_device", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(ddp, "_gather_lengths", lambda own, *_: [own, length])
    monkeypatch.setattr(ddp, "_gather_payloads", None)  # not reached
    with pytest.raises(jopeq.PayloadError, match=f"rank 1: a payload of {length} bytes"):
        jopeq.torch.ddp_hook(SDQ4)._average(bucket)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
