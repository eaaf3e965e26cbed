"""Pictures of graphs and placed programs: DOT by pydot, drawn as SVG or PNG."""

from ampc.view.drawing import Detail, check_detail, dot, drawn_nodes
from ampc.view.load import Load, load
from ampc.view.render import FORMATS, render, renderer
from ampc.view.words import describe

__all__ = ["FORMATS", "Detail", "Load", "check_detail", "describe", "dot", "drawn_nodes", "load", "render", "renderer"]
