"""``python -m jopeq_lab``: the command line."""

from jopeq_lab.cli import main

if __name__ == "__main__":
    main()
