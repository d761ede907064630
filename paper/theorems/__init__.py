"""The theorems of docs/paper.md: one file per theorem computes its numbers; figures and claims."""
