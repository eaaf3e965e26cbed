"""The language: text to syntax tree, and the checks that need no shapes."""

from ampc.frontend.check import check, warnings
from ampc.frontend.parser import parse

__all__ = ["check", "parse", "warnings"]
