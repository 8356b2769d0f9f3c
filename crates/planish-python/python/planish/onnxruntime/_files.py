"""What sessions read of a model's file beside what is built of it."""

import os

import numpy as np

from planish._onnx_bytes import ELEMENT_TYPES, _bytes, _int, _text
from planish._onnx_read import File, fields, word


def _content(source):
    if isinstance(source, (bytes, bytearray)):
        return bytes(source)
    with open(source, "rb") as file:
        return file.read()


def output_names(source):
    """The names that a file has for the sizes of its outputs: of each output a list, None where a size has no name."""
    try:
        # Larger files are weights for the most part, and reading them takes longer than anybody waits for a name.
        if not isinstance(source, (bytes, bytearray)) and os.path.getsize(source) > 1 << 28:
            return {}
        graph = next((held for field, _, held in fields(memoryview(_content(source))) if field == 7), b"")
        infos = [held for field, _, held in fields(graph) if field == 12]
        return {name: sizes for name, sizes in map(_sizes, infos)}
    except (OSError, TypeError, IndexError, KeyError, UnicodeDecodeError):
        return {}


def _one(message, number):
    return next((held for field, _, held in fields(message) if field == number), b"")


def _sizes(info):
    # `ValueInfoProto`: name 1, type 2; `TypeProto`: tensor_type 1; its shape 2, with dim 1, of which dim_param is 2.
    shape = _one(_one(_one(info, 2), 1), 2)
    dims = [held for field, _, held in fields(shape) if field == 1]
    return word(_one(info, 1)), [word(_one(dim, 2)) or None for dim in dims]


def with_weights(source, weights):
    """A model's file with other weights, by name: bytes."""
    file, left = File(_content(source)), dict(weights)
    for position, content in enumerate(file.weights):
        name = word(_one(content, 8))
        if name in left:
            array = np.ascontiguousarray(left.pop(name))
            sizes = b"".join(_int(1, size) for size in array.shape)
            file.weights[position] = sizes + _int(2, ELEMENT_TYPES[array.dtype.name]) + _text(8, name) + _bytes(9, array.tobytes())
    for name in left:
        raise ValueError(f"the model has no weight `{name}`")
    return file.to_bytes()


def defaults(source):
    """The inputs of a model that have a value if they are not given: their value infos, by name."""
    try:
        file = File(_content(source))
    except (OSError, TypeError, IndexError, KeyError, UnicodeDecodeError):
        return {}
    weights = {word(_one(content, 8)) for content in file.weights}
    # Before version 4 of the format, every weight was among the inputs.
    return {name: info for name, info in file.inputs.items() if name in weights} if file.ir_version >= 4 else {}


def type_and_sizes(info):
    """ONNX's number of an input's element type, and its sizes: numbers, names, or None."""
    tensor = _one(_one(info, 2), 1)
    number = next((held for field, _, held in fields(tensor) if field == 1), 0)
    dims = [dict((field, held) for field, _, held in fields(dim)) for field, _, dim in fields(_one(tensor, 2)) if field == 1]
    return number, [dim.get(1, word(dim[2]) if 2 in dim else None) for dim in dims]


def without_weights(source, names):
    """A model's file in which these weights are inputs alone."""
    file = File(_content(source))
    file.weights = [content for content in file.weights if word(_one(content, 8)) not in names]
    return file.to_bytes()
