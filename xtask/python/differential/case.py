"""One case: a node with its inputs, made into a model and run in ONNX Runtime."""

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

# ONNX Runtime 1.31 guarantees the operators of opset 24 and below; later ones are run by conformance alone.
OPSET = 21
IR_VERSION = 10


def registry():
    """A table of generators by operator, and the decorator that fills it."""
    table = {}

    def generator(*names):
        def register(function):
            for name in names:
                table[name] = lambda draw, name=name: function(draw, name)
            return function

        return register

    return table, generator


@dataclass
class Case:
    op: str
    inputs: list
    attributes: dict = field(default_factory=dict)
    n_outputs: int = 1
    domain: str = ""
    opset: int = OPSET
    # Inputs that are parameters (axes, shapes): initializers in some cases, plain inputs in others.
    parameters: tuple = ()
    # Outputs that are not compared, with the reason in the generator.
    skip_outputs: tuple = ()
    # Parameters that the operator takes as constants only.
    always_constant: bool = False

    def describe(self):
        parts = []
        for idx, array in enumerate(self.inputs):
            part = "-" if array is None else f"{array.dtype}{list(array.shape)}"
            if idx in self.parameters and array is not None and array.size <= 8:
                part += f"={array.tolist()}"
            parts.append(part)
        attributes = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        is_empty = any(array is not None and array.size == 0 for array in self.inputs)
        return f"{self.op}({', '.join(parts)}) {{{attributes}}} opset {self.opset}" + " [empty]" * is_empty

    def model(self, constant_parameters):
        names = ["" if array is None else f"x{idx}" for idx, array in enumerate(self.inputs)]
        outputs = [f"y{idx}" for idx in range(self.n_outputs)]
        node = helper.make_node(self.op, names, outputs, "node", domain=self.domain, **self.attributes)
        inputs, initializers = [], []
        for idx, array in enumerate(self.inputs):
            if array is None:
                continue
            if constant_parameters and idx in self.parameters:
                initializers.append(numpy_helper.from_array(array, names[idx]))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                # Half of the cases hide the sizes, so that inference works with symbols.
                dims = array.shape if constant_parameters else [f"d{idx}_{axis}" for axis in range(array.ndim)]
                inputs.append(helper.make_tensor_value_info(names[idx], kind, dims))
        imports = [helper.make_opsetid("", self.opset)]
        if self.domain:
            imports.append(helper.make_opsetid(self.domain, 1))
        graph = helper.make_graph(
            [node], "case", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], initializers
        )
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)

    def run(self, constant_parameters):
        """Model bytes, graph inputs and outputs; None where ONNX Runtime refuses the case."""
        model = self.model(constant_parameters).SerializeToString()
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        try:
            session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            arrays = [
                array
                for idx, array in enumerate(self.inputs)
                if array is not None and not (constant_parameters and idx in self.parameters)
            ]
            feeds = dict(zip([i.name for i in session.get_inputs()], arrays))
            outputs = session.run(None, feeds)
        except Exception:  # noqa: BLE001: whatever ONNX Runtime refuses is not a case
            return None
        return model, arrays, [np.asarray(output) for output in outputs]
