"""A graph of ATen operators as a model of Planish's.

The graphs are those that AOTAutograd makes: functional, each node with the type and sizes of what it makes. Sizes that are
not fixed are expressions over symbols, which are read off the inputs' sizes.
"""

import sympy
import torch

import planish

from .._onnx_bytes import ELEMENT_TYPES, Graph


class Unsupported(Exception):
    """Why a node, or a graph, cannot be computed here."""


def type_name(dtype):
    """The name of an element type, as files have it."""
    name = str(dtype)[len("torch.") :]
    if name not in ELEMENT_TYPES:
        raise Unsupported(f"its element type is {name}")
    return name


def content(tensor):
    """The bytes of a tensor's elements, in order."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = tensor.view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int8)
    return tensor.cpu().numpy().tobytes()


def made_by(node):
    """The type and sizes of what a node makes; a list of them for several."""
    return node.meta.get("val")


class Converter:
    """Operators become nodes of a file. `operators` says how, by the name of an ATen overload."""

    def __init__(self, name, operators):
        self.graph = Graph(name)
        self.operators = operators
        self._values = {}
        #: The input and axis whose size is a symbol.
        self._symbols = {}
        self._numbers = {}
        self._borrows = False

    def input(self, node):
        """Has the graph read what a node makes."""
        tensor = made_by(node)
        shape = [size if isinstance(size, int) else self._symbol(node.name, axis, size) for axis, size in enumerate(tensor.shape)]
        self.graph.input(node.name, type_name(tensor.dtype), shape)
        self._values[node] = node.name

    def _symbol(self, name, axis, size):
        expression = size.node.expr
        if not isinstance(expression, sympy.Symbol):
            # A size that is computed of others: the name stands for all of the same expression.
            return f"({expression})".replace(" ", "")
        self._symbols.setdefault(expression, (name, axis))
        return str(expression)

    def weight(self, node, tensor):
        """Has the graph hold a tensor, in the place of what a node makes."""
        self._values[node] = self.graph.weight(node.name, type_name(tensor.dtype), tensor.shape, content(tensor))

    def node(self, node):
        """Converts a node; what it reads is there already."""
        convert = self.operators.get(str(node.target))
        if convert is None:
            raise Unsupported("there is no rule for the operator")
        self._values[node] = convert(self, node)

    def output(self, node, name):
        """Has the graph give what a node makes."""
        tensor, value = made_by(node), self._values[node]
        if not isinstance(value, str):
            raise Unsupported("it makes several values, of which all are read")
        # An output has a name of its own.
        self.name_output(self.graph.node("Identity", [value], [name]), tensor)

    def name_output(self, name, tensor):
        """Has the graph give a value; sizes that are not fixed follow from the inputs'."""
        self.graph.output(name, type_name(tensor.dtype), [size if isinstance(size, int) else None for size in tensor.shape])

    def borrow_sizes(self):
        """Takes sizes that no input has from an input of their own: to try a node alone."""
        self._borrows = True

    def model(self):
        """What was converted."""
        return planish.Model(self.graph.to_bytes())

    # What rules read and write.

    def value(self, node):
        """The name of what a node makes, or a list of names."""
        return self._values[node]

    def number(self, value, dtype):
        """A constant number of an element type."""
        key = (repr(value), dtype)
        if key not in self._numbers:
            tensor = torch.tensor(value, dtype=dtype)
            self._numbers[key] = self.graph.weight("number", type_name(dtype), (), content(tensor))
        return self._numbers[key]

    def ints(self, values):
        """A constant list of int64."""
        values = tuple(values)
        if values not in self._numbers:
            tensor = torch.tensor(values, dtype=torch.int64).reshape(len(values))
            self._numbers[values] = self.graph.weight("ints", "int64", (len(values),), content(tensor))
        return self._numbers[values]

    def read(self, argument, dtype):
        """An argument, a node or a number, as a tensor of an element type."""
        if not isinstance(argument, torch.fx.Node):
            return self.number(argument, dtype)
        made = made_by(argument)
        if not isinstance(made, torch.Tensor):
            # A size that is computed with.
            scalar = self.op("Squeeze", [self._size(self.expression(argument)), self.ints([0])])
            return self.cast(scalar, torch.int64, dtype)
        return self.cast(self.value(argument), made.dtype, dtype)

    def cast(self, name, dtype, to):
        """A tensor in another element type."""
        if dtype == to:
            return name
        return self.graph.node("Cast", [name], to=ELEMENT_TYPES[type_name(to)])

    def op(self, op, inputs, outputs=("",), **attributes):
        """A node of the file."""
        return self.graph.node(op, inputs, outputs, **attributes)

    # Sizes.

    def expression(self, size):
        """A size, given as a number, an expression or the node that makes it, as a number or an expression."""
        if isinstance(size, torch.fx.Node):
            size = made_by(size)
        if isinstance(size, torch.SymInt):
            size = size.node.expr
        if isinstance(size, sympy.Expr):
            return int(size) if size.is_Integer else size
        if not isinstance(size, int):
            raise Unsupported(f"a size is {size!r}")
        return size

    def sizes(self, sizes):
        """A list of int64 with these sizes, of which some may be expressions."""
        sizes = [self.expression(size) for size in sizes]
        if all(isinstance(size, int) for size in sizes):
            return self.ints(sizes)
        return self.op("Concat", [self._size(size) for size in sizes], axis=0)

    def target_shape(self, sizes):
        """The same for a reshape, where one size may be left to it."""
        sizes = [self.expression(size) for size in sizes]
        open_ones = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
        if len(open_ones) == 1 and 0 not in sizes and -1 not in sizes:
            sizes[open_ones[0]] = -1
        return self.sizes(sizes)

    def _size(self, size):
        """One size, as a list of one int64."""
        if isinstance(size, int) or size.is_Integer:
            return self.ints([int(size)])
        key = ("size", size)
        if key not in self._numbers:
            self._numbers[key] = self._computed(size)
        return self._numbers[key]

    def _computed(self, size):
        if isinstance(size, sympy.Symbol):
            if size not in self._symbols and self._borrows:
                self.graph.input(f"size.{size}", "int64", (1,))
                return f"size.{size}"
            if size not in self._symbols:
                raise Unsupported(f"the size {size} is none of an input's")
            name, axis = self._symbols[size]
            return self.op("Shape", [name], start=axis, end=axis + 1)
        kind = type(size).__name__
        if kind == "Pow" and size.exp.is_Integer and size.exp > 0:
            made = self._size(size.base)
            for _ in range(int(size.exp) - 1):
                made = self.op("Mul", [made, self._size(size.base)])
            return made
        op = {"Add": "Add", "Mul": "Mul", "FloorDiv": "Div"}.get(kind)
        if op is None:
            raise Unsupported(f"the size {size} is computed by {kind}")
        parts = [self._size(part) for part in size.args]
        made = parts[0]
        for part in parts[1:]:
            made = self.op(op, [made, part])
        return made
