"""Models read from ONNX files."""

import planish

from .._onnx_bytes import Graph
from ._enums import ErrorCode
from ._logger import ILogger

_CODES = (
    (planish.errors.Unsupported, ErrorCode.UNSUPPORTED_NODE),
    (planish.errors.BadModel, ErrorCode.INVALID_GRAPH),
    (planish.errors.BadFile, ErrorCode.MODEL_DESERIALIZE_FAILED),
    (planish.errors.FileError, ErrorCode.MODEL_DESERIALIZE_FAILED),
)


class ParserError:
    """Why a model could not be read."""

    def __init__(self, description, code=ErrorCode.INTERNAL_ERROR):
        self._description, self._code = description, code

    @classmethod
    def of(cls, error):
        """One of Planish's."""
        return cls(str(error), next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.INTERNAL_ERROR))

    def code(self):
        """Its kind."""
        return self._code

    def file(self):
        """Where it was found: the words say which part of the model it is about."""
        return ""

    def line(self):
        """Where it was found: the words say which part of the model it is about."""
        return 0

    func = node_name = node_operator = file
    local_function_stack_size = line

    def local_function_stack(self):
        """The functions that the node is in: they are inlined."""
        return []

    def node(self):
        """The number of a node: the words say which."""
        return -1

    def desc(self):
        """In words."""
        return self._description

    def __str__(self):
        return self._description


class OnnxParser:
    """Reads ONNX models into a network."""

    def __init__(self, network, logger):
        self._network, self._logger = network, logger
        self._errors, self._parts, self._loaded = [], [], None
        self.flags = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def set_flag(self, flag):
        """Taken, and left alone."""
        self.flags |= 1 << int(flag)

    def clear_flag(self, flag):
        """Taken, and left alone."""
        self.flags &= ~(1 << int(flag))

    def get_flag(self, flag):
        """Whether a flag is set."""
        return bool(self.flags >> int(flag) & 1)

    def supports_model(self, model, path=None):
        """Whether a model can be read, and which parts of it: all nodes, or none."""
        try:
            read = planish.Model(path if path is not None else bytes(model))
        except planish.errors.Error as error:
            self._errors.append(ParserError.of(error))
            return False, []
        return True, [(list(range(len(read.nodes))), True)]

    def supports_model_v2(self, model, path=None):
        """Whether a model can be read; `num_subgraphs` are its parts then."""
        can, self._parts = self.supports_model(model, path)
        return can

    @property
    def num_subgraphs(self):
        """The parts of the model that `supports_model_v2` looked at: one, or none."""
        return len(self._parts)

    def is_subgraph_supported(self, index):
        """Whether a part can be read."""
        return self._parts[index][1]

    def get_subgraph_nodes(self, index):
        """The numbers of the nodes of a part."""
        return self._parts[index][0]

    def supports_operator(self, op_name):
        """Whether there is an operator of this name."""
        graph = Graph("one")
        graph.input("x", "float32", [1])
        graph.output(graph.node(op_name, ["x"]), None, None)
        try:
            planish.Model(graph.to_bytes())
        except planish.errors.Unsupported:
            return False
        except planish.errors.Error:
            pass  # it wants other inputs or attributes
        return True

    def get_used_vc_plugin_libraries(self):
        """None: there are no libraries of plugins for other versions."""
        return []

    def set_builder_config(self, builder_config):
        """Taken, and left alone."""
        return True

    def get_layer_output_tensor(self, name, i):
        """What a layer makes, by the name of its node; None where there is none."""
        layers = [layer for layer in self._network if layer.name == name]
        return layers[0].get_output(i) if layers else None

    def load_model_proto(self, model, path=None):
        """Keeps a model's bytes for `parse_model_proto`."""
        self._loaded = (bytes(model), path)
        return True

    def parse_model_proto(self):
        """Reads the model that was kept."""
        return self.parse(*self._loaded)

    def _parse(self, source):
        try:
            self._network.read(planish.Model(source))
        except planish.errors.Error as error:
            self._errors.append(ParserError.of(error))
            self._logger.log(ILogger.ERROR, str(error))
            return False
        return True

    def parse_with_weight_descriptors(self, model):
        """Reads the bytes of a model."""
        return self.parse(model)

    def parse(self, model, path=None):
        """Reads the bytes of a model; `path` is where its external data is looked for. Gives whether that worked."""
        return self._parse(path if path is not None else bytes(model))

    def parse_from_file(self, model):
        """Reads a model's file. Gives whether that worked."""
        return self._parse(model)

    @property
    def num_errors(self):
        """How many errors there were."""
        return len(self._errors)

    def get_error(self, index):
        """An error, by its number."""
        return self._errors[index]

    def clear_errors(self):
        """Forgets the errors."""
        self._errors.clear()
