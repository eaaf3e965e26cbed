"""The intermediate representation: nodes, graphs, the table of operations, verifier, text form, interpreter."""

from ampc.ir.builder import GraphBuilder
from ampc.ir.graph import AxisDecl, FieldDecl, Graph, Layer, Param
from ampc.ir.init import initial_parameters
from ampc.ir.interpret import Interpreter, Result
from ampc.ir.ops import OPS, Op, RowIndex, Scope, Segments, ShapeError, metric_value
from ampc.ir.state import Instance, instance_of
from ampc.ir.text import from_text, to_text
from ampc.ir.verify import verify

__all__ = [
    "OPS",
    "AxisDecl",
    "FieldDecl",
    "Graph",
    "GraphBuilder",
    "Instance",
    "Interpreter",
    "Layer",
    "Op",
    "Param",
    "Result",
    "RowIndex",
    "Scope",
    "Segments",
    "ShapeError",
    "from_text",
    "initial_parameters",
    "instance_of",
    "metric_value",
    "to_text",
    "verify",
]
