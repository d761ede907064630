"""One file a theorem: the numbers of docs/paper.md; the figures and claims beside them."""
