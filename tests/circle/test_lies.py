"""Lies of a server without identities, and what one hostile client can spoil."""

import hashlib
from contextlib import suppress
from itertools import cycle, islice

import numpy as np
import pytest

from jopeq.circle import crypto
from jopeq.circle.crypto import add_mask, unpack
from jopeq.circle.messages import Kind, Roster, to_bits
from jopeq.circle.shamir import SHARE_BYTES, combine
from jopeq.errors import ProtocolError

HEADER = 22


def spoiled(message, start):
    return message[:start] + hashlib.shake_128(message).digest(len(message) - start)


@pytest.mark.parametrize("is_signed", [False, True])
def test_a_server_that_tells_one_client_of_fewer_senders_does_not_open_it(round_of, is_signed):
    """Client 100 masks with t − 1 others, and lists of survivors differ: the keys of all of those
    others open. Without confirmations that is the vector of client 100."""
    n, t = 13, 8
    one = round_of(n, t, is_signed=is_signed)
    victim = [place < t for place in range(n)]
    gone = cycle(range(1, t))
    lists = {}
    for number in one.numbers[1:]:  # n − t of the others are gone, each in t lists at least
        dead = set()
        while len(dead) < n - t:
            dead.update({next(gone)} - {number - 100})
        lists[number] = [place not in dead for place in range(n)]
    assert all(sum(not flags[place] for flags in lists.values()) >= t for place in range(1, t))

    def change(step, number, message):
        if step == "masked" and number == 100:
            size = 2 * SHARE_BYTES + crypto.TAG_BYTES
            boxes = message[HEADER + 2 :][: (t - 1) * size]
            return one.terms.message(Kind.INBOX, to_bits(victim), boxes)
        if step in ("sign", "open") and number != 100:
            flags = lists[number]
            if not is_signed:
                alive = [place for place in range(n) if flags[place]]
                told = b"".join(one.confirmations(number, alive))
                return one.terms.message(Kind.SURVIVORS, to_bits(flags), told)
            if step == "sign":
                return one.terms.message(Kind.SURVIVORS, to_bits(flags))
        return message

    with suppress(ProtocolError):
        one.run(change=change)
    assert 100 in one.sent["masked"]
    opened = {(place, is_seed): {} for place in range(n) for is_seed in (True, False)}
    for number, message in one.sent["open"].items():
        flags = int.from_bytes(message[HEADER : HEADER + 2], "little")
        for place in range(n):
            start = HEADER + 2 + place * SHARE_BYTES
            share = message[start : start + SHARE_BYTES]
            opened[place, bool(flags >> place & 1)][number - 99] = share
    seen = one.sent["masked"][100][HEADER:]
    total = unpack(seen[0 if is_signed else 16 * (t - 1) :], 20, 8)
    roster = Roster.from_bytes(one.got["shares"][100], one.terms)
    bound = roster.bind(victim)
    found = 0
    for place in range(t):
        some = dict(islice(opened[place, place == 0].items(), t))
        if len(some) < t:
            continue
        secret = combine(some)
        if place == 0:
            add_mask(total, crypto.self_mask_key(secret, bound), -1)
        else:
            theirs = roster.entries[0].mask_key
            add_mask(total, crypto.mask_key(secret, theirs, bound, 0, place), -1)
        found += 1
    assert found < t
    assert np.count_nonzero(total == one.vectors[100]) < 10


def test_garbage_for_everybody_names_its_sender_and_the_next_round_works(round_of):
    one = round_of(5, 4)
    one.spoil = lambda step, number, reply: (
        spoiled(reply, HEADER + 32) if (step, number) == ("shares", 102) else reply
    )
    with pytest.raises(ProtocolError) as caught:
        one.run()
    assert caught.value.clients == (102,)
    assert set(one.complaints) == {100, 101, 103, 104}
    assert set(one.sent["masked"]) == {102}  # nobody else has anything to charge


def test_a_false_complaint_is_its_senders_loss(round_of):
    one = round_of(5, 3)
    one.spoil = lambda step, number, reply: (
        one.terms.message(Kind.COMPLAINT, to_bits([True] * 5))
        if (step, number) == ("masked", 102)
        else reply
    )
    assert one.run().tolist() == one.expected()
    assert set(one.server.refused) == {102}
    assert one.server.alive == (100, 101, 103, 104)


@pytest.mark.parametrize(("clients", "threshold", "bad"), [(4, 3, 1), (7, 5, 2), (20, 12, 3)])
def test_wrong_shares_at_the_end_do_not_stop_the_round(round_of, clients, threshold, bad):
    """One share more than needed for each that is wrong: other subsets open the sum."""
    one = round_of(clients, threshold)
    liars = one.numbers[:bad]

    def spoil(step, number, reply):
        if step != "open" or number not in liars:
            return reply
        flip = HEADER + (clients + 7) // 8 + number - 100  # not the same bit: errors may cancel
        return reply[:flip] + bytes((reply[flip] ^ 1,)) + reply[flip + 1 :]

    one.spoil = spoil
    assert one.run().tolist() == one.expected()
    assert set(one.server.refused) == set(liars)
    assert len(one.server.alive) == clients


def test_wrong_shares_that_nobody_can_replace_have_a_name(round_of):
    one = round_of(3, 3)
    one.spoil = lambda step, number, reply: (
        reply[: HEADER + 1] + bytes(SHARE_BYTES) + reply[HEADER + 1 + SHARE_BYTES :]
        if (step, number) == ("open", 101)
        else reply
    )
    with pytest.raises(ProtocolError) as caught:
        one.run()
    assert caught.value.clients == (100,)  # whose shares these are; 101 opened one of them


def test_false_confirmations_leave_their_sender_out(round_of):
    one = round_of(5, 3)
    one.spoil = lambda step, number, reply: (
        reply[:HEADER] + bytes(4 * 16) + reply[HEADER + 4 * 16 :]
        if (step, number) == ("masked", 102)
        else reply
    )
    assert one.run().tolist() == one.expected()
    assert one.server.alive == (100, 101, 103, 104)
    assert set(one.server.refused) == {102}
