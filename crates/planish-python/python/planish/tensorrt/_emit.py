"""Networks as ONNX graphs: layers in scopes, as those of loops and branches are nodes of bodies."""

from .._onnx_bytes import ELEMENT_TYPES
from ._types import DataType, nptype

_FLOATS = (DataType.FLOAT, DataType.HALF, DataType.BF16)


def nptype_name(dtype):
    """The name of an element type, as ONNX's table here has it."""
    others = {DataType.BF16: "bfloat16", DataType.FP8: "float8_e4m3fn"}
    return others.get(dtype) or nptype(dtype).__name__.rstrip("_")


def cast(graph, name, dtype, label):
    """A value in another element type."""
    return graph.node("Cast", [name], label=label, to=ELEMENT_TYPES[nptype_name(dtype)])


def scalar(graph, name, label, dtype=None):
    """A value of one element as a number without axes."""
    name = name if dtype is None else cast(graph, name, dtype, f"{label}.type")
    return graph.node("Squeeze", [name], label=f"{label}.scalar")


class Scope:
    """The names that tensors have in a graph: the network's own, or that of a body, which sees those around it."""

    def __init__(self, graph, around=None, inside=()):
        self.graph, self._around, self._inside = graph, around, inside
        self.names = {}
        #: What values of a file are called otherwise by now.
        self.renamed = {} if around is None else around.renamed

    def name_of(self, tensor):
        """The name of a tensor, whose layer is written first where it was not."""
        scope = self
        while tensor not in scope.names and scope._around is not None and tensor._layer not in scope._inside:
            scope = scope._around
        if tensor not in scope.names:
            if tensor._layer is None:
                raise ValueError(f"`{tensor.name}` is no input of this network")
            tensor._layer.emit(scope)
        return scope.names[tensor]

    def write(self, tensors):
        """Writes, layer by layer in the network's order, all that tensors need of this scope; gives their names."""
        needed, todo = set(), [tensor._layer for tensor in tensors]
        while todo:
            layer = todo.pop()
            if layer in self._inside and layer not in needed and not layer.is_boundary:
                needed.add(layer)
                todo.extend(tensor._layer for tensor in layer.reads())
        for layer in sorted(needed, key=lambda layer: layer.number):
            if any(tensor not in self.names for tensor in layer._outputs):
                layer.emit(self)
        return [self.name_of(tensor) for tensor in tensors]

    def keep(self, layer, made):
        """The names of a layer's outputs, in the types that they were given."""
        for idx, (tensor, name) in enumerate(zip(layer._outputs, made)):
            wanted = layer._output_types.get(idx)
            if wanted is not None and layer.casts(idx, wanted):
                name = cast(self.graph, name, wanted, f"{layer.name}.type")
            self.names[tensor] = name


def inside_of(layers, boundary):
    """The layers that depend on those at the boundary of a loop or a conditional, which has `outputs` of its own."""
    inside = set(boundary.boundary)
    grew = True
    while grew:
        grew = False
        for layer in layers:
            if layer not in inside and layer not in boundary.outputs and any(tensor._layer in inside for tensor in layer.reads()):
                inside.add(layer)
                grew = True
    return inside


def is_hint(wanted, found, is_strongly_typed):
    """Whether a type that an output was given only says what its layer may be computed in."""
    return not is_strongly_typed and wanted in _FLOATS and found in _FLOATS
