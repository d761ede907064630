"""One file a theorem: the numbers of docs/theory.md; the figures and claims beside them."""
