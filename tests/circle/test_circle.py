"""Circles: sums, dropouts, files, terms, and an attempt from the page alone."""

import hashlib
import json
import os
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jopeq.circle import CircleServer, CircleTerms, circle_client, read_audit
from jopeq.circle.crypto import unpack
from jopeq.errors import BudgetSpentError, ProtocolError, TooFewClientsError
from jopeq.sums.shares import centre, is_uniform
from tests.circle.circles import (
    CONTENT,
    ENTRY,
    HEAD,
    PROTOCOLS,
    Circle,
    message_of,
    opened,
    parts_of,
)

# Sums


@pytest.mark.parametrize(("dropouts", "exchanges"), [("repeat", [2, 1, 1]), ("recover", [5, 5, 5])])
def test_sums_and_exchanges(circle, dropouts, exchanges):
    one = circle(dropouts=dropouts, bits=11, length=100)
    for number, expected in enumerate(exchanges, 1):
        assert one.run(number) == (1, 2, 3, 4)
        assert one.exchanges == expected
    assert all(ledger.count() == 3 for ledger in one.ledgers.values())


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whoever_is_missing_whenever(tmp_path_factory, data):
    """Sums of those who are there, or a refusal; a charge for every share that was made."""
    dropouts = data.draw(st.sampled_from(PROTOCOLS))
    clients = data.draw(st.integers(4, 6))
    one = Circle(
        tmp_path_factory.mktemp("circle"),
        clients,
        data.draw(st.integers(clients // 2 + 2, clients)),
        bits=data.draw(st.integers(1, 32)),
        dropouts=dropouts,
        unsigned=data.draw(st.booleans()),
    )
    for number in (1, 2):
        gone = data.draw(st.dictionaries(st.integers(1, 8), st.sampled_from(one.numbers)))
        one.lost = lambda exchange, client, gone=gone: gone.get(exchange) == client
        with suppress(TooFewClientsError):
            one.run(number)
    for number, ledger in one.ledgers.items():
        path = one.clients[number].audit
        assert len(read_audit(path) if path.exists() else []) == ledger.count()


@pytest.mark.parametrize("dropouts", PROTOCOLS)
def test_a_missing_member_is_left_out_and_asked_again_after_1_2_4_rounds(circle, dropouts):
    one, asked = circle(dropouts=dropouts), set()
    current = 0

    def change(number, message):
        if number == 4:
            asked.add(current)
        return message

    one.change = change
    one.lost = lambda exchange, number: number == 4 and 2 <= current < 5
    for current in range(1, 10):
        # "repeat" gets the key of 4 in round 7, and its share in round 8
        is_there = current < 2 or current > 7 or (current == 7 and dropouts != "repeat")
        assert one.run(current) == ((1, 2, 3, 4) if is_there else (1, 2, 3))
    assert sorted(asked) == [1, 2, 4, 7, 8, 9]


@pytest.mark.parametrize("dropouts", PROTOCOLS)
def test_a_resumed_server_goes_on(circle, dropouts):
    one = circle(dropouts=dropouts)
    one.lost = lambda exchange, number: number == 4
    one.run(1)
    state = json.loads(json.dumps(one.server.state_dict()))
    one.server = CircleServer(one.terms, trusted=one.trusted)
    one.server.load_state_dict(state)
    assert one.run(2) == (1, 2, 3)  # 4 backs off
    with pytest.raises(ValueError, match="another circle"):
        CircleServer(replace(one.terms, spec="x"), trusted=one.trusted).load_state_dict(state)


def test_an_implausible_total_is_dropped_and_the_attempt_repeated(circle):
    one, seen = circle(), []

    def is_plausible(total, attempt):
        seen.append(attempt.attempt)
        return len(seen) > 2

    one.server = CircleServer(one.terms, trusted=one.trusted, is_plausible=is_plausible)
    one.run()
    assert seen == [1, 2, 3]
    assert one.ledgers[1].shares == [(1, 1), (1, 2), (1, 3)]  # each a new share, and charged
    one.server = CircleServer(one.terms, trusted=one.trusted, is_plausible=lambda *_: False)
    with pytest.raises(ProtocolError, match="8 attempts"):
        one.run(2)


def test_one_vector_of_random_integers_makes_a_total_uniform(circle):
    """Nobody can tell whose it was: the total is dropped while such vectors come."""
    one = circle(bits=10, length=200)
    replies = []

    def is_plausible(total, attempt):
        assert total.dtype == np.uint16
        replies.append(is_uniform(centre(total, 10, 200), 10))
        return not replies[-1]

    def answer(number, message):
        found = one.member(number).accept(message, content=CONTENT)
        if isinstance(found, bytes):
            return found
        if number == 3 and found.attempt.attempt < 3:
            return found.finish(one.random.integers(0, 1024, 200))
        return found.finish(np.rint(one.random.normal(0, 30, 200)).astype(int) % 1024)

    server = CircleServer(one.terms, trusted=one.trusted, is_plausible=is_plausible)
    messages = server.start(one.numbers, round_number=1, content=CONTENT)
    while messages:
        messages = server.step([(n, answer(n, message)) for n, message in messages.items()])
    assert replies == [True, True, False]
    assert one.ledgers[1].count() == 3


def test_what_the_server_sees_is_uniform(circle, assert_counts):
    one = circle(3, 3, bits=3, length=60_000)
    one.random = np.random.default_rng(7)
    replies = dict(one.exchange(opened(one)))
    for reply in replies.values():
        packed = parts_of(reply)[3]
        assert_counts(np.bincount(unpack(packed, 60_000, 3), minlength=8))
    two = [unpack(parts_of(replies[n])[3], 60_000, 3) for n in (1, 2)]
    assert_counts(np.bincount((two[0] + two[1]) % 8, minlength=8))  # nor do two of three open


# A client's files


def test_key_charge_and_audit_come_before_anything_is_computed(circle):
    one = circle()
    messages = opened(one)
    client, ledger = one.clients[1], one.ledgers[1]

    def charge(attempt):
        state = json.loads(next((one.folder / "1").glob(".*.key")).read_bytes())
        assert state["key"] == ""  # erased
        return ledger.charge(attempt)

    client._charge = charge
    assert not isinstance(client.accept(messages[1], content=CONTENT), bytes)
    (line,) = read_audit(client.audit)
    assert (line["serial"], line["epsilon"], line["round"]) == (1, 0.25, 1)
    assert line["cohort"] == sorted(one.identity(n).hex() for n in one.numbers)


@pytest.mark.parametrize("dropouts", PROTOCOLS)
def test_a_spent_budget_sends_nothing(circle, dropouts):
    one = circle(dropouts=dropouts)
    one.ledgers[4].budget = 1
    assert one.run(1) == (1, 2, 3, 4)
    assert one.run(2) == (1, 2, 3)
    assert isinstance(one.refusals[4], BudgetSpentError)
    assert one.ledgers[4].count() == 1


def test_an_attempt_gets_one_answer(circle):
    one = circle()
    messages = opened(one)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: one.answer(1, messages[1]), range(4)))
    assert sum(answer is not None for answer in answers) == 1
    assert one.ledgers[1].count() == 1
    ask = message_of(b"JoPC\1\1", [one.terms.encoded, bytes(32)])
    assert one.answer(1, ask) is not None  # a new key, and still no second answer
    assert one.answer(1, messages[1]) is None
    assert one.ledgers[1].count() == 1


def inboxes(one):
    """The messages for which members of a recovered sum pay."""
    messages = one.server.start(one.numbers, round_number=1, content=CONTENT)
    while not one.server.is_training:
        messages = one.server.step(one.exchange(messages))
    return messages


def test_a_recovered_attempt_gets_one_answer(circle):
    """Also while the member still trains, whom a later attempt then stops."""
    one = circle(dropouts="recover")
    messages, share = inboxes(one), np.zeros(20, int)
    due = {n: one.member(n).accept(messages[n], content=CONTENT) for n in (1, 2)}
    assert one.answer(1, messages[1]) is None
    assert due[1].finish(share)
    assert one.answer(1, messages[1]) is None
    other = CircleServer(one.terms, trusted=one.trusted)
    assert one.answer(2, other.start([2, 3, 4], round_number=2, content=CONTENT)[2]) is not None
    with pytest.raises(ProtocolError, match="another attempt"):
        due[2].finish(share)
    assert [one.ledgers[n].count() for n in (1, 2, 3)] == [1, 1, 0]


@pytest.mark.parametrize("part", [1, 2])
def test_a_recovered_sum_is_of_one_attempt(circle, part):
    """Another round or seed around the messages of this one."""
    one = circle(dropouts="recover")
    number, offered, inner = parts_of(message := inboxes(one)[1])
    parts = parts_of(offered)
    parts[part] = bytes((parts[part][0] ^ 1, *parts[part][1:]))
    forged = message_of(message[:HEAD], [number, message_of(offered[:HEAD], parts), inner])
    assert one.answer(1, forged) is None
    assert one.ledgers[1].count() == 0
    assert one.answer(1, message) is not None


def test_a_restarted_machine_forgets_a_recovered_attempt(circle, monkeypatch):
    one = circle(dropouts="recover")
    messages = inboxes(one)
    monkeypatch.setattr(circle_client, "boot_id", lambda: "another boot")
    assert one.answer(1, messages[1]) is None
    assert one.ledgers[1].count() == 0


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such permissions")
@pytest.mark.parametrize(("name", "mode"), [(".*.key", 0o644), ("serials.json", 0o622)])
def test_files_that_others_could_read_or_write_are_refused(circle, name, mode):
    one = circle()
    one.run(1)
    (file,) = (one.folder / "1").glob(name)
    file.chmod(mode)
    with pytest.raises(PermissionError):
        one.answer(1, message_of(b"JoPC\1\1", [one.terms.encoded, bytes(32)]))


def test_a_key_that_has_served_does_not_come_back(circle):
    """The key is restored from a copy, and the server repeats its message."""
    one = circle()
    messages = opened(one)
    (key,) = (one.folder / "1").glob(".*.key")
    before = key.read_bytes()
    assert one.answer(1, messages[1]) is not None
    key.write_bytes(before)
    assert one.answer(1, messages[1]) is None
    assert one.ledgers[1].count() == 1


def test_a_changed_audit_file_shows(circle):
    one = circle()
    for number in (1, 2, 3):
        one.run(number)
    path = one.clients[1].audit
    assert [line["round"] for line in read_audit(path)] == [1, 2, 3]
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])  # a power cut
    one.run(4)
    assert [line["round"] for line in read_audit(path)] == [1, 2, 4]
    path.write_bytes(whole.replace(b'"round": 2', b'"round": 9'))
    with pytest.raises(ProtocolError, match="line 3"):
        read_audit(path)


def test_a_restarted_machine_joins_anew(circle, monkeypatch):
    one = circle()
    one.run(1)
    monkeypatch.setattr(circle_client, "boot_id", lambda: "another boot")
    assert one.exchanges == 2
    one.numbers.remove(4)
    with pytest.raises(TooFewClientsError):  # all have restarted, and no key fits
        one.run(2)
    assert one.run(3) == (1, 2, 3)
    assert one.ledgers[1].count() == 2  # no share for the attempt that was refused


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_restored_ledger_is_refused(circle, is_kept):
    """By the client where its files were kept; else by the others and by the server."""
    one = circle(3, 3)
    for number in (1, 2, 3):
        one.run(number)
    one.ledgers[1].shares.pop()
    if not is_kept:
        shutil.rmtree(one.folder / "1")
    with pytest.raises(TooFewClientsError) as caught:
        one.run(4)
    assert 1 in caught.value.clients
    assert one.ledgers[1].count() == 2
    if is_kept:
        assert "restored" in str(one.refusals[1])
        return
    with pytest.raises(TooFewClientsError):
        one.run(4)  # the server asks for its key
    assert "serial" in one.server.refused[1]
    assert one.ledgers[2].count() == 4
    hostile = CircleServer(one.terms, trusted=one.trusted)  # does not care
    hostile._serials = {}
    one.server = hostile
    with pytest.raises(TooFewClientsError):
        one.run(5)
    assert {2, 3} <= one.refusals.keys()
    assert one.ledgers[2].count() == 4
    one.ledgers[1].shares += [(0, 0)] * 2  # raised by its owner
    assert one.run(6) == (1, 2, 3)


@pytest.mark.parametrize("dropouts", ["repeat", "recover"])
@pytest.mark.parametrize("is_left", ["all", "audit file", "nothing"])
def test_a_restored_ledger_is_refused_in_every_circle(circle, is_left, dropouts):
    """Another run's name and another protocol are another circle of the same identities."""
    one = circle(3, 3)
    for number in (1, 2, 3):
        one.run(number)
    other = circle(3, 3, circle="another run", dropouts=dropouts)
    for name in ("folder", "identities", "trusted", "ledgers"):
        setattr(other, name, getattr(one, name))
    other.server = CircleServer(other.terms, trusted=other.trusted)
    del one.ledgers[1].shares[1:]  # others have seen the serial of before the third share
    if is_left == "nothing":
        shutil.rmtree(one.folder / "1")
    elif is_left == "audit file":
        (one.folder / "1" / "serials.json").unlink()
    with pytest.raises(TooFewClientsError):
        other.run(1)
    told = other.refusals[1 if is_left != "nothing" else 2]
    assert "was restored" in str(told)
    assert [other.ledgers[n].count() for n in (2, 3)] == [3, 3]
    one.ledgers[1].shares += [(0, 0)] * 2  # raised by its owner
    assert other.run(20) == (1, 2, 3)


# Terms, and the page


@pytest.mark.parametrize(
    ("change", "name"),
    [
        *(({"threshold": value}, "threshold") for value in (2, 11, 7.5, True, None)),
        *(({"colluding": value}, "threshold|colluding") for value in (7, -1)),
        *(({"attempts": 0}, "attempts"), ({"dropouts": "retry"}, "dropouts")),
        *(({"spec": None}, "spec"), ({"unsigned": 2}, "unsigned")),
        ({"threshold": 5, "dropouts": "recover"}, "threshold"),
    ],
)
def test_impossible_terms(change, name):
    given = {"circle": "", "spec": "", "plan": None, "clients": 10, "threshold": 8}
    with pytest.raises(ValueError, match=name):
        CircleTerms(**{**given, **change})


def test_a_member_needs_the_list_that_names_it(circle):
    one = circle()
    for trusted in ((), one.trusted[1:]):
        one.trusted = trusted
        with pytest.raises(ValueError, match="trusted"):
            one.member(1)


def test_an_attempt_from_the_page_alone(circle):
    """docs/wire-format.md, section 15, without the library's code."""
    one = circle(3, 3, bits=11, length=50)
    messages = opened(one)
    private = json.loads(next((one.folder / "2").glob(".*.key")).read_bytes())["key"]
    reply = one.answer(2, messages[2])
    message = messages[2]
    assert message[:HEAD] == b"JoPC\1\3"
    terms, numbers, _, content, plan, entries = parts_of(message)
    texts = [b"test", b"random", b"repeat", struct.pack("<5I", 3, 3, 1, 8, 0)]
    assert terms == message_of(b"", texts)
    assert struct.unpack("<QI", numbers) == (1, 1)
    parts = (b"model", b"configuration")
    framed = b"".join(struct.pack("<Q", len(part)) + part for part in parts)
    assert content == hashlib.sha256(b"jopeq circle content\0" + framed).digest()
    assert plan == message_of(b"", [struct.pack("<BQ", 11, 50), b"for 3"])
    both = message_of(b"", [terms, b"".join(sorted(one.trusted))])
    bound = hashlib.sha256(b"jopeq circle\0" + both).digest()
    members = [entries[at : at + ENTRY] for at in range(0, len(entries), ENTRY)]
    for entry in members:
        statement = b"jopeq circle entry\0" + bound + entry[:72]
        Ed25519PublicKey.from_public_bytes(entry[:32]).verify(entry[72:], statement)
    transcript = hashlib.sha256(b"jopeq circle attempt\0" + bound + message).digest()
    at = [entry[:32] for entry in members].index(one.identity(2))
    total = one.vectors[2].astype(np.int64)
    for other, entry in enumerate(members):
        if other != at:
            ours = X25519PrivateKey.from_private_bytes(bytes.fromhex(private))
            secret = ours.exchange(X25519PublicKey.from_public_bytes(entry[32:64]))
            info = b"jopeq circle mask\0" + struct.pack("<II", *sorted((at, other)))
            key = HKDF(SHA256(), 32, salt=transcript, info=info).derive(secret)
            stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(bytes(100))
            mask = np.frombuffer(stream, "<u2").astype(np.int64)
            total = total + mask if at < other else total - mask
    number = sum(int(value) << 11 * place for place, value in enumerate(total % 2048))
    found, following, signature, vector = parts_of(reply)
    assert found == transcript
    assert vector == number.to_bytes((50 * 11 + 7) // 8, "little")
    signed = b"jopeq circle reply\0\4" + found + following + hashlib.sha256(vector).digest()
    Ed25519PublicKey.from_public_bytes(one.identity(2)).verify(signature, signed)
    assert struct.unpack("<Q", following[64:72]) == (1,)
