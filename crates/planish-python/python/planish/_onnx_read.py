"""ONNX files taken apart and put together again, without the `onnx` package: nodes stay the bytes that they are.

As much of the format as it takes to name the nodes of a graph and what they read and make, and to have one read another value.
"""

from ._onnx_bytes import _bytes, _int, _text, _varint


def _number(content, place):
    number = shift = 0
    while True:
        byte = content[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place


def fields(content):
    """The fields of a message: their number, and what they hold: a number, or a view of bytes."""
    place, end = 0, len(content)
    while place < end:
        tag, place = _number(content, place)
        kind = tag & 7
        if kind == 0:
            held, place = _number(content, place)
        else:
            size, place = _number(content, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
            held, place = content[place : place + size], place + size
        yield tag >> 3, kind, held


def put(field, kind, held):
    """A field as it was read."""
    if kind == 0:
        return _int(field, held)
    return _bytes(field, held) if kind == 2 else _varint(field << 3 | kind) + bytes(held)


def word(held):
    """Text."""
    return bytes(held).decode()


class Node:
    """A node as it stands in a file: `NodeProto` has input 1, output 2, name 3, op_type 4, attribute 5, domain 7."""

    def __init__(self, content):
        self.content = content
        self.inputs, self.outputs, self.name, self.op = [], [], "", ""
        for field, _, held in fields(content):
            if field == 1:
                self.inputs.append(word(held))
            elif field == 2:
                self.outputs.append(word(held))
            elif field == 3:
                self.name = word(held)
            elif field == 4:
                self.op = word(held)


def renamed(content, names):
    """A node whose values have other names, in bodies too."""
    parts = []
    for field, kind, held in fields(content):
        if field in (1, 2):
            parts.append(_text(field, names.get(word(held), word(held))))
        elif field == 5:
            parts.append(_bytes(5, b"".join(put(*_in_attribute(inner, names)) for inner in fields(held))))
        else:
            parts.append(put(field, kind, held))
    return b"".join(parts)


def _in_attribute(inner, names):
    field, kind, held = inner
    # Graphs of attributes: g is field 6, graphs field 11.
    return (field, kind, _renamed_body(held, names)) if field in (6, 11) else inner


def _renamed_body(content, names):
    parts = []
    for field, kind, held in fields(content):
        if field == 1:
            held = renamed(held, names)
        elif field == 12:
            # What a body gives may be a value from around it: `ValueInfoProto.name` is field 1.
            held = b"".join(
                _text(1, names.get(word(each), word(each))) if number == 1 else put(number, how, each) for number, how, each in fields(held)
            )
        parts.append(put(field, kind, held))
    return b"".join(parts)


def with_inputs(content, inputs):
    """A node that reads other values."""
    others = b"".join(put(field, kind, held) for field, kind, held in fields(content) if field != 1)
    return b"".join(_text(1, name) for name in inputs) + others


class File:
    """A model's file: its nodes, inputs and outputs by name, and the rest as it is."""

    def __init__(self, content):
        content = memoryview(content)
        graph, self.opsets, self.functions, self._beside, self.ir_version = b"", {}, [], [], 0
        for field, kind, held in fields(content):
            # `ModelProto`: ir_version 1, graph 7, opset_import 8 (domain 1, version 2), functions 25.
            if field == 1:
                self.ir_version = held
            elif field == 7:
                graph = held
            elif field == 8:
                known = {number: each for number, _, each in fields(held)}
                self.opsets[word(known.get(1, b""))] = known.get(2, 1)
            elif field == 25:
                self.functions.append(put(field, kind, held))
            if field != 7:
                self._beside.append(put(field, kind, held))
        self._graph_beside = []
        self.nodes, self.weights, self.other_weights = [], [], []
        self.inputs, self.outputs, self.names = {}, {}, set()
        for field, kind, held in fields(graph):
            # `GraphProto`: node 1, initializer 5, input 11, output 12, sparse_initializer 15.
            if field == 1:
                self.nodes.append(Node(held))
                self.names.update(self.nodes[-1].inputs + self.nodes[-1].outputs)
            elif field == 5:
                self.weights.append(held)
                self.names.update(word(each) for number, how, each in fields(held) if number == 8)
            elif field in (11, 12):
                name = next((word(each) for number, _, each in fields(held) if number == 1), "")
                (self.inputs if field == 11 else self.outputs)[name] = held
                self.names.add(name)
            elif field == 15:
                self.other_weights.append(put(field, kind, held))
            if field not in (1, 5, 11, 12, 13):
                self._graph_beside.append(put(field, kind, held))

    def to_bytes(self):
        """The file, with nodes, weights, inputs and outputs as they are now; what it says of values between is left out."""
        parts = [_bytes(1, node.content) for node in self.nodes] + [_bytes(5, weight) for weight in self.weights]
        parts += [_bytes(11, info) for info in self.inputs.values()] + [_bytes(12, info) for info in self.outputs.values()]
        return b"".join(self._beside) + _bytes(7, b"".join(self._graph_beside + parts))
