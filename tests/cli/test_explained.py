import pytest
import typer

from jopeq.cli.output import explained
from jopeq.errors import DataError


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(20, "Not a directory", "a/b"), r"--out x: Not a directory \(a/b\): name folders"),
        (DataError("a file is missing: download it"), "^a file is missing: download it$"),
        (ValueError("lr must be positive"), "^lr must be positive$"),
        (RuntimeError("training diverged"), "^training diverged$"),
    ],
)
def test_errors_end_a_command_politely(error, words):
    with pytest.raises(typer.BadParameter, match=words) as caught, explained("--out x"):
        raise error
    assert caught.value.__cause__ is error


def test_mistakes_of_ours_are_not_hidden():
    with pytest.raises(TypeError), explained("--out x"):
        raise TypeError("a bug")
