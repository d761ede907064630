"""A grid without a network: messages go to apps in this process."""

import itertools

from jopeq.circle.circle import kind_of
from jopeq.flower.tasks import RECORD


class Grid:
    """Delivers copies of messages; those of which ``is_lost(step_of(message), node)`` never arrive.

    ``change`` may alter a message on its way, and ``spoil(node, reply)`` a reply.
    """

    def __init__(self, flower, apps, contexts, step_of=lambda _: None):
        self.flower, self.apps, self.contexts, self.step_of = flower, apps, contexts, step_of
        self.is_lost, self.change, self.spoil = (lambda *_: False), (lambda m: m), (lambda n, r: r)
        self.replies, self.numbers, self.sent = {}, itertools.count(), []
        self.contents = []  # of all replies

    def get_node_ids(self):
        return list(self.apps)

    def push_messages(self, messages):
        return [self.push(message) for message in messages]

    def push(self, message):
        number, node = str(next(self.numbers)), message.metadata.dst_node_id
        self.sent.append(message)
        if not self.is_lost(self.step_of(message), node):
            told = self.change(self.flower.copied(message))
            reply = self.spoil(node, self.apps[node](told, self.contexts[node]))
            reply.metadata.__dict__["_reply_to_message_id"] = number
            self.replies[number] = reply
            if not reply.has_error():
                self.contents.append(reply.content)
        return number

    def pull_messages(self, numbers):
        return [self.replies.pop(number) for number in numbers if number in self.replies]

    def send_and_receive(self, messages, *, timeout=None):
        assert not list(messages)
        return []

    def lose(self, *which):
        """The messages of these numbers, counted for each node, never arrive."""
        seen = dict.fromkeys(self.apps, 0)

        def is_lost(_, node):
            seen[node] += 1
            return (node, seen[node]) in which

        self.is_lost = is_lost

    def kinds(self):
        return [kind_of(message.content[RECORD]["message"]) for message in self.sent]

    def sizes(self):
        return [len(content[RECORD]["message"]) for content in self.contents]


def codes_of(error):
    """Codes of the refusals in the last round."""
    return {failure.code for failure in error.value.reports[-1].failed}
