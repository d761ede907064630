"""What would be done for a model, from its file or its import path; nothing is unpickled."""

import pickle

import numpy as np
import pytest

import jopeq
from jopeq import kernels
from jopeq.analysis.learning import judge
from jopeq.cli.doctor import describe_model
from jopeq.kernels import cache

torch = pytest.importorskip("torch")


def make():
    layers = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4)
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(16, 2))


class Trap:
    """Unpickling it would be seen."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def files(folder):
    state = make().state_dict()
    torch.save(state, folder / "model.pt")
    torch.save({"epoch": 3, "state_dict": state}, folder / "checkpoint.pt")
    return ("model.pt", "checkpoint.pt")


@pytest.fixture
def examine(jopeq_command):
    return lambda path: jopeq_command("doctor", path)


def test_every_kind_of_file_says_the_same(tmp_path, monkeypatch, examine):
    monkeypatch.syspath_prepend(str(tmp_path))
    expected = describe_model(make().state_dict(), 4.0, 2.0)
    for name in files(tmp_path):
        result = examine(tmp_path / name)
        assert result.exit_code == 0, result.output
        assert result.output.rstrip().endswith(expected)
    code = "import torch\nmake = lambda: torch.nn.Linear(3, 2)\n"
    (tmp_path / "doctor_models.py").write_text(code)
    assert "weight" in examine("doctor_models:make").output
    assert "or package.module:function" in examine("model").output


def test_it_says_what_happens_to_each_tensor():
    shown = describe_model(make().state_dict(), 2.0, 1.0)
    lines = {line.split()[0]: line for line in shown.splitlines()}
    assert "sent: 90 entries" in shown
    scheme = jopeq.scheme("response", epsilon=2.0, rate=1.0, clip="layers")
    assert str(scheme.guarantee.for_update(90)) in shown
    assert "not sent" in lines["1.num_batches_tracked"]
    assert "stays positive" in lines["1.running_var"]
    assert "jopeq.state_update" in shown
    assert "names are numbers" in describe_model({"0": np.ones(3), "1": np.ones(3)}, 4.0, 2.0)
    assert "nothing to send" in describe_model({"n": np.array(1)}, 4.0, 2.0)


ADAPTER = """
import torch
def make():
    base, head = torch.nn.Linear(784, 64), torch.nn.Linear(64, 2)
    for value in base.parameters():
        value.requires_grad = False
    return torch.nn.Sequential(torch.nn.Flatten(), base, head)
"""


def test_what_does_not_train_is_left_out_and_a_sum_of_the_rest_is_judged(
    tmp_path, monkeypatch, examine
):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "doctor_adapter.py").write_text(ADAPTER)
    said = examine("doctor_adapter:make").output
    assert "frozen=['1.bias', '1.weight']" in said
    assert f"130 of {130 + 785 * 64:,} entries train" in said
    assert "sent: 130 entries" in said  # of the table, which has no frozen tensors
    scheme = jopeq.ClientSum(epsilon=4, clip=1, clients=100, threshold=67, rounds=20)
    assert str(judge(scheme.expected_error(130), 20)) in said
    local = jopeq.Sphere(epsilon=4 / 20, clip=1)
    assert str(judge(local.expected_error(130) / 100, 20)) in said


def test_bad_files_are_refused(tmp_path, examine):
    torch.save({"weight": Trap()}, tmp_path / "evil.pt")
    (tmp_path / "bare.pt").write_bytes(pickle.dumps(Trap()))
    for name in ("evil.pt", "bare.pt", "missing.pt"):
        assert examine(tmp_path / name).exit_code == 2


def test_a_node_with_a_wrong_configuration_ends_with_1(jopeq_command):
    pytest.importorskip("flwr")
    done = jopeq_command("doctor", "--node", 'jopeq-max-epsilon=-1 jopeq-max-delta="small"')
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    for part in ("jopeq-max-epsilon is -1", "jopeq-max-delta is 'small'", "ledger is missing"):
        assert part in said


def test_kernels_are_compiled_once(jopeq_command):
    pytest.importorskip("numba")
    result = jopeq_command("doctor", "--warmup")
    assert result.exit_code == 0, result.output
    assert "compiled" in result.output
    assert cache.is_compiled()
    assert "already compiled" in jopeq_command("doctor", "--warmup").output


def test_without_numba_it_says_what_to_install(jopeq_command, monkeypatch):
    def fail():
        raise ImportError("compiled kernels need Numba (x): pip install 'jopeq[fast]'")

    monkeypatch.setattr(kernels, "load", fail)
    result = jopeq_command("doctor", "--warmup")
    assert result.exit_code == 2
    assert "jopeq[fast]" in result.output
