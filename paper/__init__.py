"""The paper's tables, figures and theorems, made with the library: see README.md."""
