"""The explorer: one page that shows what a setting costs, whom it protects and what is learnt.

``grid`` asks the library at every place of a grid, ``page`` puts the page together. The page looks
numbers up and multiplies; a test compares it with ``answer``. ``tools/make_explorer.py`` writes
``data/``. This room may import every room but ``jopeq.cli``.
"""

from jopeq_lab.explorer.grid import Answer, Refusal, Setting, answer
from jopeq_lab.explorer.page import page

__all__ = ["Answer", "Refusal", "Setting", "answer", "page"]
