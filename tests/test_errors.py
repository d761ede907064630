"""Errors: one base, and ValueErrors where the caller's values are at fault."""

from __future__ import annotations

import inspect

import pytest

import jopeq
from jopeq import errors

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("kind", ALL)
def test_every_error_has_the_base_and_a_sentence(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.JoPEQError)
    assert kind.__doc__


def test_what_the_codec_raises_is_public() -> None:
    for name in ("JoPEQError", "UpdateError", "PayloadError", "MissingKeyError"):
        assert getattr(jopeq, name) is getattr(errors, name)
    assert jopeq.StateMismatchError is errors.StateMismatchError


@pytest.mark.parametrize("kind", [errors.UpdateError, errors.PayloadError])
def test_bad_updates_and_payloads_are_also_value_errors(kind: type[Exception]) -> None:
    assert issubclass(kind, ValueError)


@pytest.mark.parametrize("kind", [errors.MissingKeyError, errors.StateMismatchError])
def test_one_except_catches_whatever_is_wrong_with_a_payload(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.PayloadError)
