"""The registry of plugins: it has Planish's own, those of `planish.load_plugin` and `planish.plugin`, as creators.

A creator's name is that of the operator, its namespace the domain (the empty one finds it too), its fields the attributes.
TensorRT's own plugins are not here, and creators that scripts register are kept and found again, but networks do not run them.
"""

import re

import numpy as np

import planish

from ._enums import LayerType, PluginFieldType
from ._layers import ILayer

#: Types of attributes, as declarations say them, and the type of the field.
_FIELD_TYPES = {"int": PluginFieldType.INT64, "ints": PluginFieldType.INT64, "float": PluginFieldType.FLOAT32, "floats": PluginFieldType.FLOAT32}


class PluginField:
    """A field that a plugin is made with."""

    def __init__(self, name="", data=None, type=PluginFieldType.UNKNOWN):  # noqa: A002, as TensorRT calls it
        self.name, self.type = name, type
        self.data = None if data is None else np.asarray(data)

    @property
    def size(self):
        """How many elements it has."""
        return 0 if self.data is None else self.data.size


class PluginFieldCollection(list):
    """The fields that a plugin is made with."""


class IPluginV2:
    """A plugin with its fields settled: what `add_plugin_v2` puts into a network."""

    def __init__(self, creator, layer_name, attributes):
        self.creator, self.layer_name, self.attributes = creator, layer_name, attributes
        self.plugin_type, self.plugin_version, self.plugin_namespace = creator.name, creator.plugin_version, creator.plugin_namespace
        self.num_outputs = creator.num_outputs

    def initialize(self):
        """Nothing is to be done."""
        return 0

    def terminate(self):
        """Nothing is to be done."""

    def destroy(self):
        """Nothing is to be done."""


class IPluginV2Layer(ILayer):
    """An operator of one's own."""

    type = LayerType.PLUGIN_V2

    def __init__(self, network, inputs, plugin):
        object.__setattr__(self, "plugin", plugin)
        super().__init__(network, inputs, plugin.num_outputs)

    def nodes(self, graph, names, shapes):
        """The node of its domain."""
        made = self.plugin
        op = (made.plugin_namespace, int(made.plugin_version), made.plugin_type)
        return graph.custom_node(*op, names, made.num_outputs, self.name, made.attributes)


class IPluginCreator:
    """Makes plugins of one operator of Planish's, from its declaration."""

    def __init__(self, declaration):
        lines, key = {}, ""
        for line in declaration.splitlines():
            found = re.match(r"([a-z-]+):(?!:)(.*)", line)
            key = found[1] if found else key
            # A line without a word of its own goes on with the one before it.
            lines.setdefault(key, []).append((found[2] if found else line).strip())
        lines = {key: ", ".join(parts) for key, parts in lines.items()}
        self.plugin_namespace, self.name = lines["op"].split("::", 1)
        self.plugin_version = lines.get("version", "1")
        # Sizes between brackets have commas of their own.
        self.num_outputs = len(re.sub(r"\[[^\]]*\]", "", lines.get("outputs", "")).split(","))
        kinds = re.findall(r"(\w+)\s*:\s*(ints|int|floats|float|string)\b", lines.get("attributes", ""))
        self._kinds = dict(kinds)
        self.field_names = PluginFieldCollection(PluginField(name, None, _FIELD_TYPES.get(kind, PluginFieldType.CHAR)) for name, kind in kinds)

    def create_plugin(self, name, field_collection, phase=None):
        """A plugin with these fields; those that are not given are at their defaults."""
        attributes = {}
        for field in field_collection or ():
            if field.name not in self._kinds:
                raise ValueError(f"`{field.name}` is no field of {self.name}; its fields are {', '.join(self._kinds) or 'none'}")
            attributes[field.name] = _attribute(field, self._kinds[field.name])
        return IPluginV2(self, name, attributes)

    def deserialize_plugin(self, name, serialized_plugin):
        """Refused: plans carry the names of their operators."""
        raise NotImplementedError("plugins are not serialized by themselves: plans carry the names of their operators")


def _attribute(field, kind):
    """A field's elements as an attribute of this kind."""
    data = np.asarray(field.data)
    if kind == "string":
        return data.tobytes().rstrip(b"\0").decode() if data.dtype.kind != "U" else str(data.item())
    values = [float(value) if kind.startswith("float") else int(value) for value in data.ravel()]
    if kind in ("ints", "floats"):
        return values
    if len(values) != 1:
        raise ValueError(f"field `{field.name}` has {len(values)} elements, and is one {kind}")
    return values[0]


class IPluginRegistry:
    """The plugins that there are."""

    def __init__(self):
        self._creators = {}
        self.error_recorder = None
        self.parent_search_enabled = True

    @property
    def plugin_creator_list(self):
        """All of them: those of Planish's plugins, and those that scripts registered."""
        return [IPluginCreator(text) for text in planish.plugin_declarations()] + list(self._creators.values())

    all_creators = plugin_creator_list

    def register_creator(self, creator, plugin_namespace=""):
        """Keeps a creator, so that it is found again; networks do not run it."""
        self._creators[(creator.name, getattr(creator, "plugin_version", "1"), plugin_namespace)] = creator
        return True

    def deregister_creator(self, creator):
        """Forgets a creator."""
        self._creators = {key: known for key, known in self._creators.items() if known is not creator}
        return True

    def get_plugin_creator(self, type, version="1", plugin_namespace=""):  # noqa: A002
        """A creator by name, version and namespace; None where there is none."""
        known = self._creators.get((type, version, plugin_namespace))
        for creator in self.plugin_creator_list if known is None else ():
            wanted = (type, str(version), plugin_namespace or creator.plugin_namespace)
            if isinstance(creator, IPluginCreator) and (creator.name, creator.plugin_version, creator.plugin_namespace) == wanted:
                return creator
        return known

    get_creator = get_plugin_creator

    def load_library(self, plugin_path):
        """Loads a library of Planish's plugins; those of TensorRT's cannot be."""
        return planish.load_plugin(plugin_path)


_registry = IPluginRegistry()


def get_plugin_registry():
    """The plugins that there are."""
    return _registry


def get_builder_plugin_registry(capability=None):
    """The same: builds and runs have the same plugins."""
    return _registry


def get_nv_onnx_parser_version():
    """The version of the parser's interface that is followed: 10.0.0."""
    return 100000


def init_libnvinfer_plugins(logger, namespace):
    """TensorRT's own plugins are not here; says that all is well, as Planish's are there without it."""
    return True
