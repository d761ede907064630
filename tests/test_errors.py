"""Errors: one base, and ValueErrors where the caller's values are at fault."""

import inspect
import pickle

import jopeq
from jopeq import errors


def test_every_error_has_the_base_and_one_except_catches_whatever_is_wrong_with_a_payload():
    found = inspect.getmembers(errors, inspect.isclass)
    kinds = [kind for _, kind in found if kind.__module__ == errors.__name__]
    assert all(issubclass(kind, errors.JoPEQError) for kind in kinds)
    assert len({kind.code for kind in kinds}) == len(kinds)  # a code tells the class
    for kind in (errors.MissingSecretError, errors.StateMismatchError):
        assert issubclass(kind, errors.PayloadError)
        assert getattr(jopeq, kind.__name__) is kind
    for kind in (errors.UpdateError, errors.PayloadError):
        assert issubclass(kind, ValueError)
    again = pickle.loads(pickle.dumps(errors.PlanError("no room", code="room")))
    assert (str(again), again.code) == ("no room", "room")
