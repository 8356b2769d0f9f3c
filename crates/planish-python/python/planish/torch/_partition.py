"""Which nodes of a graph go to Planish, and what becomes of the others."""

import operator

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner

import planish

from ._convert import Converter, Unsupported, made_by
from ._operators import OPERATORS

#: What moves or makes tensors without computing: a part of nothing else stays where it is.
_IDLE = ("view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "slice", "select", "clone")
_IDLE += ("alias", "detach", "full", "arange", "scalar_tensor", "lift_fresh_copy", "_unsafe_view")


def _is_tensor(node):
    return isinstance(made_by(node), torch.Tensor)


def is_pick(node):
    """Whether a node only picks one of the results of the node before it."""
    return node.target is operator.getitem


def _is_size(node):
    return isinstance(made_by(node), torch.SymInt)


def _hoist_sizes(graph):
    """Has sizes computed of the inputs' sizes, in front of all else, so that no part of the graph waits for another."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    if not placeholders:
        return
    first = placeholders[-1].next
    known = {}
    for node in placeholders:
        if _is_size(node):
            known.setdefault(made_by(node).node.expr, node)
    with graph.inserting_before(first):
        for node in placeholders:
            for axis, size in enumerate(made_by(node).shape if _is_tensor(node) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr not in known:
                    known[size.node.expr] = _sized(graph, torch.ops.aten.sym_size.int, (node, axis), size)
        for node in list(graph.nodes):
            if node.op == "call_function" and _is_size(node) and node not in known.values():
                made = _computed(graph, made_by(node).node.expr, known)
                if made is not None:
                    node.replace_all_uses_with(made)
                    graph.erase_node(node)
    graph.lint()


def _sized(graph, function, arguments, size):
    node = graph.call_function(function, arguments)
    node.meta["val"] = size
    return node


def _computed(graph, expression, known):
    """The node of an expression over known ones; None where it is beyond sums, products and quotients."""
    if expression in known:
        return known[expression]
    functions = {"Add": operator.add, "Mul": operator.mul, "FloorDiv": operator.floordiv, "Pow": operator.pow}
    function = functions.get(type(expression).__name__)
    if expression.is_Integer or function is None:
        return int(expression) if expression.is_Integer else None
    parts = [_computed(graph, part, known) for part in expression.args]
    if any(part is None for part in parts):
        return None
    made = parts[0]
    for part in parts[1:]:
        value = function(*[made_by(each) if isinstance(each, torch.fx.Node) else each for each in (made, part)])
        made = _sized(graph, function, (made, part), value)
    known[expression] = made
    return made


def reason_against(node, device):
    """Why a node stays in PyTorch; None if Planish computes it on this device."""
    made = made_by(node)
    tensors = [each for each in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(each, torch.Tensor)]
    if not tensors:
        return "it makes no tensor"
    for each in tensors + [made_by(read) for read in node.all_input_nodes if _is_tensor(read)]:
        # Numbers of PyTorch's are tensors without sizes, wherever they are read.
        if each.device != device and not (each.device.type == "cpu" and each.dim() == 0):
            return f"it is on {each.device}, the graph is compiled for {device}"
    if any(isinstance(each, torch.Tensor) and each.layout != torch.strided for each in tensors):
        return "its elements do not lie in strides"
    if is_pick(node):
        return reason_against(node.args[0], device)
    # Converted alone: the rule says what it does not do, and the importer what cannot be.
    converter = Converter(node.name, OPERATORS)
    try:
        for symbols in node.all_input_nodes:
            if _is_tensor(symbols):
                converter.input(symbols)
            elif not isinstance(made_by(symbols), torch.SymInt):
                return "it reads what is no tensor"
        converter.borrow_sizes()
        converter.node(node)
        names = converter.value(node)
        for name, each in zip(names if isinstance(names, list) else [names], tensors):
            converter.name_output(name, each)
        converter.model()
    except Unsupported as error:
        return str(error)
    except planish.errors.Error as error:
        return str(error)
    return None


class Partition:
    """A graph cut into parts for Planish, each a module of its own in it, and the reasons of what is left."""

    def __init__(self, graph_module, device):
        self.reasons = {}
        _hoist_sizes(graph_module.graph)
        computed = [node for node in graph_module.graph.nodes if node.op == "call_function" and not _is_size(node)]
        for node in computed:
            reason = reason_against(node, device)
            if reason is not None:
                self.reasons[node] = reason
        partitioner = CapabilityBasedPartitioner(graph_module, self, allows_single_node_partition=True)
        parts = [part for part in partitioner.propose_partitions() if any(map(_computes, part.nodes))]
        self.n_nodes = sum(1 for node in computed if not is_pick(node))
        self.n_taken = sum(1 for part in parts for node in part.nodes if not is_pick(node))
        self.graph_module = partitioner.fuse_partitions(parts)
        self.calls = [node for node in self.graph_module.graph.nodes if node.op == "call_module" and str(node.target).startswith("fused_")]

    def is_node_supported(self, _submodules, node):
        """What the partitioner asks."""
        return node.op == "call_function" and node not in self.reasons and not _is_size(node)


def _computes(node):
    name = str(node.target).removeprefix("aten.").split(".")[0]
    return name not in _IDLE and not is_pick(node)


def model_of(graph, weights):
    """A graph as a model, with the tensors that are constant in it by node; its inputs and outputs, in order."""
    converter = Converter("graph", OPERATORS)
    inputs, outputs = [], []
    for node in graph.nodes:
        if node.op == "placeholder":
            if node in weights:
                converter.weight(node, weights[node])
            elif _is_tensor(node):
                converter.input(node)
                inputs.append(node)
        elif node.op == "call_function":
            try:
                converter.node(node)
            except Unsupported as error:
                raise Unsupported(f"{node.target}: {error}") from None
        elif node.op == "output":
            made = node.args[0]
            for idx, value in enumerate(made if isinstance(made, (tuple, list)) else [made]):
                converter.output(value, f"output.{idx}")
                outputs.append(value)
    return converter.model(), inputs, outputs
