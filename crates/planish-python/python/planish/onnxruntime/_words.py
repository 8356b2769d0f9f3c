"""Strings and maps at the border of classic models: plans compute with numbers, which stand for places in tables of words.

Classifiers of scikit-learn's name classes, ZipMap makes a map of each row, and columns of words are inputs. A file with such
parts is rewritten before it is built: words become their places. What a session takes and gives is words and maps again.
"""

import mmap

import numpy as np

from planish._onnx_bytes import _attribute, _bytes, _int, _text
from planish._onnx_read import File, Node, fields, put, word

#: `TensorProto.DataType` of strings, and of what stands for them.
_STRING, _INT64 = 8, 7

#: The domain of classic models.
_DOMAIN = b"ai.onnx.ml"

#: Operators that move elements of their first input (Concat: of all), whatever they are.
_MOVES = set("Identity Reshape Squeeze Unsqueeze Transpose Flatten Slice Gather ArrayFeatureExtractor Expand Concat Split Tile".split())


class Words:
    """What stands for what: tables of inputs and outputs by name, and keys of outputs that are maps."""

    def __init__(self):
        self.table, self.places = [], {}
        self.inputs, self.labels, self.maps = set(), {}, {}

    def __bool__(self):
        return bool(self.inputs or self.labels or self.maps)

    def place(self, text):
        """The place of a word that inputs may be."""
        if text not in self.places:
            self.places[text] = len(self.table)
            self.table.append(text)
        return self.places[text]

    def to_numbers(self, array):
        """The places of an array of words; -1 for those that the model does not know."""
        array = np.asarray(array)
        return np.fromiter((self.places.get(str(text), -1) for text in array.ravel()), np.int64, array.size).reshape(array.shape)

    def of(self, name, made):
        """An output as words or maps, if it is such."""
        if name in self.labels:
            return np.asarray(self.labels[name], object)[made]
        keys = self.maps.get(name)
        return made if keys is None else [dict(zip(keys, row)) for row in made.reshape(-1, len(keys)).tolist()]

    def type_of(self, name, found):
        """The type of an input or an output, as ONNX Runtime calls it."""
        if name in self.inputs or name in self.labels:
            return "tensor(string)"
        keys = self.maps.get(name)
        return found if keys is None else f"seq(map({'string' if isinstance(keys[0], str) else 'int64'},tensor(float)))"


def _attributes(node):
    """The attributes of a node: their fields, by name."""
    found = {}
    for number, _, held in fields(node.content):
        if number == 5:
            parts = list(fields(held))
            found[next((word(each) for field, _, each in parts if field == 1), "")] = parts
    return found


def _texts(parts):
    return [word(each) for field, _, each in parts or () if field == 9]


def _numbers(parts):
    made = []
    for field, kind, held in parts or ():
        if field == 8 and kind == 0:
            made.append(held - (1 << 64) if held >> 63 else held)
        elif field == 8:
            made.extend(_packed(held))
    return made


def _packed(held):
    number = shift = 0
    for byte in held:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number - (1 << 64) if number >> 63 else number
            number = shift = 0


def _without(node, names, more=b""):
    """A node without attributes of these names, and with others."""
    parts = []
    for number, kind, held in fields(node.content):
        if number != 5 or next((word(each) for field, _, each in fields(held) if field == 1), "") not in names:
            parts.append(put(number, kind, held))
    return Node(memoryview(b"".join(parts) + more))


def _table_of_weight(content):
    """The words of a constant of strings, and the constant of their places; None for other constants."""
    parts = list(fields(content))
    if not any(field == 2 and held == _STRING for field, _, held in parts):
        return None
    texts = [word(held) for field, _, held in parts if field == 6]
    kept = b"".join(put(field, kind, held) for field, kind, held in parts if field in (1, 8))
    places = np.arange(len(texts), dtype="<i8").tobytes()
    return texts, memoryview(kept + _int(2, _INT64) + _bytes(9, places))


def _is_of_strings(info):
    # `ValueInfoProto.type` 2, `TypeProto.tensor_type` 1, its elem_type 1.
    for tensor in (each for field, _, ty in fields(info) if field == 2 for field, _, each in fields(ty) if field == 1):
        return any(field == 1 and held == _STRING for field, _, held in fields(tensor))
    return False


def _of_numbers(info):
    """The same input with numbers in the place of strings."""

    def tensor(held):
        return b"".join(_int(1, _INT64) if field == 1 else put(field, kind, each) for field, kind, each in fields(held))

    def ty(held):
        return b"".join(put(field, kind, tensor(each) if field == 1 else each) for field, kind, each in fields(held))

    return b"".join(put(field, kind, ty(held) if field == 2 else held) for field, kind, held in fields(info))


def settled(source):
    """A model's file with numbers in the place of words, and what they stand for; the source itself where there is nothing."""
    if isinstance(source, bytes):
        return _rewritten(source, source) if _DOMAIN in source else (source, None)
    try:
        with open(source, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(_DOMAIN) < 0:
                return source, None
            content = content[:]
    except (OSError, ValueError, TypeError):
        # What there is to say of it, the importer says.
        return source, None
    return _rewritten(content, source)


def _rewritten(content, source):
    try:
        file = File(content)
        # `TensorProto.data_location` is field 14: weights beside the file stay with it.
        if any(field == 14 and held for weight in file.weights for field, _, held in fields(weight)):
            return source, None
        words = _find(file)
    except (IndexError, KeyError, StopIteration, UnicodeDecodeError, ValueError):
        # Damaged; the importer says what is wrong with it.
        return source, None
    return (file.to_bytes(), words) if words else (source, None)


def _find(file):
    """Rewrites a file in place."""
    words, tables = Words(), {}
    for name, info in file.inputs.items():
        if _is_of_strings(info):
            file.inputs[name], tables[name] = _of_numbers(info), words.table
            words.inputs.add(name)
    for position, content in enumerate(file.weights):
        found = _table_of_weight(content)
        if found is not None:
            file.weights[position] = found[1]
            tables[next(word(held) for field, _, held in fields(content) if field == 8)] = found[0]
    for position, node in enumerate(file.nodes):
        told = _attributes(node)
        labels = _texts(told.get("classlabels_strings"))
        reads = tables.get(node.inputs[0]) if node.inputs else None
        if node.op == "ZipMap":
            words.maps[node.outputs[0]] = labels or _numbers(told.get("classlabels_int64s"))
        elif node.op == "Identity" and node.inputs[0] in words.maps:
            words.maps[node.outputs[0]] = words.maps[node.inputs[0]]
        elif labels:
            tables[node.outputs[0]] = labels
        elif node.op == "LabelEncoder":
            if _texts(told.get("values_strings")):
                tables[node.outputs[0]] = _texts(told["values_strings"])
            keys = _texts(told.get("keys_strings"))
            if keys and reads is words.table:
                file.nodes[position] = _without(node, ("keys_strings",), _bytes(5, _attribute("keys_int64s", [words.place(text) for text in keys])))
        elif node.op == "OneHotEncoder" and reads is words.table and _texts(told.get("cats_strings")):
            cats = [words.place(text) for text in _texts(told["cats_strings"])]
            file.nodes[position] = _without(node, ("cats_strings",), _bytes(5, _attribute("cats_int64s", cats)))
        elif node.op == "Cast" and reads is not None:
            file.nodes[position] = _without(node, ("to",), _bytes(5, _attribute("to", _INT64)))
            tables.update(dict.fromkeys(node.outputs, reads))
        elif node.op in _MOVES and reads is not None:
            tables.update(dict.fromkeys(node.outputs, reads))
    for name in file.outputs:
        if name in tables:
            words.labels[name] = tables[name]
        if name in tables or name in words.maps:
            # Its type follows from what makes it.
            file.outputs[name] = _text(1, name)
    words.maps = {name: keys for name, keys in words.maps.items() if name in file.outputs}
    return words
