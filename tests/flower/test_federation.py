"""Flower's deployment engine on loopback: a SuperLink, SuperNodes, ``flwr run``, nothing faked.

The app is written here: softmax regression on 9,999 fixed random features of scikit-learn's digits
and a bias, 100,000 parameters in NumPy alone, so that its many processes start quickly.
"""

import datetime
import ipaddress
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sklearn.datasets import load_digits

import jopeq
from jopeq.files import user_cache
from tests.flower import forked

BIN = Path(sys.executable).parent
pytestmark = needs_flower = [
    pytest.mark.flower,
    pytest.mark.skipif(
        not (BIN / "flower-superlink").exists(), reason="Flower's commands are not installed"
    ),
]
PARAMETERS = 1_000_000  # so many that a SuperNode's polling does not show beside them
HANG = 900.0  # seconds that only a hang reaches, on however busy a machine

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "digits"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "jopeq"
[tool.flwr.app.components]
serverapp = "digits.app:server"
clientapp = "digits.app:client"
[tool.flwr.app.config]
rounds = 3
nodes = 3
folder = ""
"""

PATIENT = '''
import time


class Patient:
    """A grid that waits for every reply, but for one where ``is_dead(messages)``."""

    def __init__(self, grid, is_dead):
        self.grid, self.is_dead = grid, is_dead

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        missing, replies = set(self.grid.push_messages(messages)), []
        while len(missing) > self.is_dead(messages):
            received = list(self.grid.pull_messages(missing))
            missing -= {reply.metadata.reply_to_message_id for reply in received}
            replies += received
            time.sleep(0.1)
        return replies
'''

APP = '''
import json, os, sys, time
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from jopeq import Response
from jopeq.flower import PayloadMod, PayloadStrategy
from jopeq.flower.arrays import to_record
from .patient import Patient

scheme = Response(epsilon=4.0, rate=2.0, clip=0.02)


def digits(folder, rows):
    with np.load(Path(folder, "digits.npz")) as saved:
        images, labels = saved["images"][rows], saved["labels"][rows]
    project = np.random.default_rng(0).normal(0, 1, (64, 9999)) / 32
    features = np.maximum(images @ project, 0).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return np.hstack((features, np.ones((len(labels), 1), np.float32))), labels


def gradient(w, features, labels):
    scores = features @ w
    odds = np.exp(scores - scores.max(1, keepdims=True))
    odds /= odds.sum(1, keepdims=True)
    odds[np.arange(len(labels)), labels] -= 1
    return features.T @ odds / len(labels)


def spoil(msg, ctxt, call_next):
    """Outermost, after PayloadMod: what a faulty or hostile client might send."""
    reply = call_next(msg, ctxt)
    if ctxt.node_config["role"] == "garbage":
        reply.content["arrays"] = to_record(os.urandom(25_000))
    return reply


client = ClientApp(mods=[spoil, PayloadMod(scheme)])


@client.train()
def train(msg, context):
    number, role = msg.content["config"]["server-round"], context.node_config["role"]
    if role == "victim" and number == 2:
        Path(context.run_config["folder"], "victim-trains").touch()
        time.sleep(3600)
    if role == "paying" and number == 2:
        sys.exit("the loss is not finite")
    mine = slice(int(context.node_config["part"]), 1400, int(context.node_config["parts"]))
    features, labels = digits(context.run_config["folder"], mine)
    w = msg.content["arrays"]["w"].numpy()
    steps = msg.content["arrays"]["steps"].numpy()
    for _ in range(5):
        w = w - 10.0 * gradient(w, features, labels).astype(np.float32)
    idle = msg.content["arrays"]["idle"]
    arrays = ArrayRecord({"w": Array(w), "idle": idle, "steps": Array(np.asarray(steps + 5))})
    metrics = MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)


server = ServerApp()


@server.main()
def main(grid, context):
    config = context.run_config
    features, labels = digits(config["folder"], slice(1400, None))

    def evaluate(number, arrays):
        if number:  # the victim leaves after round 1
            inner.min_train_nodes = inner.min_available_nodes = 1
        right = (features @ arrays["w"].numpy()).argmax(1) == labels
        return MetricRecord({"accuracy": float(right.mean())})

    count = int(config["nodes"])
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=count, min_available_nodes=count)
    strategy = PayloadStrategy(inner, scheme)
    idle = Array(np.zeros(900_000, np.float32))
    zero = {"w": Array(np.zeros((10_000, 10), np.float32)), "idle": idle}
    zero["steps"] = Array(np.array(0))
    patient = Patient(grid, lambda _: Path(config["folder"], "victim-is-dead").exists())
    rounds = int(config["rounds"])
    result = strategy.start(patient, ArrayRecord(zero), rounds, evaluate_fn=evaluate)
    report = {
        "accuracy": [m["accuracy"] for m in result.evaluate_metrics_serverapp.values()],
        "train": [dict(m) for m in result.train_metrics_clientapp.values()],
        "rejected": [list(r.rejected.values()) for r in strategy.reports],
        "refused": [f[1:3] for r in strategy.reports for f in r.failed if f.is_refusal],
        "steps": str(result.arrays["steps"].numpy().dtype),
    }
    Path(config["folder"], "partial").write_text(json.dumps(report))
    Path(config["folder"], "partial").rename(Path(config["folder"], "report.json"))
'''


def wait_for(what, alive, most=HANG):
    """Poll until ``what()`` is true; stop at once when a process that should live has died."""
    end = time.monotonic() + most
    while not (found := what()):
        for process in alive:
            assert process.poll() is None, f"{process.args} ended with {process.returncode}"
        assert time.monotonic() < end, f"{what} was not true after {most} s"
        time.sleep(0.1)
    return found


def free_port():
    """Below the ports that systems give out by themselves: no proxy takes it meanwhile."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class CountingProxy:
    """Forwards loopback TCP connections and counts the bytes that go up."""

    def __init__(self, target):
        self.target, self.up = target, 0
        self._lock, self._sockets = threading.Lock(), []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                self._sockets += [near, far]
                for way in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pump, args=way, daemon=True).start()

    def _pump(self, source, sink, is_up):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    self.up += len(data) * is_up
                sink.sendall(data)
        shut(source, sink)

    def close(self):
        shut(self._listener, *self._sockets)
        for end in (self._listener, *self._sockets):
            end.close()


def shut(*ends):
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Deployment:
    """One SuperLink with SuperNodes behind counting proxies, in a folder of its own."""

    def __init__(self, folder, stack, *, secure=False, app=APP, is_forked=True):
        self.folder, self.stack, self.secure = folder, stack, secure
        self.nodes, self.proxies = {}, {}
        package = folder / "app" / "digits"
        package.mkdir(parents=True)
        (folder / "app" / "pyproject.toml").write_text(PYPROJECT)
        for name, text in (("__init__", ""), ("patient", PATIENT), ("app", app)):
            (package / f"{name}.py").write_text(text)
        images, labels = load_digits(return_X_y=True)
        np.savez(folder / "digits.npz", images=images, labels=labels)
        self.environment = {
            **os.environ,
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "HOME": str(folder),
            "JOPEQ_PLANS": str(user_cache() / "plans"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        (folder / "bin").mkdir()
        if is_forked:
            self.serve_forks()
        else:
            for name in forked.NAMES:
                (folder / "bin" / name).symlink_to(BIN / name)
        self.port = free_port()
        if secure:
            write_certificate(folder)
        (folder / "home").mkdir(exist_ok=True)
        access = f'root-certificates = "{folder}/server.pem"' if secure else "insecure = true"
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f"{access}\n"
        )
        self.start_superlink()

    def start_superlink(self, name="superlink"):
        options = ["--insecure"]
        if self.secure:
            files = {"ca-cert": "server.pem", "cert": "server.pem", "key": "server.key"}
            options = [f"--ssl-{kind}file={self.folder / file}" for kind, file in files.items()]
            options.append("--enable-supernode-auth")
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        self.superlink = self.start(name, ["flower-superlink", *options, *address])
        wait_for(self.is_healthy, alive=[self.superlink])

    def serve_forks(self):
        """Write the commands that ``forked`` serves, and start it."""
        for name in forked.NAMES:
            path = self.folder / "bin" / name
            path.write_text(forked.COMMAND)
            path.chmod(0o755)
        short = self.stack.enter_context(tempfile.TemporaryDirectory())
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{short}/forked")  # a socket's name has 100 letters at most
            listener.listen(64)
            command = [sys.executable, "-P", forked.__file__]
            server = subprocess.Popen(
                command, stdin=listener, env=self.environment, start_new_session=True
            )
        self.stack.callback(self.stop, server)
        self.environment["JOPEQ_FORKED"] = f"{short}/forked"

    def start(self, name, command):
        """A process in a group of its own, ended with it when the test ends.

        It has a Flower home of its own: two nodes must not install the app into one at a time.
        """
        log = self.stack.enter_context((self.folder / f"{name}.log").open("wb"))
        process = subprocess.Popen(
            [str(self.folder / "bin" / command[0]), *command[1:]],  # or an absolute path
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**self.environment, "FLWR_HOME": str(self.folder / f"home-{name}")},
            cwd=self.folder,
            start_new_session=True,
        )
        self.stack.callback(self.stop, process)
        return process

    @staticmethod
    def stop(process, how=signal.SIGTERM):
        """End a process and the ones it started."""
        for sign in (how, signal.SIGKILL):
            try:
                os.killpg(process.pid, sign)
            except ProcessLookupError:
                break
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                continue
        process.wait()

    def is_healthy(self):
        url, context = f"http://127.0.0.1:{self.port}/health", None
        if self.secure:
            url = url.replace("http", "https")
            context = ssl.create_default_context(cafile=self.folder / "server.pem")
        with suppress(OSError), urllib.request.urlopen(url, timeout=2, context=context) as answer:
            return answer.status == 200

    def add_node(self, name, part, parts, role="honest", config="", guard=()):
        proxy = self.proxies[name] = CountingProxy(self.port)
        self.stack.callback(proxy.close)
        options = ["--insecure"]
        if self.secure:
            write_key(self.folder / name)
            self.flwr("supernode", "register", str(self.folder / f"{name}.pub"), "here")
            key = self.folder / f"{name}.key"
            options = [f"--root-certificates={self.folder}/server.pem"]
            options.append(f"--auth-supernode-private-key={key}")
        config = f'part={part} parts={parts} role="{role}" {config}'.strip()
        link = ["--superlink", f"127.0.0.1:{proxy.port}"]
        own = ["--host", "127.0.0.1", "--port", str(free_port())]
        command = ["flower-supernode", *options, *link, *own, "--node-config", config]
        self.nodes[name] = self.start(name, [*guard, *command])

    def flwr(self, *arguments):
        done = subprocess.run(
            [str(self.folder / "bin" / "flwr"), *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, **config):
        """``flwr run``; the report is awaited with ``report``."""
        given = {"folder": str(self.folder), "nodes": len(self.nodes), **config}
        texts = [f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in given.items()]
        self.flwr("run", str(self.folder / "app"), "here", "--run-config", " ".join(texts))

    def report(self, most=HANG):
        path = self.folder / "report.json"
        wait_for(path.exists, alive=[self.superlink], most=most)
        report = json.loads(path.read_text())
        path.unlink()
        print(report)  # shown when a test fails
        return report


@contextmanager
def deployment(folder, **options):
    """A SuperLink of its own; on failure its logs are shown."""
    with ExitStack() as stack:
        made = None
        try:
            made = Deployment(folder, stack, **options)
            yield made
        except BaseException:
            for path in folder.glob("*.log"):
                text = re.sub(r"\x1b\[\d+m", "", path.read_text(errors="replace"))
                print(f"---- {path.name}\n{text[-4000:]}")
            raise


def write_key(path):
    key = ec.generate_private_key(ec.SECP384R1())
    forms = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    path.with_suffix(".key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *forms))
    public = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(*public))


def write_certificate(folder):
    """A certificate for 127.0.0.1 that signs itself, valid for an hour."""
    key, hour = ec.generate_private_key(ec.SECP384R1()), datetime.timedelta(hours=1)
    now, public = datetime.datetime.now(datetime.UTC), key.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    number = x509.random_serial_number()
    made = x509.CertificateBuilder(name, name, public, number, now - hour, now + hour)
    for extension, is_critical in (
        (x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False),
        (x509.SubjectKeyIdentifier.from_public_key(public), False),
        (x509.BasicConstraints(ca=True, path_length=None), True),
        (x509.KeyUsage(True, *(False,) * 4, True, True, False, False), True),
    ):
        made = made.add_extension(extension, critical=is_critical)
    pem, forms = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    certificate = made.sign(key, hashes.SHA384()).public_bytes(pem)
    (folder / "server.pem").write_bytes(certificate)
    private = key.private_bytes(pem, forms, serialization.NoEncryption())
    (folder / "server.key").write_bytes(private)


def test_three_rounds_with_a_budget_a_killed_node_and_one_that_sends_garbage(tmp_path):
    """Small on the wire; the ledger that nobody named lies in Flower's home of the node.

    The paying node's app exits in round 2, which must not show: a zero update comes from it.
    """
    own = f"jopeq-budget={2.5 * 4.0 * PARAMETERS}"
    with deployment(tmp_path) as federation:
        for part, role in enumerate(("honest", "honest", "garbage", "victim")):
            federation.add_node(f"{role}{part}", part, 5, role)
        federation.add_node("paying4", 4, 5, "paying", own)
        federation.run()
        wait_for((tmp_path / "victim-trains").exists, alive=[federation.superlink])
        federation.stop(federation.nodes["victim3"], signal.SIGKILL)
        (tmp_path / "victim-is-dead").touch()
        report = federation.report()
        ups = [proxy.up for proxy in federation.proxies.values()]
    accuracy = report["accuracy"]
    assert len(accuracy) == 4
    assert accuracy[-1] > 0.7 > 0.2 > accuracy[0]
    assert report["steps"] == "int64"
    assert [m["jopeq-rejected"] for m in report["train"]] == [1, 1, 1]
    assert [m["jopeq-clients"] for m in report["train"]] == [4, 3, 2]
    assert "not a jopeq payload" in report["rejected"][0][0]
    assert report["refused"] == [["PayloadMod", "budget-spent"]]
    assert "SystemExit" in (tmp_path / "paying4.log").read_text()
    ledger = tmp_path / "home-paying4" / "jopeq" / "ledgers" / "client.json"
    assert jopeq.Ledger.load(ledger).rounds == 2
    for metrics in report["train"]:
        assert 8 * metrics["jopeq-bytes-up"] < 2.1 * PARAMETERS * metrics["jopeq-clients"]
    # everything a SuperNode sent since it started: polling, heartbeats and headers included
    assert max(ups) / 3 < 4 * PARAMETERS / 8
