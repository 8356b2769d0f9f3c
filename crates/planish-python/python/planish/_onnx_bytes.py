"""ONNX files from their parts, without the `onnx` package: as much of the format as exporters of this package write.

Messages of protocol buffers are lists of fields: a number, and a varint, four bytes, or bytes with their length.
"""

import struct

#: The opset of what is written.
OPSET = 23
#: The version of the format that goes with it.
IR_VERSION = 11

#: `TensorProto.DataType` by the names of numpy and torch.
ELEMENT_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "string": 8,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e5m2": 19,
}


def _varint(number):
    number &= (1 << 64) - 1
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _int(field, number):
    return _varint(field << 3) + _varint(number)


def _bytes(field, content):
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field, text):
    return _bytes(field, text.encode())


def _attribute(name, value):
    # `AttributeProto`: name 1, f 2, i 3, s 4, t 5, floats 7, ints 8, strings 9; its type is field 20.
    if isinstance(value, (bool, int)):
        return _text(1, name) + _int(3, int(value)) + _int(20, 2)
    if isinstance(value, float):
        return _text(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _int(20, 1)
    if isinstance(value, str):
        return _text(1, name) + _text(4, value) + _int(20, 3)
    if isinstance(value, Graph):
        # A body: g is field 6.
        return _text(1, name) + _bytes(6, value.graph_bytes()) + _int(20, 5)
    if value and all(isinstance(item, str) for item in value):
        return _text(1, name) + b"".join(_text(9, item) for item in value) + _int(20, 8)
    if all(isinstance(item, int) for item in value):
        return _text(1, name) + b"".join(_int(8, item) for item in value) + _int(20, 7)
    return _text(1, name) + b"".join(_varint(7 << 3 | 5) + struct.pack("<f", item) for item in value) + _int(20, 6)


def _value_info(name, dtype, shape):
    def dim(size):
        # A number, a name, or neither.
        return _int(1, size) if isinstance(size, int) else _text(2, size) if size else b""

    sizes = b"".join(_bytes(1, dim(size)) for size in shape)
    tensor = _int(1, ELEMENT_TYPES[dtype]) + _bytes(2, sizes)
    return _text(1, name) + _bytes(2, _bytes(1, tensor))


class Graph:
    """A graph in the making."""

    def __init__(self, name, around=None):
        self._name = name
        self._nodes, self._weights, self._inputs, self._outputs = [], [], [], []
        self._taken = set()
        self._domains = {}
        self._read = None
        if around is not None:
            # A body sees what is around it: names are taken there, and weights are put there.
            self._weights, self._taken, self._domains = around._weights, around._taken, around._domains
        self._is_body = around is not None

    def go_on(self, read):
        """Begins with what a file holds (`_onnx_read.File`), but for its nodes, inputs and outputs."""
        self._read = read
        self._taken.update(read.names)
        self._weights.extend(read.weights)

    def raw_node(self, content):
        """A node as it stood in a file."""
        self._nodes.append(content)

    def name_like(self, wanted):
        """A name that nothing has yet."""
        name, number = wanted, 1
        while name in self._taken:
            name, number = f"{wanted}.{number}", number + 1
        self._taken.add(name)
        return name

    def reserve(self, names):
        """Keeps names from nodes that would take them."""
        self._taken.update(names)

    def release(self, name):
        """Lets the next node have a name."""
        self._taken.discard(name)

    def input(self, name, dtype, shape):
        """An input: sizes are numbers, names, or None for those that are not known."""
        self._taken.add(name)
        self._inputs.append(_value_info(name, dtype, shape))

    def output(self, name, dtype, shape):
        """An output, which a node makes; None where its type follows from that."""
        self._outputs.append(_text(1, name) if dtype is None else _value_info(name, dtype, shape))

    def weight(self, wanted, dtype, shape, content):
        """A constant of these bytes, under this name or one like it."""
        name = self.name_like(wanted)
        sizes = b"".join(_int(1, size) for size in shape)
        # `TensorProto`: dims 1, data_type 2, name 8, raw_data 9.
        self._weights.append(sizes + _int(2, ELEMENT_TYPES[dtype]) + _text(8, name) + _bytes(9, content))
        return name

    def node(self, op, inputs, outputs=("",), label="", **attributes):
        """A node with outputs of these names, or like its label; `None` stands for an input that is left out."""
        outputs = [self.name_like(name or label or op) for name in outputs]
        parts = [_text(1, name or "") for name in inputs] + [_text(2, name) for name in outputs]
        parts += [_text(3, label or outputs[0]), _text(4, op)]
        parts += [_bytes(5, _attribute(name, value)) for name, value in attributes.items() if value is not None]
        self._nodes.append(b"".join(parts))
        return outputs[0] if len(outputs) == 1 else outputs

    def custom_node(self, domain, version, op, inputs, n_outputs, label, attributes):
        """A node of an operator of one's own: gives the names of its outputs."""
        made = self.node(op, inputs, ("",) * n_outputs, label=label, **attributes)
        # `NodeProto.domain` is field 7.
        self._nodes[-1] += _text(7, domain)
        self._domains[domain] = max(version, self._domains.get(domain, 0))
        return [made] if isinstance(made, str) else list(made)

    def graph_bytes(self):
        """The graph alone: `GraphProto`."""
        parts = [_bytes(1, node) for node in self._nodes] + [_text(2, self._name)]
        parts += [] if self._is_body else [_bytes(5, weight) for weight in self._weights]
        parts += [_bytes(11, info) for info in self._inputs] + [_bytes(12, info) for info in self._outputs]
        if self._read is not None:
            parts += self._read.other_weights
        return b"".join(parts)

    def to_bytes(self):
        """The file."""
        opsets = dict(self._read.opsets) if self._read is not None else {"": OPSET}
        opsets.update((domain, max(version, opsets.get(domain, 0))) for domain, version in self._domains.items())
        opset = b"".join(_bytes(8, _text(1, domain) + _int(2, version)) for domain, version in opsets.items())
        functions = b"".join(self._read.functions) if self._read is not None else b""
        return _int(1, IR_VERSION) + _text(2, "planish") + opset + functions + _bytes(7, self.graph_bytes())
