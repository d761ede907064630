"""Circles: sums are right, every lie of a server is refused, hostile members are left out."""

import hashlib
import json
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

from jopeq.errors import BudgetSpentError, ProtocolError, TooFewClientsError
from jopeq.secure import (
    CircleServer,
    CircleTerms,
    Plan,
    circle_client,
    digest,
    looks_uniform,
    read_audit,
)
from jopeq.secure.masks import unpack
from tests.secure.circles import CONTENT, HEAD, Circle, message_of, parts_of

PROTOCOLS = ("repeat", "ready", "recover")
ENTRY = 136


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)  # no power cut here, and 60 s less


@pytest.fixture
def circle(tmp_path):
    return lambda *sizes, **options: Circle(tmp_path, *sizes, **options)


def flipped(message, place):
    return message[:place] + bytes((message[place] ^ 1,)) + message[place + 1 :]


def opened(one, round_number=1):
    """The messages of the first attempt, after the keys."""
    messages = one.server.start(one.numbers, round_number=round_number, content=CONTENT)
    return one.server.step(one.exchange(messages))


# Sums


@pytest.mark.parametrize(
    ("dropouts", "exchanges"), [("repeat", [2, 1, 1]), ("ready", [2, 2, 2]), ("recover", [5, 5, 5])]
)
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
    one = circle(bits=10, length=60)
    replies = []

    def is_plausible(total, attempt):
        assert total.dtype == np.uint16
        replies.append(looks_uniform(total, 10))
        return not replies[-1]

    def answer(number, message):
        return one.member(number).answer(
            message,
            content=CONTENT,
            train=lambda attempt: one.random.normal(0, 30, 60),
            encode=lambda attempt, x: (
                one.random.integers(0, 1024, 60)
                if number == 3 and attempt.attempt < 3
                else np.rint(x).astype(int) % 1024
            ),
        )

    server = CircleServer(one.terms, trusted=one.trusted, is_plausible=is_plausible)
    messages = server.start(one.numbers, round_number=1, content=CONTENT)
    while messages:
        messages = server.step([(n, answer(n, message)) for n, message in messages.items()])
    assert replies == [True, True, False]
    assert one.ledgers[1].count() == 3


def test_ready_charges_only_what_is_released(circle):
    one = circle(dropouts="ready")
    one.lost = lambda exchange, number: number == 4
    messages = one.server.start(one.numbers, round_number=1, content=CONTENT)
    assert one.server.is_training
    messages = one.server.step(one.exchange(messages))
    assert not one.server.is_training
    assert set(messages) == {1, 2, 3}
    assert not any(ledger.count() for ledger in one.ledgers.values())
    for changes in ({"seed": bytes(32)}, {"numbers": struct.pack("<QI", 1, 2)}):
        assert one.answer(1, forge(messages[1], **changes)) is None  # trained for another attempt
    assert one.ledgers[1].count() == 0
    assert one.server.step(one.exchange(messages)) == {}
    assert [ledger.count() for ledger in one.ledgers.values()] == [1, 1, 1, 0]


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
    order, client = [], one.clients[1]
    ledger = one.ledgers[1]

    def charge(attempt):
        order.append("charge")
        state = json.loads(next((one.folder / "run" / "1").glob(".*.key")).read_bytes())
        assert state["key"] == ""  # erased
        return ledger.charge(attempt)

    def train(attempt):
        order.append("train")
        assert attempt.honest == 3  # of 4, one of whom may collude
        (line,) = read_audit(client.audit)
        assert (line["serial"], line["epsilon"], line["round"]) == (1, 0.25, 1)
        assert line["cohort"] == sorted(one.identity(n).hex() for n in one.numbers)
        return np.zeros(20, int)

    client._charge = charge
    client.answer(messages[1], content=CONTENT, train=train, encode=lambda attempt, x: x)
    assert order == ["charge", "train"]


@pytest.mark.parametrize("dropouts", PROTOCOLS)
def test_a_spent_budget_sends_nothing(circle, dropouts):
    one = circle(dropouts=dropouts)
    one.ledgers[4].budget = 1
    assert one.run(1) == (1, 2, 3, 4)
    assert one.run(2) == (1, 2, 3)
    assert isinstance(one.refusals[4], BudgetSpentError)
    assert one.ledgers[4].count() == 1


@pytest.mark.parametrize("dropouts", ["repeat", "ready"])
def test_an_attempt_gets_one_answer(circle, dropouts):
    one = circle(dropouts=dropouts)
    messages = opened(one)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: one.answer(1, messages[1]), range(4)))
    assert sum(answer is not None for answer in answers) == 1
    assert one.ledgers[1].count() == 1
    ask = message_of(b"JoPC\1\1", [one.terms.to_bytes(), bytes(32)])
    assert one.answer(1, ask) is not None  # a new key, and still no second answer
    assert one.answer(1, messages[1]) is None
    assert one.ledgers[1].count() == 1


def test_a_key_that_has_served_does_not_come_back(circle):
    """The key folder is restored from a copy, and the server repeats its message."""
    one = circle()
    messages = opened(one)
    shutil.copytree(one.folder / "run" / "1", one.folder / "copy")
    assert one.answer(1, messages[1]) is not None
    shutil.rmtree(one.folder / "run" / "1")
    (one.folder / "copy").rename(one.folder / "run" / "1")
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
        shutil.rmtree(one.folder / "run" / "1")
    with pytest.raises(TooFewClientsError) as caught:
        one.run(4)
    assert 1 in caught.value.clients
    assert one.ledgers[1].count() == 2
    if is_kept:
        assert "restored" in str(one.refusals[1])
        return
    hostile = CircleServer(one.terms, trusted=one.trusted)  # does not care
    hostile._serials = {}
    one.server = hostile
    with pytest.raises(TooFewClientsError):
        one.run(5)
    assert {2, 3} <= one.refusals.keys()
    assert one.ledgers[2].count() == 4
    one.ledgers[1].shares += [(0, 0)] * 2  # raised by its owner
    assert one.run(6) == (1, 2, 3)


# Hostile servers


def forge(message, **changes):
    """An ATTEMPT with other parts: terms, numbers, seed, content, plan, entries."""
    names = ("terms", "numbers", "seed", "content", "plan", "entries")
    parts = dict(zip(names, parts_of(message), strict=True)) | changes
    return message_of(message[:HEAD], parts.values())


def listed(message):
    entries = parts_of(message)[5]
    return [entries[at : at + ENTRY] for at in range(0, len(entries), ENTRY)]


def test_attempts_that_no_client_takes(circle):
    one, other = circle(), circle()
    messages = opened(one)
    message = messages[1]
    first, second, *rest = listed(message)
    own = next(entry for entry in listed(message) if entry[:32] == one.identity(1))
    stranger = listed(opened(other)[1])[0]
    others = [entry for entry in listed(message) if entry != own]
    swapped = [own, others[0][:32] + bytes(range(32)) + others[0][64:], *others[1:]]
    small = [own, others[0][:32] + bytes(32) + others[0][64:], *others[1:]]

    def entries(chosen):
        return {"entries": b"".join(chosen)}

    lies = {
        "another spec": {"terms": replace(one.terms, spec="x").to_bytes()},
        "a lower threshold": {"terms": replace(one.terms, clients=5).to_bytes()},
        "attempt 9": {"numbers": struct.pack("<QI", 1, 9)},
        "attempt 0": {"numbers": struct.pack("<QI", 1, 0)},
        "another content": {"content": digest(b"another model")},
        "another plan": {"plan": Plan(bits=8, length=20, text="for 3").to_bytes()},
        "fewer bits": {"plan": Plan(bits=7, length=20, text="for 4").to_bytes()},
        "below the threshold": {
            **entries([first, second]), "plan": Plan(bits=8, length=20, text="for 2").to_bytes()
        },
        "named twice": entries([first, second, rest[0], rest[0]]),
        "itself twice": entries(sorted([own, own, *others[:2]])),
        "in another order": entries([second, first, *rest]),
        "not named": {**entries(others), "plan": Plan(bits=8, length=20, text="for 3").to_bytes()},
        "a stranger": entries(sorted([own, *others[:2], stranger])),
        "a swapped key": entries(sorted(swapped)),
        "a key of small order": entries(sorted(small)),
        "half an entry": {"entries": parts_of(message)[5][:-1]},
        "a short seed": {"seed": b"x"},
    }  # fmt: skip
    for name, changes in lies.items():
        assert one.answer(1, forge(message, **changes)) is None, name
        assert one.ledgers[1].count() == 0, name
    assert one.answer(1, message, content=digest(b"another model")) is None
    assert one.answer(1, message, content=None) is None
    assert one.answer(1, message) is not None


@pytest.mark.parametrize("part", ["seed", "round", "content", "cohort"])
def test_a_server_that_tells_members_different_things_gets_noise(circle, part, assert_counts):
    """Client 1 is told something else than the others, who believe the server too."""
    one = circle(4, 3, bits=4, length=20_000)
    messages = opened(one)
    content = CONTENT
    changes = {"seed": {"seed": bytes(32)}, "round": {"numbers": struct.pack("<QI", 2, 1)}}
    changes["content"] = {"content": digest(b"another model")}
    smaller = [e for e in listed(messages[1]) if e[:32] != one.identity(4)]
    changes["cohort"] = {
        "entries": b"".join(smaller), "plan": Plan(bits=4, length=20_000, text="for 3").to_bytes()
    }  # fmt: skip
    if part == "content":
        content = digest(b"another model")
    replies = {1: one.answer(1, forge(messages[1], **changes[part]), content=content)}
    replies |= {n: one.answer(n, messages[n]) for n in (2, 3, 4)}
    vectors = {n: unpack(parts_of(reply)[3], 20_000, 4) for n, reply in replies.items()}
    for cohort in ((1, 2, 3, 4), (1, 2, 3), (2, 3, 4), (1,)):
        noise = sum(vectors[n] for n in cohort) - sum(one.vectors[n] for n in cohort)
        assert_counts(np.bincount(noise % 16, minlength=16))
    assert set(one.server.step(replies.items())) == {2, 3, 4}  # a new attempt without it
    assert set(one.server.refused) == {1}


def test_endless_attempts_end_with_the_budget(circle):
    one = circle()
    for ledger in one.ledgers.values():
        ledger.budget = 5
    for number in range(5):
        one.run(1)  # the same label, a new share each time
        assert one.ledgers[1].count() == number + 1
    with pytest.raises(TooFewClientsError):
        one.run(1)
    assert one.ledgers[1].count() == 5


@pytest.mark.parametrize("dropouts", PROTOCOLS)
def test_any_byte_changed_on_its_way_to_a_client(circle, dropouts):
    """Refused without a charge, or answered so that the server refuses it: never a wrong sum."""
    one = circle(3, 3, length=3, dropouts=dropouts)
    tried = 0

    def change(number, message):
        nonlocal tried
        if number != 2:
            return message
        places = one.random.choice(len(message), 25)
        before = one.ledgers[2].count()
        for place in (len(message) - 1, *places):
            saved = one.folder / "saved"
            shutil.copytree(one.folder / "run" / "2", saved, dirs_exist_ok=False)
            for bad in (flipped(message, place), message[:place], message + b"\0"):
                reply = one.answer(2, bad)
                if reply is None:
                    assert one.ledgers[2].count() == before
                tried += reply is None
            shutil.rmtree(one.folder / "run" / "2")
            saved.rename(one.folder / "run" / "2")
            shutil.rmtree(one.folder / "2")  # and its ledger: as if nothing had been sent
            del one.ledgers[2].shares[before:]
        return message

    one.change = change
    assert one.run() == (1, 2, 3)
    assert tried > 60


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_fuzzed_messages_are_refused_and_charge_nothing(fuzzed, data):
    """Cut, joined, with other lengths: clients and servers raise ``ProtocolError`` and no more."""
    one, messages, replies = fuzzed[data.draw(st.sampled_from(PROTOCOLS))]
    sent = data.draw(st.sampled_from([*messages, *replies, b""]))
    parts = parts_of(sent)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(len(parts) - 1, 0)))
        new = data.draw(st.binary(max_size=200) | st.sampled_from(parts or [b""]))
        parts[place : place + data.draw(st.integers(0, 1))] = [new]
    kind = data.draw(st.integers(0, 9))
    bad = message_of(b"JoPC\1" + bytes((kind,)), parts)[: data.draw(st.integers(0, 2000))]
    if bad in (*messages, *replies):
        return
    before = one.ledgers[1].count()
    reply = one.answer(1, bad)
    assert one.ledgers[1].count() == before
    assert reply is None or reply[HEAD - 1] in (2, 6, 8)  # keys cost nothing
    server = CircleServer(one.terms, trusted=one.trusted)
    asked = server.start(one.numbers, round_number=1, content=CONTENT)
    with suppress(ProtocolError):
        server.step([(number, bad) for number in asked])
    assert server.total is None


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """For each protocol a circle, the last messages to client 1, and its replies."""
    found = {}
    for dropouts in PROTOCOLS:
        one = Circle(tmp_path_factory.mktemp(dropouts), dropouts=dropouts)
        messages, replies = [], []
        one.change = lambda number, message, to=messages: (
            (number == 1 and to.append(message)) or message
        )
        one.spoil = lambda number, reply, to=replies: (number == 1 and to.append(reply)) or reply
        one.run()
        found[dropouts] = one, messages, replies
    return found


# Hostile clients


def bad_replies(one, number, reply, others):
    head, parts = reply[:HEAD], parts_of(reply)
    yield b""
    yield b"\0" * len(reply)
    yield reply[:-1]
    yield reply + b"\0"
    yield flipped(reply, HEAD + 8)  # another transcript
    yield flipped(reply, len(reply) - 1)
    yield from others  # a reply for somebody else
    if len(parts) == 4:
        yield message_of(head, [parts[0], parts[1], parts[2], parts[3] + b"\0"])
        yield message_of(head, [parts[0], parts[1][:-1], parts[2], parts[3]])
        yield message_of(head, [parts[0], flipped(parts[1], 64), parts[2], parts[3]])  # its serial


@pytest.mark.parametrize("dropouts", PROTOCOLS)
@pytest.mark.parametrize("exchange", [1, 2])
def test_a_hostile_client_is_named_and_left_out(circle, tmp_path, dropouts, exchange):
    # "recover" without a flipped last byte: that is one box, and its receiver's word against 4's
    for kind in range(10) if dropouts != "recover" else (0, 1, 2, 3, 6):
        (tmp_path / str(kind)).mkdir()
        one = Circle(tmp_path / str(kind), dropouts=dropouts)
        sent = {}

        def spoil(number, reply, one=one, sent=sent, kind=kind):
            sent[number] = reply
            if number != 4 or one.exchanges != exchange:
                return reply
            bad = list(bad_replies(one, number, reply, [sent[1]]))
            return bad[kind]

        one.spoil = spoil
        assert one.run(1) == (1, 2, 3)
        assert set(one.server.refused) == {4}
    one.spoil = lambda number, reply: reply
    assert one.run(2) == (1, 2, 3)
    assert one.run(3) == ((1, 2, 3) if dropouts == "repeat" else (1, 2, 3, 4))
    assert one.run(4) == (1, 2, 3, 4)


def test_late_replies_of_an_abandoned_attempt_are_refused(circle):
    one = circle()
    one.lost = lambda exchange, number: number == 4 and exchange == 2
    late = []

    def spoil(number, reply):
        if one.exchanges == 3 and not one.late:
            one.late = late
        return reply

    answer = one.answer

    def keep(number, message):
        reply = answer(number, message)
        if number == 4 and one.exchanges == 2:
            late.append((4, reply))
        return reply

    one.answer, one.spoil = keep, spoil
    assert one.run(1) == (1, 2, 3)
    assert late
    assert set(one.server.refused) == {4}
    one.late = []
    one.lost = lambda exchange, number: False
    one.run(2)
    one.late = late  # still later, when 4 is in the cohort again
    one.run(3)
    assert one.run(4) == (1, 2, 3, 4)


def test_nobody_takes_the_place_of_another_member(circle):
    """An entry that somebody else has seen is of no use: keys are signed for each question."""
    one = circle()
    messages = opened(one)
    one.exchange(messages)
    entry = next(entry for entry in listed(messages[1]) if entry[:32] == one.identity(2))

    def spoil(number, reply):
        if number != 4 or reply[HEAD - 1] != 2:
            return reply
        parts = parts_of(reply)
        return message_of(reply[:HEAD], [parts[0], entry, parts[2], parts[3]])

    one.server = CircleServer(one.terms, trusted=one.trusted)
    one.spoil = spoil
    assert one.run(2) == (1, 2, 3)
    assert set(one.server.refused) == {4}


# Terms, and the page


def test_without_identities_one_share_is_left():
    terms = CircleTerms(circle="", spec="", plan=lambda n: None, clients=10, threshold=8)
    assert terms.honest(10) == 9
    assert terms.honest(8) == 7
    assert replace(terms, dropouts="recover").honest(10) == 7
    assert replace(terms, unsigned=True).honest(10) == 1


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
    folder = one.folder / "run" / "2"
    private = json.loads(next(folder.glob(".*.key")).read_bytes())["key"]
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
