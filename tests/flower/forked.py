"""Flower's commands, as forks of one interpreter that has imported Flower.

A federation here is up to fifty processes, and importing Flower takes two seconds of each. They are
the processes that the commands start, running the same functions; only the imports are shared.

``python -P forked.py`` serves the socket that is its standard input. A file of ``COMMAND``, named
as the command, hands its words, environment and files over, and ends when the process does. A
process whose command is killed dies with everything that it has started.
"""

import gc
import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib.metadata import distribution

NAMES = (
    *("flower-superlink", "flower-supernode", "flower-superexec"),
    *("flwr", "flwr-serverapp", "flwr-clientapp"),
)
COMMAND = f"""#!{sys.executable} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect(os.environ["JOPEQ_FORKED"])
    words = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(link, [len(words).to_bytes(4, "big")], [0, 1, 2])
    link.sendall(words)
    code = link.recv(1)
    link.recv(1)  # nothing comes: the process has ended
sys.exit(code[0] if code else 1)
"""


def serve():
    """Fork for every connection; returns in the new process."""
    signal.signal(signal.SIGCHLD, _reap)
    signal.signal(signal.SIGTERM, _end)
    with socket.socket(fileno=sys.stdin.fileno()) as listener:
        while True:
            link, _ = listener.accept()
            if os.fork() == 0:
                return link
            link.close()


def _reap(*_):
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _end(*_):
    """End when the last process has."""
    with suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


def take_over(link):
    """Become the process that the command asks for; returns the command's name."""
    for sign in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(sign, signal.SIG_DFL)
    os.setsid()
    size, files, _, _ = socket.recv_fds(link, 4, 3)
    words = b""
    while len(words) < int.from_bytes(size, "big"):
        words += link.recv(1 << 16)
    sys.argv, folder, environment = json.loads(words)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)

    def end_with_the_command():
        link.recv(1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=end_with_the_command, daemon=True).start()
    return os.path.basename(sys.argv[0])


def main():
    points = {point.name: point for point in distribution("flwr").entry_points}
    commands = {name: points[name].load() for name in NAMES}

    with suppress(ImportError):
        import dp_accounting.pld.privacy_loss_distribution  # noqa: F401  and SciPy with it

    gc.freeze()  # or every process would copy all pages when it first collects
    link = serve()
    try:
        code = commands[take_over(link)]()
    except SystemExit as ended:
        code = ended.code
    code = code if isinstance(code, int) else int(code is not None)
    link.send(bytes([code]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking all that was imported apart takes longer than most commands


if __name__ == "__main__":
    main()
