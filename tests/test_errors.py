"""Errors: one base, and ValueErrors where the caller's values are at fault."""

import inspect

import jopeq
from jopeq import errors


def test_every_error_has_the_base_and_one_except_catches_whatever_is_wrong_with_a_payload():
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        assert issubclass(kind, errors.JoPEQError)
    for kind in (errors.MissingSecretError, errors.StateMismatchError):
        assert issubclass(kind, errors.PayloadError)
        assert getattr(jopeq, kind.__name__) is kind
    for kind in (errors.UpdateError, errors.PayloadError):
        assert issubclass(kind, ValueError)
