"""The language: text to syntax tree, and the checks that need no shapes."""

from ampc.frontend.parser import parse

__all__ = ["parse"]
