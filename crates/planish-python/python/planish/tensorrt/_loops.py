"""Loops and conditionals of networks: layers between their boundaries are bodies of ONNX's Loop and If."""

from .._onnx_bytes import Graph
from ._emit import Scope, inside_of, nptype_name, scalar
from ._enums import LayerType, LoopOutput, TripLimit
from ._layers import ILayer, ints
from ._types import DataType


class _Boundary(ILayer):
    """A layer at the edge of a body: what it gives is known there alone."""

    is_boundary = True

    def emit(self, scope):
        """Refused: bodies name what their boundaries give."""
        raise ValueError(f"`{self.name}` is inside of a loop or a conditional; take its values out with add_loop_output or add_output")

    def infer(self):
        """What it reads."""
        return [(self._inputs[0].dtype, tuple(self._inputs[0].shape))]


class ITripLimitLayer(_Boundary):
    """How often a loop runs: `COUNT`, or `WHILE` a tensor is true."""

    type = LayerType.TRIP_LIMIT


class IRecurrenceLayer(_Boundary):
    """A value that goes from one run of a loop to the next: its second input is the next one."""

    type = LayerType.RECURRENCE


class IIteratorLayer(_Boundary):
    """The parts of a tensor along an axis, one a run."""

    type = LayerType.ITERATOR

    def infer(self):
        """The tensor without the axis."""
        shape = list(self._inputs[0].shape)
        shape.pop(self.axis)
        return [(self._inputs[0].dtype, tuple(shape))]


class _FromBody(ILayer):
    """A layer that takes a value out of a body."""

    def emit(self, scope):
        """Writes the whole node, with all that leaves it."""
        self.owner.emit(scope)


class ILoopOutputLayer(_FromBody):
    """What is kept of a tensor of a loop: its last value, or all of them along an axis."""

    type = LayerType.LOOP_OUTPUT

    def reads(self):
        """All that the loop reads."""
        return self.owner.reads()

    def infer(self):
        """The tensor, with an axis of as many as the loop ran."""
        tensor = self._inputs[0]
        shape = list(tensor.shape)
        if self.kind != LoopOutput.LAST_VALUE:
            shape.insert(self.axis, -1)
        return [(tensor.dtype, tuple(shape))]


class ILoop:
    """A loop: layers that depend on its recurrences and iterators are run again and again."""

    def __init__(self, network):
        self._network = network
        self.name = f"(Unnamed Loop {len(network._loops)})"
        self.limits, self.recurrences, self.iterators, self.outputs = [], [], [], []
        network._loops.append(self)

    @property
    def boundary(self):
        """The layers that are known inside alone."""
        return [*self.recurrences, *self.iterators]

    def add_trip_limit(self, tensor, kind):
        """Ends the loop after a count, or while a tensor of it is true."""
        layer = ITripLimitLayer(self._network, [tensor], kind=TripLimit(kind), loop=self)
        self.limits.append(layer)
        return layer

    def add_recurrence(self, initial_value):
        """A value from run to run; `set_input(1, next)` says what it becomes."""
        layer = IRecurrenceLayer(self._network, [initial_value], loop=self)
        self.recurrences.append(layer)
        return layer

    def add_iterator(self, tensor, axis=0, reverse=False):
        """The parts of a tensor along an axis."""
        layer = IIteratorLayer(self._network, [tensor], axis=axis, reverse=reverse, loop=self)
        self.iterators.append(layer)
        return layer

    def add_loop_output(self, tensor, kind, axis=0):
        """Takes a tensor out of the loop."""
        layer = ILoopOutputLayer(self._network, [tensor], kind=LoopOutput(kind), axis=axis, loop=self)
        object.__setattr__(layer, "owner", self)
        self.outputs.append(layer)
        return layer

    def reads(self):
        """All tensors of its boundary."""
        layers = [*self.limits, *self.boundary, *self.outputs]
        return [tensor for layer in layers for tensor in layer._inputs if tensor is not None]

    def _state(self, layer):
        """The recurrence whose last value an output is."""
        for position, recurrence in enumerate(self.recurrences):
            if layer._inputs[0] is recurrence._outputs[0]:
                return position
        raise ValueError(f"{self.name}: LAST_VALUE is of what a recurrence gives")

    def emit(self, scope):
        """Writes a Loop, and names what leaves it."""
        network, graph = self._network, scope.graph
        if not self.limits:
            raise ValueError(f"{self.name} never ends: it has no add_trip_limit")
        inside = inside_of(network._layers, self)
        for recurrence in self.recurrences:
            if len(recurrence._inputs) < 2:
                raise ValueError(f"{self.name}: `{recurrence.name}` has no next value; give it by set_input(1, tensor)")
        initial = [scope.name_of(layer._inputs[0]) for layer in self.recurrences]
        counts = [layer._inputs[0] for layer in self.limits if layer.kind == TripLimit.COUNT]
        whiles = [layer._inputs[0] for layer in self.limits if layer.kind == TripLimit.WHILE]
        count = scalar(graph, scope.name_of(counts[0]), f"{self.name}.count", DataType.INT64) if counts else None

        def condition(around, states):
            """Whether there is a next run, for these states."""
            again = Scope(around.graph, around, inside)
            again.names.update((layer._outputs[0], name) for layer, name in zip(self.recurrences, states))
            return scalar(around.graph, again.write(whiles)[0], f"{self.name}.condition")

        first = condition(scope, initial) if whiles else None
        body = Graph(f"{self.name}.body", around=graph)
        turn, go_on = body.name_like(f"{self.name}.turn"), body.name_like(f"{self.name}.going")
        body.input(turn, "int64", [])
        body.input(go_on, "bool", [])
        inner = Scope(body, scope, inside)
        for layer in self.recurrences:
            name = body.name_like(layer.name)
            dtype, shape = layer.infer()[0]
            body.input(name, nptype_name(dtype), [size if size >= 0 else f"{name}.{axis}" for axis, size in enumerate(shape)])
            inner.names[layer._outputs[0]] = name
        for layer in self.iterators:
            inner.names[layer._outputs[0]] = self._part(layer, scope, body, turn)
        following = inner.write([layer._inputs[1] for layer in self.recurrences])
        kept = [layer for layer in self.outputs if layer.kind != LoopOutput.LAST_VALUE]
        gathered = inner.write([layer._inputs[0] for layer in kept])
        ending = condition(inner, following) if whiles else go_on
        for name in [ending, *following, *gathered]:
            body.output(body.node("Identity", [name], label=f"{self.name}.gives"), None, None)
        wanted = [f"{layer.name}.last" for layer in self.recurrences] + [f"{layer.name}.all" for layer in kept]
        made = graph.node("Loop", [count, first, *initial], tuple(wanted), label=self.name, body=body)
        made = [made] if isinstance(made, str) else list(made)
        for layer in self.outputs:
            if layer.kind == LoopOutput.LAST_VALUE:
                scope.keep(layer, [made[self._state(layer)]])
            else:
                scope.keep(layer, [self._along(layer, graph, made[len(initial) + kept.index(layer)])])

    def _part(self, layer, scope, body, turn):
        """The part of an iterator's tensor for this turn."""
        source = scope.name_of(layer._inputs[0])
        if layer.reverse:
            sizes = body.node("Shape", [source], label=f"{layer.name}.sizes", start=int(layer.axis), end=int(layer.axis) + 1)
            last = body.node("Sub", [scalar(body, sizes, f"{layer.name}.size"), ints(body, f"{layer.name}.one", 1)], label=f"{layer.name}.last")
            turn = body.node("Sub", [last, turn], label=f"{layer.name}.turn")
        return body.node("Gather", [source, turn], label=layer.name, axis=int(layer.axis))

    def _along(self, layer, graph, name):
        """All values of a tensor, which lie along the first axis, along the one that is wanted."""
        rank = len(layer._inputs[0].shape) + 1
        if layer.kind == LoopOutput.REVERSE:
            numbers = [ints(graph, f"{layer.name}.{word}", [each]) for word, each in (("from", -1), ("to", -(2**31)), ("axes", 0), ("step", -1))]
            name = graph.node("Slice", [name, *numbers], label=f"{layer.name}.reversed")
        if layer.axis:
            order = list(range(1, rank))
            order.insert(layer.axis, 0)
            name = graph.node("Transpose", [name], label=layer.name, perm=order)
        return name


class IConditionLayer(_Boundary):
    """What a conditional goes by."""

    type = LayerType.CONDITION


class IIfConditionalInputLayer(_Boundary):
    """A tensor that the branches read."""

    type = LayerType.CONDITIONAL_INPUT


class IIfConditionalOutputLayer(_FromBody):
    """What the branch that is taken gives."""

    type = LayerType.CONDITIONAL_OUTPUT

    def reads(self):
        """All that the conditional reads."""
        return self.owner.reads()

    def infer(self):
        """What both branches have in common."""
        one, other = self._inputs
        sizes = [a if a == b else -1 for a, b in zip(one.shape, other.shape)]
        return [(one.dtype, tuple(sizes))]


class IIfConditional:
    """Two branches, of which one is run."""

    def __init__(self, network):
        self._network = network
        self.name = f"(Unnamed Conditional {len(network._loops)})"
        self.condition, self.boundary, self.outputs = None, [], []
        network._loops.append(self)

    def set_condition(self, condition):
        """The truth value that it goes by."""
        self.condition = IConditionLayer(self._network, [condition], conditional=self)
        return self.condition

    def add_input(self, input):  # noqa: A002, as TensorRT calls it
        """A tensor that branches read."""
        layer = IIfConditionalInputLayer(self._network, [input], conditional=self)
        self.boundary.append(layer)
        return layer

    def add_output(self, true_subgraph_output, false_subgraph_output):
        """What the one branch gives, or the other."""
        layer = IIfConditionalOutputLayer(self._network, [true_subgraph_output, false_subgraph_output], conditional=self)
        object.__setattr__(layer, "owner", self)
        self.outputs.append(layer)
        return layer

    def reads(self):
        """All tensors of its boundary."""
        layers = [*([self.condition] if self.condition else []), *self.boundary, *self.outputs]
        return [tensor for layer in layers for tensor in layer._inputs]

    def emit(self, scope):
        """Writes an If, and names what leaves it."""
        if self.condition is None:
            raise ValueError(f"{self.name} has no condition: call set_condition")
        inside, bodies = inside_of(self._network._layers, self), []
        condition = scalar(scope.graph, scope.name_of(self.condition._inputs[0]), f"{self.name}.condition")
        for branch in range(2):
            body = Graph(f"{self.name}.{branch}", around=scope.graph)
            inner = Scope(body, scope, inside)
            inner.names.update((layer._outputs[0], scope.name_of(layer._inputs[0])) for layer in self.boundary)
            for name in inner.write([layer._inputs[branch] for layer in self.outputs]):
                body.output(body.node("Identity", [name], label=f"{self.name}.gives"), None, None)
            bodies.append(body)
        wanted = tuple(layer.name for layer in self.outputs)
        made = scope.graph.node("If", [condition], wanted, label=self.name, then_branch=bodies[0], else_branch=bodies[1])
        for layer, name in zip(self.outputs, [made] if isinstance(made, str) else made):
            scope.keep(layer, [name])


