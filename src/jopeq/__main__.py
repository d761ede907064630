"""``python -m jopeq``: the command line."""

from jopeq.cli import main

if __name__ == "__main__":
    main()
