"""`python -m ampc` is the command `ampc`."""

from ampc.cli import entry

if __name__ == "__main__":
    entry()
