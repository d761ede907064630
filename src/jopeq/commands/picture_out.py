"""Where ``jopeq attack`` may draw: checked before any work is done, and nothing of the user's lost.

Beside the picture lies a file of the same name ending in .npz, from which ``--resume`` goes on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

_PICTURES = (".png", ".pdf", ".svg", ".jpg", ".jpeg")


def check_out(out: Path, images: Sequence[Path] = ()) -> None:
    """Raise ValueError unless the picture and what is kept beside it can be written there."""
    from jopeq.attacks.compare import is_of_outcomes

    if out.suffix.lower() not in _PICTURES:
        raise ValueError(f"--out must end in one of {', '.join(_PICTURES)}, got {out}")
    kept = out.with_suffix(".npz")
    try:
        for image in images:
            for file in (out, kept):
                if _is_same(file, image):
                    raise ValueError(
                        f"--out {out} would overwrite {file}, which is --image {image}: "
                        "choose another name"
                    )
        for file in (out, kept):
            if file.is_dir():
                raise ValueError(f"--out {out}: {file} is a folder: choose another name")
        if kept.exists() and not is_of_outcomes(kept):
            raise ValueError(
                f"--out {out} would replace {kept}, which is no file of this command: move it, "
                "or choose another name"
            )
        _check_writable(out)
    except OSError as error:
        raise ValueError(
            f"--out {out} cannot be written ({error.strerror or error}): choose another place"
        ) from error


def _is_same(file: Path, image: Path) -> bool:
    if file.exists() and image.exists():
        return file.samefile(image)  # through links of either kind
    return file.resolve() == image.resolve()


def _check_writable(out: Path) -> None:
    folder = out.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with tempfile.TemporaryFile(dir=folder):  # permissions alone do not tell; it leaves nothing
        pass
    if out.exists() and not os.access(out, os.W_OK):
        raise PermissionError(f"{out} is read-only")
