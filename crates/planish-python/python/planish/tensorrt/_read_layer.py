"""Layers of models that were read: they are looked at, told their precision, and wired to other tensors."""

from .._onnx_read import renamed, with_inputs
from ._enums import LayerType
from ._layers import ILayer

_KINDS = {
    "Conv": "CONVOLUTION", "ConvTranspose": "DECONVOLUTION", "MatMul": "MATRIX_MULTIPLY", "Gemm": "MATRIX_MULTIPLY",
    "Reshape": "SHUFFLE", "Transpose": "SHUFFLE", "Flatten": "SHUFFLE", "Concat": "CONCATENATION", "Expand": "SLICE", "Where": "SELECT",
    "QuantizeLinear": "QUANTIZE", "DequantizeLinear": "DEQUANTIZE", "Pad": "PADDING", "PRelu": "PARAMETRIC_RELU", "CumSum": "CUMULATIVE",
    "LogSoftmax": "SOFTMAX", "GatherElements": "GATHER", "GatherND": "GATHER", "ScatterElements": "SCATTER", "ScatterND": "SCATTER",
    "LayerNormalization": "NORMALIZATION", "InstanceNormalization": "NORMALIZATION", "GroupNormalization": "NORMALIZATION",
    "BatchNormalization": "SCALE", "NonZero": "NON_ZERO", "OneHot": "ONE_HOT", "GridSample": "GRID_SAMPLE", "NonMaxSuppression": "NMS",
}  # fmt: skip
_KINDS.update(dict.fromkeys("MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool GlobalLpPool".split(), "POOLING"))
_KINDS.update(dict.fromkeys("Relu Sigmoid Tanh LeakyRelu Elu Selu Softsign Softplus Clip HardSigmoid ThresholdedRelu Gelu".split(), "ACTIVATION"))
_KINDS.update(dict.fromkeys("Add Mul Max Min Sub Div Pow And Or Xor Equal Greater Less".split(), "ELEMENTWISE"))
_KINDS.update(dict.fromkeys("Exp Log Sqrt Reciprocal Abs Neg Sin Cos Tan Ceil Floor Erf Not Sign Round IsInf IsNaN".split(), "UNARY"))
_KINDS.update(dict.fromkeys("ReduceSum ReduceProd ReduceMax ReduceMin ReduceMean".split(), "REDUCE"))


class ReadLayer(ILayer):
    """A node of a model that was read."""

    def __init__(self, network, node, tensors):
        known = node.op.upper()
        object.__setattr__(self, "type", LayerType[_KINDS.get(node.op, known if known in LayerType.__members__ else "PLUGIN")])
        # Weights are part of a layer: tensors are what is computed.
        object.__setattr__(self, "_places", [place for place, name in enumerate(node.inputs) if name in tensors])
        object.__setattr__(self, "_node", node)
        super().__init__(network, [tensors[node.inputs[place]] for place in self._places], 0)
        self.name = node.name or f"{node.op}_{self.number}"
        outputs = []
        for index, name in enumerate(node.outputs):
            if name:
                tensor = tensors[name] if name in tensors else network._tensor_of(name)
                tensor._layer, tensor._index = self, index
                tensors[name] = tensor
                outputs.append(tensor)
        object.__setattr__(self, "_outputs", outputs)

    @property
    def pattern(self):
        """The node's name in the file; where it has none, what it makes."""
        return self._node.name or next(name for name in self._node.outputs if name)

    def casts(self, index, wanted):
        """Never by itself: what a network gives is converted where it leaves."""
        return False

    def emit(self, scope):
        """Writes the node, with what was wired to it since, and with the names that values have by now."""
        names, inputs = scope.renamed, list(self._node.inputs)
        for place, tensor in zip(self._places, self._inputs):
            if tensor is None or tensor.original != inputs[place]:
                inputs[place] = "" if tensor is None else scope.name_of(tensor)
        content = self._node.content if inputs == self._node.inputs else with_inputs(self._node.content, inputs)
        scope.graph.raw_node(renamed(content, names) if names else content)
        for tensor in self._outputs:
            scope.names[tensor] = names.get(tensor.original, tensor.original)
