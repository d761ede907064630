"""Sums are right with any dropouts the threshold allows; everything else is refused."""

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jopeq.circle.client import Client
from jopeq.circle.crypto import add_mask, commitment, public, self_mask_key, unpack
from jopeq.circle.messages import Entry, Kind, Reader, Roster, Terms, to_bits
from jopeq.circle.server import Server
from jopeq.circle.shamir import SHARE_BYTES, combine
from jopeq.errors import ProtocolError, TooFewClientsError

HEADER = 22  # bytes before the body of every message


def flipped(message, place):
    return message[:place] + bytes((message[place] ^ 1,)) + message[place + 1 :]


@settings(max_examples=30)
@given(st.data())
def test_dropouts_at_every_step(round_of, data):
    clients = data.draw(st.integers(3, 9))
    threshold = data.draw(st.integers(clients // 2 + 1, clients))
    is_signed = data.draw(st.booleans())
    one = round_of(clients, threshold, bits=data.draw(st.integers(1, 32)), is_signed=is_signed)
    gone, lost = set(), {}
    for step in ("keys", "shares", "masked", "open", *(["sign"] if is_signed else [])):
        lost[step] = data.draw(st.sets(st.sampled_from(one.numbers), max_size=2))
        gone |= lost[step]
    if clients - len(gone) >= threshold:
        assert one.run(lost).tolist() == one.expected()
        assert len(one.server.alive) >= threshold
    else:
        with pytest.raises(TooFewClientsError, match="nothing was opened"):
            one.run(lost)
    assert not one.refusals


def test_neighbours_of_a_large_cohort(round_of):
    one = round_of(120, 100, length=7)
    lost = {"shares": {103, 150}, "masked": {104, 151, 219}, "open": {110, 160}}
    assert one.run(lost).tolist() == one.expected()
    assert len(one.server.alive) == 115
    shares = {len(message) for message in one.sent["shares"].values()}
    assert max(shares) < 119 * 82  # to neighbours, not to everybody


def test_what_the_server_sees_is_uniform(round_of, assert_counts):
    one = round_of(3, 2, bits=3, length=60_000)
    one.vectors = {number: np.zeros(60_000, int) for number in one.numbers}
    one.run()
    for message in one.sent["masked"].values():
        bits = np.unpackbits(np.frombuffer(message[HEADER:], np.uint8), bitorder="little")
        assert_counts(np.bincount(bits[:180_000].reshape(-1, 3) @ [1, 2, 4], minlength=8))


def test_below_the_threshold_no_client_opens(round_of):
    one = round_of(5, 4)
    with pytest.raises(TooFewClientsError):
        one.run({"masked": {100, 101}})
    flags = to_bits([False, False, True, True, True])  # the server asks all the same
    for number in (102, 103, 104):
        with pytest.raises(TooFewClientsError, match="3 clients"):
            one.clients[number].open(
                one.terms.message(Kind.SURVIVORS, flags, *one.confirmations(number, range(2, 5)))
            )
    assert all(one.clients[number].phase == "open" for number in (102, 103, 104))
    with pytest.raises(ProtocolError, match="'failed'"):
        one.server.total([])


def test_a_client_opens_once_and_one_share_of_each(round_of):
    one = round_of(4, 3)
    one.run({"masked": {102}})
    for message in one.sent["open"].values():
        assert len(message) == HEADER + 1 + 4 * SHARE_BYTES  # one share of each, not two
    for client in (one.clients[100], one.clients[101]):
        with pytest.raises(ProtocolError, match="'done'"):
            client.open(one.got["open"][100])
        assert '"shares": {}' in client.to_bytes().decode()  # and nothing is left to open
        assert '["", "", ""]' in client.to_bytes().decode()


def test_a_server_that_tells_two_stories_gets_one_secret_of_each_client(round_of):
    """Half of the clients hear that 100 survived, half that it is gone: neither secret opens."""
    one = round_of(6, 4)

    def change(step, number, message):
        if step != "open":
            return message
        flags = [True] * 6
        flags[0] = number % 2 == 0 or number == 100
        told = one.confirmations(number, range(not flags[0], 6))
        return one.terms.message(Kind.SURVIVORS, to_bits(flags), *told)

    with pytest.raises(ProtocolError):
        one.run(change=change)
    transcript = Roster.from_bytes(one.got["shares"][100], one.terms).transcript
    for is_even in (True, False):
        opened = {
            number - 99: message[HEADER + 1 :][:SHARE_BYTES]
            for number, message in one.sent["open"].items()
            if (number % 2 == 0) == is_even
        }
        assert len(opened) == 3  # of 4 that are needed
        with suppress(ProtocolError):  # almost every wrong value fits into 32 bytes
            secret = combine(opened)
            assert commitment(secret, transcript) != one.sent["shares"][100][HEADER:][:32]
            assert public(secret) != one.sent["keys"][100][HEADER:][:32]


def test_signed_lists_stop_two_stories(round_of):
    one = round_of(6, 4, is_signed=True)

    def change(step, number, message):
        flags = [number % 2 == 0] + [True] * 5
        return one.terms.message(Kind.SURVIVORS, to_bits(flags)) if step == "sign" else message

    with pytest.raises(TooFewClientsError):  # the server that follows the protocol
        one.run(change=change)
    assert set(one.server.refused) == {101, 103, 105}
    signatures = [one.sent["sign"][number][HEADER:] for number in range(101, 105)]
    flags = [place in (1, 2, 3, 4) for place in range(6)]  # one that does not
    last = one.terms.message(Kind.SIGNATURES, to_bits(flags), *signatures)
    for number in (101, 102):
        with pytest.raises(ProtocolError, match="has not signed this list"):
            one.clients[number].open(last)


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("step", ["keys", "shares", "masked", "sign", "open"])
def test_changed_messages_to_a_client_are_refused(round_of, step, is_signed):
    """Any byte flipped, cut off or added: a refusal and an unchanged client. The round goes on."""
    if step == "sign" and not is_signed:
        return
    one = round_of(3, 3, length=3, is_signed=is_signed)
    tried = 0

    def change(now, number, message):
        nonlocal tried
        if now != step or number != 101:
            return message
        before = one.clients[101].to_bytes()
        changed = [message[:-1], message + b"\0", message[:HEADER], b"", message[::-1]]
        changed += [flipped(message, place) for place in range(len(message))]
        for bad in changed:
            one.clients[101] = Client.from_bytes(before, one.terms, **one.keys[101])
            reply = one.answer(step, 101, bad)
            # a changed key of another client cannot be seen without signatures: the shares that
            # it leads to cannot be opened (the next test)
            if step != "shares" or is_signed or len(bad) != len(message):
                assert reply is None, (step, changed.index(bad))
                assert one.clients[101].to_bytes() == before
            tried += reply is None
        one.clients[101] = Client.from_bytes(before, one.terms, **one.keys[101])
        return message

    assert one.run(change=change).tolist() == one.expected()
    assert tried > 20


def test_messages_repeated_early_or_of_another_round(round_of):
    one, other = round_of(3, 2), round_of(3, 2)
    other.run()
    steps = ("keys", "shares", "masked", "open")

    def change(step, number, message):
        for wrong in steps:  # all of the other round, and of this one those that do not fit
            for messages in (other.got[wrong], one.got[wrong] if wrong != step else {}):
                if number in messages:
                    assert one.answer(wrong, number, messages[number]) is None
        return message

    assert one.run(change=change).tolist() == one.expected()
    assert all(one.answer(step, 100, one.got[step][100]) is None for step in steps)  # once more
    again = Client(one.terms, 100)
    again.keys(one.server.offer)
    with pytest.raises(ProtocolError, match="other keys"):  # of the same round, tried before
        again.shares(one.got["shares"][100])


@pytest.mark.parametrize(
    "lie",
    [
        *({"spec": "other"}, {"bits": 9}, {"length": 21}, {"clients": 5}, {"threshold": 4}),
        *({"colluding": 1}, {"is_signed": True}, {"seed": bytes(32)}, {"round": bytes(16)}),
    ],
    ids=str,
)
def test_a_server_that_offers_other_terms_is_refused(round_of, lie):
    one = round_of(4, 3)
    with pytest.raises(ProtocolError, match="the server's terms are"):
        one.clients[100].keys(replace(one.terms, **lie).to_bytes())


def test_a_server_that_tells_clients_other_terms_or_rosters_gets_nothing(round_of):
    one = round_of(4, 3)  # 100 and 101 are told another seed than 102 and 103, and believe it
    told = replace(one.terms, seed=bytes(32))
    for number in (100, 101):
        one.clients[number] = Client(told, number)

    def other_terms(step, number, message):
        return told.to_bytes() if step == "keys" and number in (100, 101) else message

    with pytest.raises(TooFewClientsError):
        one.run(change=other_terms)
    assert "told other terms or another roster" in one.refusals[100]
    assert not one.sent["masked"]

    two = round_of(4, 3)

    def other_roster(step, number, message):
        if step != "shares" or number != 103:
            return message
        first, *rest = Roster.from_bytes(message, two.terms).entries  # the server plays client 100
        return Roster(two.terms, (replace(first, share_key=bytes(31) + b"k"), *rest)).to_bytes()

    with pytest.raises(TooFewClientsError):
        two.run(change=other_roster)
    assert not two.sent["masked"]


def test_rosters_that_no_client_takes(round_of):
    one = round_of(4, 3, is_signed=True)
    one.run()
    roster = Roster.from_bytes(one.got["shares"][100], one.terms)
    strange = round_of(4, 3, is_signed=True)
    strange.run()
    theirs = Roster.from_bytes(strange.got["shares"][100], strange.terms).entries
    first, *rest = roster.entries
    lists = {
        "not trusted": (first, *theirs[1:]),
        "not signed": (first, replace(rest[0], share_key=bytes(32)), *rest[1:]),
        "not in the roster": tuple(rest),
        "must rise": (rest[0], first, *rest[1:]),
        "are the same": (first, replace(rest[0], share_key=rest[1].share_key), *rest[1:]),
        "has 2": (first, rest[0]),
    }
    for reason, entries in lists.items():
        client = Client(one.terms, 100, **one.keys[100])
        mine = Entry.read(Reader(client.keys(one.server.offer), Kind.KEYS), 100, one.terms)
        forged = object.__new__(Roster)  # as a server without our checks would
        listed = tuple(mine if entry is first else entry for entry in entries)
        forged.__dict__.update(terms=one.terms, entries=listed)
        with pytest.raises(ProtocolError, match=reason):
            client.shares(forged.to_bytes())
        assert client.phase == "shares"


@pytest.mark.parametrize("step", ["keys", "shares", "masked", "sign", "open"])
def test_a_hostile_client_is_left_out_or_stops_the_round(round_of, step):
    """Cut, lengthened, foreign, random: as if the client had dropped out. Never a wrong sum."""
    random = np.random.default_rng(3)
    for kind in range(5):
        one = round_of(5, 3, is_signed=True)

        def spoil(now, number, reply, kind=kind):
            bad = [reply[:-1], reply + b"\0", b"", random.bytes(len(reply)), reply[:HEADER]]
            return bad[kind] if (now, number) == (step, 102) else reply

        one.spoil = spoil
        assert one.run().tolist() == one.expected()
        assert 102 in one.server.refused
        assert (102 in one.server.alive) == (step in ("sign", "open"))


@pytest.mark.parametrize("place", [0, 32], ids=["mask key", "share key"])
@pytest.mark.parametrize("bad", ["small order", "twice", "another client's"])
def test_keys_that_nobody_can_use_do_not_stop_the_round(round_of, place, bad):
    one = round_of(5, 3)
    offers = dict(one.step("keys", dict.fromkeys(one.numbers, one.server.offer)))
    at, other = HEADER + place, HEADER + 32 - place
    key = {
        "small order": bytes(32),
        "twice": offers[104][other : other + 32],
        "another client's": offers[100][at : at + 32],
    }[bad]
    offers[104] = offers[104][:at] + key + offers[104][at + 32 :]
    assert set(one.server.roster(offers.items())) == {100, 101, 102, 103}
    assert set(one.server.refused) == {104}


def test_second_messages(round_of):
    two = round_of(4, 3)
    offers = two.step("keys", dict.fromkeys(two.numbers, two.server.offer))
    strangers = [(number, offers[0][1]) for number in (-1, 1 << 64)]  # whom no roster can name
    two.server.roster([*strangers, *offers, offers[0], (999, b"")])
    assert set(two.server.refused) == {-1, 1 << 64, 100, 999}
    with pytest.raises(ProtocolError, match="not at 'roster'"):
        two.server.roster(offers)


def test_a_sealed_share_that_was_changed_stops_its_receiver(round_of):
    one = round_of(4, 3)
    to_100 = HEADER + 32
    one.spoil = lambda step, number, reply: (
        flipped(reply, to_100) if (step, number) == ("shares", 103) else reply
    )
    assert one.run().tolist() == one.expected()
    assert list(one.refusals) == list(one.server.refused) == [100]
    assert one.server.alive == (101, 102, 103)


def test_signed_terms_need_identities(round_of):
    terms = round_of(3, 2, is_signed=True).terms
    for make in (lambda: Client(terms, 1), lambda: Server(terms)):
        with pytest.raises(ValueError, match="signed terms need"):
            make()
    for me in (-1, 1.5, True, "a"):
        with pytest.raises(ValueError, match="me must be"):
            Client(replace(terms, is_signed=False), me)


@pytest.mark.parametrize("twin", ["top bit", "other point"])
def test_a_twin_of_a_key_cancels_no_mask(twin):
    """A client sends a key with which others agree on the secret that they share with client 1."""
    terms = Terms(spec="", bits=8, length=50, clients=3, threshold=3, colluding=1)
    clients, server = {number: Client(terms, number) for number in (1, 2, 3)}, Server(terms)
    keys = {number: client.keys(server.offer) for number, client in clients.items()}
    point = int.from_bytes(keys[1][HEADER : HEADER + 32], "little")
    prime = (1 << 255) - 19
    point = point | 1 << 255 if twin == "top bit" else pow(point, -1, prime)
    entry = replace(clients[3]._entry(), mask_key=point.to_bytes(32, "little"))
    clients[3]._entry = lambda: entry
    keys[3] = terms.message(Kind.KEYS, entry.keys())
    roster = server.roster(keys.items())
    inboxes = server.inboxes([(n, client.shares(roster[n])) for n, client in clients.items()])
    assert not server.refused
    clients[2].receive(inboxes[2])
    own = self_mask_key(clients[2]._seed, server._roster.bind([True] * 3))
    seen = unpack(clients[2].mask(np.arange(50))[HEADER + 32 :], 50, 8)
    add_mask(seen, own, -1)
    assert np.count_nonzero(seen == np.arange(50)) < 10  # by chance 50/256
