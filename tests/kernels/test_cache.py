"""Where compiled code is kept, and when it counts as somebody's work of before."""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import jopeq
from jopeq.kernels import cache

SOURCE = Path(jopeq.__file__).parent
KERNELS = sorted(f"kernels/cpu/{path.name}" for path in (SOURCE / "kernels/cpu").glob("*.py"))
SHARED = ["noise/gaussian_rounding.py", "random/portable.py", "wire/entries.py"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of one's own; ``cache`` finds it anew."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    cache.cache_folder.cache_clear()
    yield tmp_path / "cache"
    cache.cache_folder.cache_clear()


def copy(root):
    """The sources as another checkout or environment has them; their ``cache`` in a new process."""
    shutil.copytree(SOURCE / "kernels", root / "kernels")  # with the times of the files
    for name in (*SHARED, "wire/payload.py"):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy2(SOURCE / name, root / name)

    def fresh():
        spec = importlib.util.spec_from_file_location("copy", root / "kernels" / "cache.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return fresh


def test_marked_once_everything_is_compiled(folder):
    made = cache.cache_folder()
    assert made.is_dir()
    assert made.parent == folder
    assert made.name.startswith("kernels-")
    assert not cache.is_compiled()
    cache.mark_compiled()
    cache.mark_compiled()
    assert cache.is_compiled()


def test_another_checkout_and_a_source_written_anew_have_not_compiled(folder, tmp_path):
    """They may have the same source, but Numba looks for code by path and time."""
    one, other, seen = copy(tmp_path / "one"), copy(tmp_path / "other"), set()
    one().mark_compiled()
    assert one().is_compiled()
    assert not other().is_compiled()
    for name in ("wire/payload.py", "kernels/threads.py", *KERNELS, *SHARED):
        path = tmp_path / "one" / name
        for change in ("time", "content"):
            seen.add(one().cache_folder())
            time = path.stat().st_mtime_ns + 1_000_000_000 * (change == "time")
            if change == "content":
                path.write_bytes(path.read_bytes() + b"\n")
            os.utime(path, ns=(time, time))
            matters = name in (*KERNELS, *SHARED)  # other sources do not
            assert (one().cache_folder() in seen) != matters, (name, change)


def test_another_processor_or_numba_has_not_compiled(folder, tmp_path, monkeypatch):
    binding = pytest.importorskip("llvmlite.binding")
    one = copy(tmp_path / "one")
    one().mark_compiled()

    def fail(error):
        raise error

    for change in (
        lambda m: m.setenv("NUMBA_CPU_NAME", "generic"),
        lambda m: m.setenv("NUMBA_CPU_FEATURES", "generic"),
        lambda m: m.setattr(binding, "get_host_cpu_features", lambda: fail(RuntimeError())),
        lambda m: m.setattr("importlib.metadata.version", lambda name: "0.1"),
        lambda m: m.setattr("importlib.metadata.version", lambda n: fail(PackageNotFoundError(n))),
        lambda m: m.setitem(sys.modules, "llvmlite", None),
    ):
        with monkeypatch.context() as changed:
            change(changed)
            assert one().cache_folder() is not None
            assert not one().is_compiled()
    assert one().is_compiled()


def _module(name):
    return "jopeq." + name.removesuffix(".py").replace("/", ".")


def test_kernels_take_constants_only_from_sources_that_count():
    """Numba compiles constants in and does not see them change in another file."""
    known = {_module(str(path.relative_to(SOURCE))) for path in SOURCE.rglob("*.py")}
    allowed = {_module(name) for name in (*KERNELS, *SHARED)}
    allowed |= {  # classes and Python around the kernels
        *("jopeq.errors", "jopeq.kernels", "jopeq.kernels.cache", "jopeq.kernels.recipe"),
        *("jopeq.kernels.threads", "jopeq.lattice.codebook", "jopeq.random.streams"),
        *("jopeq.random.normal", "jopeq.wire.coders", "jopeq.wire.rotation", "jopeq.wire.scaling"),
    }
    for name in KERNELS:
        for node in ast.walk(ast.parse((SOURCE / name).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("jopeq"):
                modules = {f"{node.module}.{alias.name}" for alias in node.names} & known
                assert (modules or {node.module}) <= allowed, name


@pytest.mark.parametrize("trouble", ["below a file", "not writable", "no home", "full disk"])
def test_without_a_folder_nothing_is_kept(folder, tmp_path, monkeypatch, trouble):
    def full(path, *arguments, **options):
        raise OSError(28, "No space left on device")

    if trouble == "below a file":
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    elif trouble == "not writable":
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    elif trouble == "no home":
        for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    else:
        assert cache.cache_folder()
        monkeypatch.setattr(Path, "touch", full)
    assert (cache.cache_folder() is None) == (trouble != "full disk")
    cache.mark_compiled()
    assert not cache.is_compiled()


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
@pytest.mark.parametrize("place", ["the folder", "one above it"])
def test_code_from_a_folder_others_can_write_to_is_not_loaded(folder, place):
    """Numba unpickles what it finds there: whoever can write there could run code as this user."""
    made = cache.cache_folder()
    cache.mark_compiled()
    assert cache.is_compiled()
    (made if place == "the folder" else folder).chmod(0o777)
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() is None
    assert not cache.is_compiled()


def test_code_compiled_by_one_process_is_loaded_by_the_next(tmp_path):
    pytest.importorskip("numba")
    (tmp_path / "small.py").write_text(
        "from jopeq.kernels.cpu.native import kernel\n"
        "from numba import types\n"
        "@kernel(types.int64, returns=types.int64)\n"
        "def double(x):\n    return 2 * x\n"
    )
    code = (  # a bare package, as the real one compiles all kernels when it is imported
        f"import sys, types; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import jopeq.kernels\n"
        "bare = sys.modules['jopeq.kernels.cpu'] = types.ModuleType('jopeq.kernels.cpu')\n"
        "bare.__path__ = [jopeq.kernels.__path__[0] + '/cpu']\n"
        "from small import double\n"
        "from jopeq.kernels.cache import cache_folder\n"
        "stats = double.stats\n"
        "print(len(stats.cache_hits), len(stats.cache_misses), cache_folder() is None)"
    )

    def run(place):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(place)}
        command = [sys.executable, "-W", "error", "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert run(tmp_path / "cache") == ["0", "1", "False"]
    assert run(tmp_path / "cache") == ["1", "0", "False"]
