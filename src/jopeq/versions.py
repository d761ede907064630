"""The versions that numbers depend on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__version__ = "0.2.0"
NAMES = ("jopeq", "Python", "numpy", "scipy", "torch")  # that runs and attacks are kept with


def versions(*packages: str) -> dict[str, str]:
    """Versions of jopeq, Python and the installed packages.

    >>> list(versions("numpy", "no such package"))
    ['jopeq', 'Python', 'numpy']
    """
    found = {"jopeq": __version__, "Python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
