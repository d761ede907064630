"""Two real processes on the loopback run every case once; the tests read what they saw.

This file is also the program of those processes (see ``main``). Noise and dither have fixed seeds
there, so a statistical verdict that holds once holds always.
"""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

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
SDQ1 = jopeq.scheme("sdq", rate=1.0, spread=1.5)
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
REPEATS = 400
BAD = {"nan": math.nan, "inf": math.inf, "large": 1e300, "faint": 1e-310}
HALVES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float64": torch.float64}


class Given(nn.Module):
    """A model whose gradient is what its input says."""

    def __init__(self, *sizes: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.zeros(size, dtype=dtype) for size in sizes])

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        flat = torch.cat([weight.reshape(-1) for weight in self.weights])
        return (flat * gradient).sum()

    @property
    def gradient(self) -> torch.Tensor:
        return torch.cat([weight.grad.reshape(-1) for weight in self.weights])


def given(scheme, gradient, *sizes, hook=None, **options):
    """(hook, averaged gradient) of one backward pass."""
    model = DistributedDataParallel(Given(*(sizes or (len(gradient),)), dtype=gradient.dtype))
    hook = (hook or jopeq.torch.ddp_hook(scheme, **options)).attach(model)
    model(gradient).backward()
    return hook, model.module.gradient


def gradient_of(rank: int, entries: int = 60) -> torch.Tensor:
    return torch.rand(entries, generator=torch.Generator().manual_seed(rank)) * 2 - 1


def digest(*tensors: torch.Tensor) -> str:
    content = b"".join(tensor.detach().double().numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(content).hexdigest()


# What the two processes run


def train(rank: int, scheme, steps: int = 60, **options):
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(512, 20, generator=generator)
    labels = (inputs @ torch.randn(20, 3, generator=generator)).argmax(1)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 3))
    model = DistributedDataParallel(network)
    hook = None if scheme is None else jopeq.torch.ddp_hook(scheme, **options).attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    first = None
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[rank::WORLD]), labels[rank::WORLD])
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    with torch.no_grad():
        last = nn.functional.cross_entropy(network(inputs), labels).item()
    found = {"first": first, "last": last, "digest": digest(*network.parameters())}
    if hook is not None:
        found |= {"bits": hook.traffic.bits_per_entry, "payloads": hook.traffic.payloads}
    return found


def case_training(rank: int):
    schemes = {"plain": None, **SCHEMES}
    return {name: train(rank, scheme) for name, scheme in schemes.items()}


def case_unbiased(rank: int):
    gradient = gradient_of(rank)
    model = DistributedDataParallel(Given(len(gradient)))
    jopeq.torch.ddp_hook(RESPONSE).attach(model)
    seen = []
    for _ in range(REPEATS):
        model.zero_grad()
        model(gradient).backward()
        seen.append(model.module.gradient.tolist())
    return seen


def case_feedback(rank: int):
    """Each rank pulls to its own target: at their mean no rank's own gradient is zero."""
    targets = [torch.randn(300, generator=torch.Generator().manual_seed(r)) for r in range(WORLD)]
    found = {}
    for name, scheme, has_memory in (
        ("forgets", SDQ1, False),
        ("remembers", SDQ1, True),
        ("wide, forgets", jopeq.scheme("sdq", rate=1.0), False),
        ("wide, remembers", jopeq.scheme("sdq", rate=1.0), True),
    ):
        model = DistributedDataParallel(Given(100, 200))
        hook = jopeq.torch.ddp_hook(scheme, error_feedback=has_memory).attach(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        errors = []
        for _ in range(400):
            optimizer.zero_grad()
            flat = torch.cat([weight.detach() for weight in model.module.weights])
            errors.append((flat - sum(targets) / WORLD).square().mean().item())
            model(flat - targets[rank]).backward()
            optimizer.step()
        memory = np.concatenate([*hook._residuals.values(), [0.0]])
        found[name] = {
            "error": float(np.mean(errors[-100:])),
            "memory": float(np.linalg.norm(memory)),
            "digest": digest(*model.parameters()),
        }
    return found


def case_buckets(rank: int):
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


def failure(action) -> list[str]:
    try:
        action()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def case_failures(rank: int):
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
    found["overflow"] = failure(
        lambda: given(jopeq.scheme("sdq", rate=1.0, clip=1e5), halves.repeat(20))
    )
    gc.collect()
    found["afterwards"] = train(rank, SDQ4, steps=3)["digest"]
    return found


def case_small(rank: int):
    found = {}
    for name, scheme in SCHEMES.items():
        zeros = given(scheme, torch.zeros(11))[1]
        found[f"zeros, {name}"] = [zeros.tolist(), digest(zeros)]
        found[f"one, {name}"] = digest(given(scheme, torch.tensor([0.5]))[1])
    for name, dtype in HALVES.items():
        gradient = gradient_of(rank).to(dtype)
        average = given(SDQ4, gradient, 20, 40)[1]
        found[name] = [str(average.dtype), average.tolist(), digest(average)]
    feedback = given(SDQ1, gradient_of(rank).half(), error_feedback=True)[1]
    found["feedback in half"] = [str(feedback.dtype), digest(feedback)]
    return found


def case_traffic(rank: int):
    found = {}
    for name, scheme in (("fixed", SDQ4), ("entropy", ENTROPY), ("response", RESPONSE)):
        # a gradient of few values on one rank, of many on the other: entropies differ
        gradient = gradient_of(0, 1000) if rank else torch.eye(1000)[0]
        hook = given(scheme, gradient)[0]
        traffic = hook.traffic
        found[name] = [
            traffic.payloads,
            traffic.entries,
            traffic.payload_bytes,
            traffic.bytes_sent,
            hook.guarantees[0].epsilon,
        ]
    return found


def case_groups(rank: int):
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


class Repeatable:
    """Stands in for ``os``: a fixed source of seeds and noise keys."""

    def __init__(self, label: str) -> None:
        self.label, self.count = label, 0

    def urandom(self, length: int) -> bytes:
        self.count += 1
        return hashlib.shake_256(f"{self.label} {self.count}".encode()).digest(length)

    def getpid(self) -> int:
        return os.getpid()


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), WORLD)
    limit = timedelta(seconds=HANG)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD, timeout=limit)
    found = {}
    for case in CASES:
        randomness.os = Repeatable(f"{case.__name__} {rank}")
        found[case.__name__.removeprefix("case_")] = case(rank)
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(found))


# What the tests read


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """All that rank 0 and rank 1 found, case by case."""
    folder = tmp_path_factory.mktemp("ddp")
    workers = [
        subprocess.Popen(
            [sys.executable, "-P", "-W", "error", __file__, str(rank), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(WORLD)
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


def mean_gradient(entries: int = 60) -> torch.Tensor:
    return sum(gradient_of(rank, entries) for rank in range(WORLD)) / WORLD


def test_sdq_learns_like_uncompressed_training(ranks):
    plain, found = ranks[0]["training"]["plain"], ranks[0]["training"]["sdq"]
    assert plain["last"] < plain["first"] / 4
    assert abs(found["last"] - plain["last"]) < 0.1 * plain["last"]
    assert 4.0 < found["bits"] < 4.5


@pytest.mark.parametrize("name", [name for name in SCHEMES if name != "sphere"])
def test_every_scheme_learns(ranks, name):
    found = ranks[0]["training"][name]
    assert found["last"] < found["first"] / 3
    assert found["payloads"] == 60


@pytest.mark.parametrize("name", SCHEMES)
def test_replicas_stay_the_same_to_the_bit(ranks, name):
    one, two = (rank["training"][name]["digest"] for rank in ranks)
    assert one == two


def test_none_is_uncompressed_training(ranks):
    found = ranks[0]["training"]
    assert found["none"]["last"] == pytest.approx(found["plain"]["last"], rel=1e-4)


def test_response_is_unbiased(ranks, assert_mean):
    assert ranks[0]["unbiased"] == ranks[1]["unbiased"]
    assert_mean(ranks[0]["unbiased"], mean_gradient().numpy())


def test_error_feedback_improves_one_bit(ranks):
    found = ranks[0]["feedback"]
    assert found["remembers"]["error"] < 0.5 * found["forgets"]["error"]
    assert found["wide, remembers"]["error"] < 0.5 * found["wide, forgets"]["error"]
    assert found["forgets"]["memory"] == 0.0


def test_error_memory_stays_bounded_where_the_error_exceeds_the_signal(ranks):
    """ω = 3 for one bit at spread 3: without the factor a the memory would grow 3^½-fold a step."""
    for rank in ranks:
        assert 0.0 < rank["feedback"]["wide, remembers"]["memory"] < 10 * math.sqrt(300)


def test_replicas_stay_the_same_with_error_feedback(ranks):
    one, two = ranks
    for name in one["feedback"]:
        assert one["feedback"][name]["digest"] == two["feedback"][name]["digest"]
    assert one["feedback"]["remembers"]["memory"] != two["feedback"]["remembers"]["memory"]


def test_many_buckets(ranks):
    one, two = (rank["buckets"] for rank in ranks)
    assert one["digest"] == two["digest"]
    assert one["buckets"] == 2
    assert one["payloads"] == 1 + 2 + 2  # regrouped after the first pass
    # gradients are uniform in [−1, 1], one unit is √3, a cell 2/15 of it; two ranks are averaged
    assert one["errors"][0] == pytest.approx(3 * (2 / 15) ** 2 / 12 / WORLD, rel=0.05)


def test_error_memory_follows_its_parameter_into_another_bucket(ranks):
    """All that three passes owe is in the memories of the ranks."""
    assert ranks[0]["buckets"]["unaccounted"] < 1e-5


@pytest.mark.parametrize("name", ["nan", "inf", "large"])
def test_a_bad_gradient_on_one_rank_raises_on_all(ranks, name):
    for rank in ranks:
        kind, message, payloads, charged = rank["failures"][name]
        assert kind == "UpdateError"
        assert "gradient bucket 0 (5 entries) could not be encoded on rank 1" in message
        assert payloads == 0
        assert charged == 1  # on all ranks, before any of them looked
    assert "at position (3,)" in ranks[1]["failures"][name][1]
    assert "position" not in ranks[0]["failures"][name][1]


@pytest.mark.parametrize("scheme", ["response", "laplace"])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_gradient_of_a_private_scheme_is_sent_like_any_other(ranks, name, scheme):
    """No rank can tell from another's answer that its gradient was not finite, or underflowed."""
    found = [rank["failures"][f"{name}, {scheme}"] for rank in ranks]
    assert found[0] == found[1]
    is_finite, payloads, epsilon, _ = found[0]
    assert (is_finite, payloads) == (True, 1)
    assert 0.0 < epsilon <= 20.0


def test_any_other_trouble_on_one_rank_raises_on_all(ranks):
    for rank in ranks:
        assert rank["failures"]["memory"][0] == "UpdateError"
    assert "here: no room" in ranks[1]["failures"]["memory"][1]


def test_schemes_that_differ_raise_on_all(ranks):
    for rank, found in enumerate(ranks):
        kind, message = found["failures"]["schemes differ"]
        assert kind == "PayloadError"
        assert f"of rank {1 - rank}: the payload was made by scheme" in message


def test_an_average_beyond_float16_raises_on_all(ranks):
    for rank in ranks:
        kind, message = rank["failures"]["overflow"]
        assert kind == "UpdateError"
        assert "too large for torch.float16" in message


def test_training_goes_on_with_a_new_model_after_failures(ranks):
    assert ranks[0]["failures"]["afterwards"] == ranks[1]["failures"]["afterwards"]


@pytest.mark.parametrize("name", SCHEMES)
def test_zero_gradients_and_single_entries(ranks, name):
    one, two = (rank["small"] for rank in ranks)
    assert one[f"zeros, {name}"] == two[f"zeros, {name}"]
    assert one[f"one, {name}"] == two[f"one, {name}"]
    if SCHEMES[name].clip is None:
        assert one[f"zeros, {name}"][0] == [0.0] * 11


@pytest.mark.parametrize("name", HALVES)
def test_other_float_types(ranks, name):
    dtype, average, signature = ranks[0]["small"][name]
    assert dtype == f"torch.{name}"
    assert signature == ranks[1]["small"][name][2]
    cell = 2 / 15 * 3 * 1.0  # spread 3 times a norm below 1 per entry
    assert np.abs(np.array(average) - mean_gradient().numpy()).max() < cell / 2 + 0.01


def test_error_feedback_in_half_precision(ranks):
    assert ranks[0]["small"]["feedback in half"] == ranks[1]["small"]["feedback in half"]
    assert ranks[0]["small"]["feedback in half"][0] == "torch.float16"


def test_traffic_is_what_was_sent(ranks):
    for rank in ranks:
        payloads, entries, payload_bytes, sent, epsilon = rank["traffic"]["fixed"]
        assert (payloads, entries, epsilon) == (1, 1000, math.inf)
        assert payload_bytes == len(SDQ4.encode(np.ones(1000)))
        assert sent == payload_bytes + 8


def test_entropy_coded_payloads_are_padded_to_the_longest(ranks):
    lengths = [rank["traffic"]["entropy"][2] for rank in ranks]
    assert lengths[0] < lengths[1]
    assert [rank["traffic"]["entropy"][3] for rank in ranks] == [max(lengths) + 8] * 2


def test_epsilon_of_a_bucket_is_that_of_all_its_entries(ranks):
    expected = RESPONSE.guarantee.for_update(1000).epsilon
    assert [rank["traffic"]["response"][4] for rank in ranks] == [expected] * 2


def test_the_group_of_the_payloads(ranks):
    one, two = (rank["groups"] for rank in ranks)
    assert one["digest"] == two["digest"]
    assert one["is_given"]
    assert one["own"]
    assert two["own"]
    for rank, found in enumerate((one, two)):
        assert f"process_group holds the ranks [{rank}]" in found["refused"][1]
        assert "process_group must be a group that this rank is in" in found["outsider"][1]


@pytest.mark.usefixtures("alone")
def test_a_world_of_one_is_coded_too():
    model = DistributedDataParallel(Given(40))
    hook = jopeq.torch.ddp_hook(RESPONSE).attach(model)
    assert hook.spent.epsilon == 0.0
    for _ in range(3):
        model.zero_grad()
        model(gradient_of(0, 40)).backward()
    assert not torch.equal(model.module.gradient, gradient_of(0, 40))
    assert hook.traffic.payloads == 3
    assert hook.guarantees[0].unit == "update"
    assert hook.spent.epsilon == pytest.approx(3 * hook.guarantees[0].epsilon)
    assert hook.spent.unit == "client"
    assert hook.spent.mechanisms.epsilon_at(1e-5)[0] < hook.spent.epsilon
    assert "payloads=3" in repr(hook)


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
def test_unit_update_spends_its_epsilon_once_a_bucket():
    scheme = SCHEMES["sphere"]
    hook, _ = given(scheme, gradient_of(0))
    assert hook.guarantees[0] == scheme.guarantee_for(60)
    assert hook.spent.epsilon == scheme.guarantee_for(60).epsilon


@pytest.mark.usefixtures("alone")
def test_a_hook_serves_one_model():
    hook, _ = given(SDQ4, gradient_of(0))
    with pytest.raises(ValueError, match="make one with ddp_hook for each"):
        hook.attach(DistributedDataParallel(Given(3)))
    with pytest.raises(ValueError, match="must be a DistributedDataParallel, got a Linear"):
        jopeq.torch.ddp_hook(SDQ4).attach(nn.Linear(2, 2))


def test_nothing_sent_yet():
    hook = jopeq.torch.ddp_hook(SDQ4)
    assert hook.traffic == jopeq.torch.Traffic()
    assert hook.traffic.bits_per_entry == 0.0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"scheme": "sdq"}, "make one with jopeq.scheme"),
        ({"scheme": SDQ4, "process_group": 3}, "process_group must be"),
        ({"scheme": SDQ4, "error_feedback": 1}, "must be True or False, got 1"),
        ({"scheme": RESPONSE, "error_feedback": True}, "ε of scheme 'response' does not count"),
        ({"scheme": SCHEMES["laplace"], "error_feedback": True}, "'laplace' does not count"),
        ({"scheme": SCHEMES["sphere"], "error_feedback": True}, "does not count"),
        ({"scheme": SCHEMES["none"], "error_feedback": True}, "is for scheme 'sdq', got 'none'"),
        ({"scheme": jopeq.scheme("dq", rate=2.0), "error_feedback": True}, "got 'dq'"),
        (
            {"scheme": jopeq.scheme("sdq", rate=2.0, clip=1.0), "error_feedback": True},
            "needs norm scaling, got clip=1.0",
        ),
    ],
)
def test_bad_arguments(arguments, match):
    with pytest.raises(ValueError, match=match):
        jopeq.torch.ddp_hook(**arguments)


@pytest.mark.parametrize("rate", [2.0, 3.0])
@pytest.mark.parametrize("lattice", ["Z", "A2", "E8"])
def test_relative_error_is_what_is_measured(rate, lattice):
    scheme = jopeq.scheme("sdq", rate=rate, lattice=lattice, coding="entropy", spread=2.0)
    update = np.random.default_rng(0).standard_normal(80_000).astype(np.float32)
    error = np.square(scheme.decode(scheme.encode(update, seed=bytes(32))) - update).sum()
    assert error / np.square(update).sum() == pytest.approx(ddp.relative_error(scheme), rel=0.03)


@pytest.mark.parametrize("length", [1 << 62, 10_000_000])
def test_a_rank_cannot_make_all_others_allocate(length, monkeypatch):
    class Bucket:
        index = staticmethod(lambda: 0)
        buffer = staticmethod(lambda: torch.ones(10))
        gradients = staticmethod(lambda: [torch.ones(10)])

    monkeypatch.setattr(ddp, "_device", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(ddp, "_gather_lengths", lambda own, *_: [own, length])
    monkeypatch.setattr(ddp, "_gather_payloads", None)  # not reached
    with pytest.raises(jopeq.PayloadError, match=f"rank 1: a payload of {length} bytes"):
        jopeq.torch.ddp_hook(SDQ4)._average(Bucket)


def test_no_scheme_needs_more_room_than_a_rank_may_announce():
    normal = np.random.default_rng(0).standard_normal(70_000)
    large = (
        jopeq.scheme("t", epsilon=1.0, size=1 << 16),
        jopeq.scheme("sdq", step=1e-12, coding="entropy", lattice="E8"),  # all are escaped
    )
    for scheme in (*SCHEMES.values(), *large):
        for update in (normal, normal[:1]):
            ddp._check_lengths([2 * len(scheme.encode(update))], update.size + 8, "bucket")


def test_the_package_finds_the_real_torch():
    assert ddp.torch is torch
    assert ddp.torch.__name__ == "torch"


def test_importing_jopeq_leaves_torch_out():
    code = "import jopeq, sys; sys.exit('torch' in sys.modules or 'jopeq.torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
