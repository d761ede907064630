"""Circles: every lie of a server is refused, hostile members are named and left out."""

import shutil
import struct
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jopeq.circle import CircleServer, Plan, digest
from jopeq.circle.circle import Entry, Kind, reply_statement
from jopeq.circle.crypto import unpack
from jopeq.errors import ProtocolError, TooFewClientsError
from tests.circle.circles import (
    CONTENT,
    HEAD,
    PROTOCOLS,
    Circle,
    flipped,
    forge,
    listed,
    message_of,
    opened,
    parts_of,
)

# Hostile servers


def test_attempts_that_no_client_takes(circle):
    one, other = circle(), circle()
    messages = opened(one)
    message = messages[1]
    first, second, *rest = listed(message)
    own = next(entry for entry in listed(message) if entry[:32] == one.identity(1))
    stranger = listed(opened(other)[1])[0]
    others = [entry for entry in listed(message) if entry != own]
    bound = one.terms.bind(one.trusted)

    def signed(identity, key, serial=0):
        """An entry as somebody with that private key would sign it."""
        entry = Entry(identity.public_key().public_bytes_raw(), key, serial)
        return replace(entry, signature=identity.sign(entry.statement(bound))).to_bytes()

    unknown = signed(Ed25519PrivateKey.generate(), others[0][32:64])
    hostile = next(n for n in one.numbers if one.identity(n) == others[0][:32])
    twin = signed(one.identities[hostile], others[1][32:64])
    weak = signed(one.identities[hostile], bytes(32))
    swapped = [own, others[0][:32] + bytes(range(32)) + others[0][64:], *others[1:]]

    def entries(chosen):
        return {"entries": b"".join(chosen)}

    lies = {
        "another spec": {"terms": replace(one.terms, spec="x").encoded},
        "a lower threshold": {"terms": replace(one.terms, clients=5).encoded},
        "attempt 9": {"numbers": struct.pack("<QI", 1, 9)},
        "attempt 0": {"numbers": struct.pack("<QI", 1, 0)},
        "another content": {"content": digest(b"another model")},
        "another plan": {"plan": Plan(bits=8, length=20, text="for 3").encoded},
        "fewer bits": {"plan": Plan(bits=7, length=20, text="for 4").encoded},
        "below the threshold": {
            **entries([first, second]), "plan": Plan(bits=8, length=20, text="for 2").encoded
        },
        "named twice": entries([first, second, rest[0], rest[0]]),
        "itself twice": entries(sorted([own, own, *others[:2]])),
        "in another order": entries([second, first, *rest]),
        "not named": {**entries(others), "plan": Plan(bits=8, length=20, text="for 3").encoded},
        "a stranger": entries(sorted([own, *others[:2], stranger])),
        "a swapped key": entries(sorted(swapped)),
        "somebody unknown": entries(sorted([own, *others[1:], unknown])),
        "another member's key": entries(sorted([own, twin, *others[1:]])),
        "a key of small order": entries(sorted([own, weak, *others[1:]])),
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
        "entries": b"".join(smaller), "plan": Plan(bits=4, length=20_000, text="for 3").encoded
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
            shutil.copytree(one.folder / "2", saved)
            for bad in (flipped(message, place), message[:place], message + b"\0"):
                reply = one.answer(2, bad)
                if reply is None:
                    assert one.ledgers[2].count() == before
                tried += reply is None
            shutil.rmtree(one.folder / "2")
            saved.rename(one.folder / "2")
            del one.ledgers[2].shares[before:]  # as if nothing had been sent
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


@pytest.mark.parametrize("lie", ["serial", "key", "another's key"])
def test_next_entries_that_do_not_follow(circle, lie):
    one, bound = circle(), None
    before = {}

    def spoil(number, reply):
        found, listed, _, vector = parts_of(reply)
        entry = Entry.from_bytes(listed)
        if reply[HEAD - 1] == 2:
            before[number] = entry
        elif number == 4 and one.exchanges == 2:
            key = {"key": before[4].key, "another's key": before[1].key}.get(lie, entry.key)
            entry = replace(entry, key=key, serial=entry.serial - (lie == "serial"))
            sign = one.identities[4].sign
            listed = replace(entry, signature=sign(entry.statement(bound))).to_bytes()
            signature = sign(reply_statement(Kind.REPLY, found, listed, vector))
            return message_of(reply[:HEAD], [found, listed, signature, vector])
        return reply

    bound, one.spoil = one.terms.bind(one.trusted), spoil
    assert one.run() == (1, 2, 3)
    assert set(one.server.refused) == {4}


def test_a_member_that_comes_back_under_another_number(circle):
    one = circle(5, 3)
    one.run(1)
    answer = one.answer
    one.lost = lambda exchange, number: number == 4
    one.answer = lambda number, message: answer(4 if number == 7 else number, message)
    one.vectors = Numbered(one.vectors)
    assert one.run(2, [1, 2, 3, 7]) == (1, 2, 3)
    assert one.run(3, [1, 2, 3, 4, 7]) == (1, 2, 3, 7)
    assert len(one.server.attempt.entries) == 4


class Numbered(dict):
    """Member 4 has number 7."""

    def __missing__(self, number):
        return self[4]


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
