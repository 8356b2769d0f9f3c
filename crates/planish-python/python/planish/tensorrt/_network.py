"""Networks: read by an `OnnxParser`, or defined layer by layer."""

import os
import tempfile

import planish

from .._onnx_bytes import ELEMENT_TYPES, Graph
from .._onnx_read import File, renamed
from . import _layers as layers
from ._adding import Adding
from ._emit import Scope, cast, inside_of, nptype_name
from ._enums import NetworkDefinitionCreationFlag
from ._logger import say_once
from ._read_layer import ReadLayer
from ._tensor import ITensor
from ._types import DataType, Dims, dims_of, of_numpy


class INetworkDefinition(Adding):
    """A network."""

    def __init__(self, flags, logger=None, builder=None):
        self.flags = int(flags)
        self.name = ""
        self.builder, self.error_recorder = builder, None
        self._logger = logger
        #: The model that was read, its file, and whether it is still as it was read.
        self._model, self._file, self._is_as_read = None, None, True
        self._inputs, self._outputs, self._own, self._loops = [], [], [], []
        #: The model, the types of what was read, and those of each layer, as far as they were asked for.
        self._known, self._is_rewired = {}, False

    has_implicit_batch_dimension = False
    has_explicit_precision = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def get_flag(self, flag):
        """Whether it was made with a flag."""
        return bool(self.flags >> int(flag) & 1)

    @property
    def is_strongly_typed(self):
        """Whether types are as they are said to be."""
        return self.get_flag(NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    def _changed(self, layer=None):
        """Something was set: of a layer, which those before it do not depend on, unless they were wired to it afterwards."""
        self._is_as_read = False
        if layer is None or self._is_rewired:
            self._known.clear()
            return
        for known in [known for known in self._known if known == "model" or isinstance(known, layers.ILayer) and known.number >= layer.number]:
            del self._known[known]

    @property
    def model(self):
        """The model that it stands for; None where it is empty. A network that cannot be is an error."""
        if self._model is not None and self._is_as_read:
            return self._model
        if not self._outputs:
            return None
        if "model" not in self._known:
            self._known["model"] = planish.Model(self._to_onnx())
        return self._known["model"]

    # Models that were read.

    def read(self, model):
        """Takes a model that was read."""
        self._model, self.name = model, model.name
        self._inputs = [self._tensor_of(info.name, of_numpy(info.dtype), dims_of(info)) for info in model.inputs]
        self._outputs = [self._tensor_of(info.name, of_numpy(info.dtype), dims_of(info)) for info in model.outputs]
        for tensor, info in zip(self._inputs, model.inputs):
            tensor.axis_names = {axis: size for axis, size in enumerate(info.shape or ()) if isinstance(size, str)}
        self._own, self._is_as_read = None, True

    def _tensor_of(self, name, dtype=None, shape=None):
        tensor = ITensor(self, name, dtype, shape)
        tensor.original, tensor.original_dtype = name, dtype
        return tensor

    @property
    def _layers(self):
        """The layers: those of a model that was read are made when somebody looks at them."""
        if self._own is None:
            self._own = []
            was_as_read = self._is_as_read
            tensors = {tensor.original: tensor for tensor in self._inputs + self._outputs}
            for node in self._opened().nodes:
                ReadLayer(self, node, tensors)
            self._is_as_read = was_as_read
        return self._own

    @property
    def touched_layers(self):
        """The layers that somebody may have told something."""
        return self._own or []

    def _opened(self):
        """The file of a model that was read."""
        if self._file is None:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "model.onnx")
                self._model.save_onnx(path)
                with open(path, "rb") as file:
                    self._file = File(file.read())
        return self._file

    def _read_types(self):
        """The types and sizes of all that a model computes, by name, for the inputs as they are now."""
        if "read" not in self._known:
            graph, scope = self._begun()
            for layer in self._layers:
                if isinstance(layer, ReadLayer):
                    graph.raw_node(renamed(layer._node.content, scope.renamed) if scope.renamed else layer._node.content)
            names = [name for node in self._opened().nodes for name in node.outputs if name]
            for name in names:
                graph.output(scope.renamed.get(name, name), None, None)
            infos = planish.Model(graph.to_bytes()).outputs
            self._known["read"] = {name: _type_of(info) for name, info in zip(names, infos)}
        return self._known["read"]

    @property
    def num_inputs(self):
        """How many inputs there are."""
        return len(self._inputs)

    @property
    def num_outputs(self):
        """How many outputs there are."""
        return len(self._outputs)

    @property
    def num_layers(self):
        """How many layers there are."""
        return len(self._layers)

    def __len__(self):
        return len(self._layers)

    def __iter__(self):
        return iter(self._layers)

    def __getitem__(self, index):
        return self._layers[index]

    def get_input(self, index):
        """An input, by its number."""
        return self._inputs[index]

    def get_output(self, index):
        """An output, by its number."""
        return self._outputs[index]

    def get_layer(self, index):
        """A layer, by its number."""
        return self._layers[index]

    def mark_output(self, tensor):
        """Has the network give a tensor."""
        if not tensor.is_network_output:
            self._outputs.append(tensor)
        self._changed()

    def unmark_output(self, tensor):
        """The other way."""
        self._layers  # noqa: B018, what makes the tensor is known from then on
        self._outputs = [each for each in self._outputs if each is not tensor]
        self._changed()

    def mark_output_for_shapes(self, tensor):
        """The same: sizes are tensors like any other."""
        self.mark_output(tensor)
        return True

    def unmark_output_for_shapes(self, tensor):
        """The other way."""
        self.unmark_output(tensor)
        return True

    def remove_tensor(self, tensor):
        """Forgets a tensor: it is no output any more."""
        self.unmark_output(tensor)
        self._inputs = [each for each in self._inputs if each is not tensor]

    def set_weights_name(self, weights, name):
        """Taken, and left alone: weights are exchanged by whole models."""
        return True

    def mark_weights_refittable(self, name):
        """Taken, and left alone: weights are exchanged by whole models."""
        return True

    unmark_weights_refittable = are_weights_marked_refittable = mark_weights_refittable

    def mark_debug(self, tensor):
        """Refused: mark the tensor as an output, or see `planish run --dump-tensors`."""
        say_once(self._logger, "tensors are not listened to; mark them as outputs, or see `planish run --dump-tensors`")
        return False

    unmark_debug = is_debug_tensor = mark_debug

    # What the network amounts to.

    def _computed(self, tensor):
        """The type and the sizes of what a layer makes."""
        layer = tensor._layer
        if isinstance(layer, ReadLayer):
            return self._read_types()[tensor.original]
        for each in self._unknown_before(layer):
            self._known[each] = each.infer() if hasattr(each, "infer") else self._inferred_alone(each)
        return self._known[layer][tensor._index]

    def _unknown_before(self, layer):
        """The layers whose types have to be found for those of this one, it being the last."""
        order, seen, todo = [], set(), [(layer, False)]
        while todo:
            each, is_left = todo.pop()
            if is_left:
                order.append(each)
            elif each is not None and each not in seen and each not in self._known and not isinstance(each, ReadLayer):
                seen.add(each)
                todo.append((each, True))
                # What a recurrence becomes has the type that it begins with.
                reads = each._inputs[:1] if each.is_boundary else each._inputs
                todo.extend((tensor._layer, False) for tensor in reads if tensor is not None)
        return order

    def _actual(self, tensor):
        """The type in which a tensor is computed with, whatever hints there are."""
        layer = tensor._layer
        if layer is None:
            return tensor.dtype if tensor.original_dtype is None else tensor.original_dtype
        wanted = layer._output_types.get(tensor._index)
        return wanted if wanted is not None and layer.casts(tensor._index, wanted) else self._computed(tensor)[0]

    def _inferred(self, tensor):
        """The same, in the type that was asked for."""
        dtype, shape = self._computed(tensor)
        return tensor._layer._output_types.get(tensor._index, dtype), shape

    def _inferred_alone(self, layer):
        """The types and the sizes of what a layer makes, by a model of that layer alone."""
        graph, names, shapes = Graph("layer"), [], []
        for position, read in enumerate(layer._inputs):
            if read is None:
                names.append(None)
                continue
            shape = [size if size >= 0 else f"d{position}_{axis}" for axis, size in enumerate(read.shape)]
            shapes.append(tuple(read.shape))
            # Constants are part of it: sizes may follow from their elements.
            if isinstance(read._layer, layers.IConstantLayer):
                names.append(read._layer.nodes(graph, [], [])[0])
            else:
                graph.input(f"in{position}", nptype_name(self._actual(read)), shape)
                names.append(f"in{position}")
        for name in layer.nodes(graph, names, shapes):
            graph.output(name, None, None)
        return [_type_of(info) for info in planish.Model(graph.to_bytes()).outputs]

    def _shape_for_onnx(self, tensor):
        sizes = enumerate(tensor.shape)
        return [size if size >= 0 else tensor.axis_names.get(axis) or f"{tensor.name}.{axis}" for axis, size in sizes]

    def _begun(self):
        """A graph with the inputs as they are now, and the scope that knows their names."""
        graph = Graph(self.name or "network")
        scope = Scope(graph)
        if self._model is not None:
            graph.go_on(self._opened())
        for tensor in self._inputs:
            graph.input(tensor.name, nptype_name(tensor.dtype), self._shape_for_onnx(tensor))
            name = tensor.name
            if tensor.original is not None and tensor.dtype != tensor.original_dtype:
                name = cast(graph, name, tensor.original_dtype, f"{tensor.name}.type")
            scope.names[tensor] = name
            if tensor.original not in (None, name):
                scope.renamed[tensor.original] = name
        return graph, scope

    def _to_onnx(self):
        graph, scope = self._begun()
        given = {tensor.name for tensor in self._outputs if not tensor.is_network_input}
        graph.reserve(given)
        for tensor in self._outputs:
            # An output's name is free for what leaves the network, if that is not what the file has under it.
            if tensor.original in given and (self._leaves_as(tensor) or tensor.name != tensor.original):
                scope.renamed.setdefault(tensor.original, graph.name_like(f"{tensor.original}.made"))
        inside = set()
        for loop in self._loops:
            inside |= inside_of(self._layers, loop)
        for layer in self._layers:
            if layer not in inside and not layer.is_boundary and any(tensor not in scope.names for tensor in layer._outputs):
                layer.emit(scope)
        for tensor in self._outputs:
            name, wanted = scope.name_of(tensor), self._leaves_as(tensor)
            if name != tensor.name:
                graph.release(tensor.name)
            if wanted is not None:
                graph.node("Cast", [name], (tensor.name,), label=f"{tensor.name}.output", to=ELEMENT_TYPES[nptype_name(wanted)])
            elif name != tensor.name:
                graph.node("Identity", [name], (tensor.name,), label=f"{tensor.name}.output")
            graph.output(tensor.name, None, None)
        return graph.to_bytes()

    def _leaves_as(self, tensor):
        """The type that an output is converted to where it leaves; None where it is as it is computed."""
        if tensor._layer is None:
            return None
        wanted = tensor.wanted if tensor.wanted is not None else tensor._layer._output_types.get(tensor._index)
        return None if wanted in (None, self._computed(tensor)[0]) else wanted


def _type_of(info):
    """The type and the sizes of a tensor; those of what is no tensor are of none."""
    try:
        return of_numpy(info.dtype), dims_of(info)
    except TypeError:
        return DataType.FLOAT, Dims()
