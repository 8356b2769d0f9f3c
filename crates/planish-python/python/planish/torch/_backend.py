"""`torch.compile(model, backend="planish")`."""

import logging
import operator
import threading
from collections import namedtuple

import torch
from torch._decomp import core_aten_decompositions
from torch._dynamo.exc import RestartAnalysis
from torch._functorch.aot_autograd import aot_module_simplified
from torch._subclasses.fake_tensor import unset_fake_temporarily

import planish

from .._views import Table
from ._convert import Unsupported, made_by
from ._partition import Partition, is_pick, model_of

_log = logging.getLogger("planish.torch")

#: Operators that have rules of their own, and stay whole.
_WHOLE = ("upsample", "silu", "mish", "hardswish", "hardsigmoid", "softplus", "_scaled_dot_product", "masked_fill", "_adaptive_avg")
#: How often weights may change before a graph is left to PyTorch.
_MOST_CHANGES = 3

#: What stays in PyTorch: the operator, how many of them, and why.
Left = namedtuple("Left", "operator count reason")


class Report(Table):
    """What became of one graph: a row for each kind of operator that stays in PyTorch."""

    headings = ("operator", "count", "reason")

    def __init__(self, n_nodes):
        super().__init__()
        #: Operators of the graph, and those that Planish computes.
        self.n_nodes, self.n_taken = n_nodes, 0
        #: The plans, in the order in which they run.
        self.plans = []

    def leave(self, operator, reason, count=1):
        """Notes operators that stay."""
        for idx, row in enumerate(self):
            if (row.operator, row.reason) == (operator, reason):
                self[idx] = row._replace(count=row.count + count)
                return
        self.append(Left(operator, count, reason))

    def summary(self):
        """How much Planish computes."""
        parts = f"{len(self.plans)} part" + ("s" if len(self.plans) != 1 else "")
        return f"{self.n_taken} of {self.n_nodes} operators in {parts} by Planish"


_reports = []
_lock = threading.Lock()


def reports():
    """What became of each graph that was compiled in this process, oldest first: tables of what stays in PyTorch."""
    with _lock:
        return list(_reports)


def _decompositions():
    table = core_aten_decompositions()
    kept = {op for op in table if str(op).startswith(tuple(f"aten.{name}" for name in _WHOLE))}
    return {op: how for op, how in table.items() if op not in kept}


class _Part(torch.nn.Module):
    """A part of a graph that an engine computes."""

    def __init__(self, engine, positions, strides, original):
        super().__init__()
        self.engine, self.positions, self.strides, self.original = engine, positions, strides, original

    def forward(self, *values):
        try:
            made = self.engine(*[values[position].detach() for position in self.positions])
        except planish.errors.WrongShape as error:
            _log.warning("a part of the graph runs in PyTorch at sizes that its plan is not for: %s", error)
            return self.original(*values)
        made = made if isinstance(made, tuple) else (made,)
        if any(self.strides):
            made = tuple(_laid_out(each, strides) if strides else each for each, strides in zip(made, self.strides))
        return made[0] if len(made) == 1 else made


def _laid_out(tensor, strides):
    """A tensor with the strides that the nodes after it were traced with."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _strides_wanted(call, outputs):
    """For each output of a part the strides that nodes of PyTorch's rely on, where they are not the usual ones."""
    wanted = []
    for idx, node in enumerate(outputs):
        made = node.meta["val"]
        readers = list(call.users)
        if len(outputs) > 1:
            readers = [reader for part in call.users if part.args[1] == idx for reader in part.users]
        inside = any(reader.op not in ("output",) for reader in readers)
        fixed = all(isinstance(size, int) for size in (*made.shape, *made.stride()))
        wanted.append(tuple(made.stride()) if inside and fixed and not made.is_contiguous() else None)
    return wanted


class _Compiled:
    """A graph with its weights as they are now: computed by parts of Planish's and what is left of PyTorch's."""

    def __init__(self, graph_module, weights, device, options, report):
        self._device, self._options, self._report = device, options, report
        self._weights = weights
        self._compiled = None
        self._graph_module = graph_module

    def compile(self, example_inputs):
        """Traces the graph down to ATen and hands over what Planish computes."""
        return aot_module_simplified(
            self._graph_module,
            example_inputs,
            fw_compiler=self._parts,
            inference_compiler=self._parts,
            decompositions=_decompositions(),
        )

    def _parts(self, graph_module, _example_inputs):
        # Tensors that are made here are no longer those of the trace.
        with unset_fake_temporarily():
            return self._with_parts(graph_module)

    def _with_parts(self, graph_module):
        report = self._report
        # AOTAutograd puts the weights in front of the inputs.
        placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
        # By name: the partitioner copies the graph, and copies keep names.
        weights = {node.name: weight for node, weight in zip(placeholders, self._weights)}
        partition = Partition(graph_module, self._device)
        report.n_nodes, report.n_taken = partition.n_nodes, partition.n_taken
        for node, reason in partition.reasons.items():
            if not is_pick(node):
                report.leave(str(node.target), reason)
        for call in partition.calls:
            try:
                part = self._part(partition.graph_module, call, weights)
            except (Unsupported, planish.errors.Error) as error:
                nodes = getattr(partition.graph_module, call.target).graph.nodes
                n_nodes = sum(1 for node in nodes if node.op == "call_function" and not is_pick(node))
                report.n_taken -= n_nodes
                report.leave("a part of the graph", str(error), n_nodes)
                continue
            setattr(partition.graph_module, call.target, part)
        if report and self._options["strict"]:
            raise planish.errors.Refused(f"strict: {report.summary()}\n{report}")
        return partition.graph_module.forward

    def _part(self, graph_module, call, weights):
        inner = getattr(graph_module, call.target)
        placeholders = [node for node in inner.graph.nodes if node.op == "placeholder"]
        known = {own: weights[outer.name] for own, outer in zip(placeholders, call.args) if outer.name in weights}
        model, inputs, outputs = model_of(inner.graph, known)
        options = {name: value for name, value in self._options.items() if name != "strict"}
        for node in inputs:
            # A number of PyTorch's own, which it hands to kernels as it is.
            if made_by(node).device != self._device:
                raise Unsupported(f"`{node.name}` is on {made_by(node).device}, the graph is compiled for {self._device}")
        device = str(self._device)
        plan = planish.build(model, device=device, profiles=_profile(inputs), **options)
        self._report.plans.append(plan)
        positions = [placeholders.index(node) for node in inputs]
        return _Part(plan.engine(device), positions, _strides_wanted(call, outputs), inner)


#: How far sizes that are not fixed may be from those of the first call, below and above: beyond, PyTorch computes.
_SPREAD = (4, 8)


def _profile(inputs):
    """The ranges of the sizes of a part's inputs; None where all are fixed."""
    lists = {}
    for node in inputs:
        usual = [size if isinstance(size, int) else size.node.hint for size in node.meta["val"].shape]
        is_open = [not isinstance(size, int) for size in node.meta["val"].shape]
        # Dynamo makes graphs of their own for sizes of 0 and 1.
        least = [max(size // _SPREAD[0], min(size, 2)) if free else size for size, free in zip(usual, is_open)]
        most = [size * _SPREAD[1] if free else size for size, free in zip(usual, is_open)]
        lists[node.name] = (least, usual, most)
    is_fixed = all(least == most for least, _, most in lists.values())
    return None if is_fixed else lists


#: Options of `torch.compile(options=...)`, with what they are if nobody says otherwise.
_OPTIONS = {
    "precision": "fp32",
    "threads": None,
    "tune_level": None,
    "timing_cache": None,
    "build_time": None,
    "verify": True,
    "cache": True,
    "strict": False,
}


def _options(given):
    unknown = set(given) - set(_OPTIONS)
    if unknown:
        known = ", ".join(sorted(_OPTIONS))
        raise planish.errors.BadOption(f"`{sorted(unknown)[0]}` is no option of the backend; its options are {known}")
    options = {**_OPTIONS, **given}
    options["threads"] = options["threads"] or torch.get_num_threads()
    return options


def _is_static(node):
    """Whether dynamo says that an input is a parameter or a buffer of a module."""
    return bool(node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type"))


def _frozen(graph_module, inputs):
    """The graph with its parameters and buffers inside of it; these, and the positions of the other inputs."""
    frozen = torch.fx.GraphModule(graph_module, torch.fx.Graph())
    copies, weights, rest = {}, [], []
    placeholders = [node for node in graph_module.graph.nodes if node.op == "placeholder"]
    for position, node in enumerate(placeholders):
        if _is_static(node) and isinstance(inputs[position], torch.Tensor):
            name = f"_frozen_{len(weights)}"
            frozen.register_buffer(name, inputs[position].detach())
            copies[node] = frozen.graph.get_attr(name)
            copies[node].meta.update(node.meta)
            weights.append(position)
    for position, node in enumerate(placeholders):
        if node not in copies:
            copies[node] = frozen.graph.node_copy(node)
            rest.append(position)
    for node in graph_module.graph.nodes:
        if node.op != "placeholder":
            copies[node] = frozen.graph.node_copy(node, copies.__getitem__)
    frozen.recompile()
    return frozen, weights, rest


def _device_of(inputs):
    """The device of a graph: that of its tensors, of those on a GPU if there are any."""
    devices = [each.device for each in inputs if isinstance(each, torch.Tensor)]
    away = [device for device in devices if device.type != "cpu"]
    return (away or devices or [torch.device("cpu")])[0]


#: How often a tensor was written in place.
_VERSION = operator.attrgetter("_version")


class _Graph:
    """What dynamo calls. Weights are part of the plans: where one was exchanged or written, plans are made again."""

    def __init__(self, graph_module, options):
        self._graph_module, self._options = graph_module, options
        self._n_changes = 0
        self._compiled = None

    def compile(self, inputs):
        """Compiles for the weights that are among the inputs."""
        report = Report(sum(1 for node in self._graph_module.graph.nodes if node.op != "placeholder"))
        frozen, weights, self._rest = _frozen(self._graph_module, inputs)
        self._see(weights, inputs)
        own = [buffer for name, buffer in frozen.named_buffers() if name.startswith("_frozen_")]
        compiled = _Compiled(frozen, own, _device_of(inputs), self._options, report)
        self._compiled = compiled.compile([inputs[position] for position in self._rest])
        with _lock:
            _reports.append(report)
        if report:
            kinds = ", ".join(sorted({row.operator for row in report}))
            _log.warning("%s; the rest stays in PyTorch (%s): planish.torch.reports()[-1] says why", report.summary(), kinds)
        return self

    def _see(self, positions, inputs):
        """Notes what the weights at these positions are. Every call looks at all of them, so that is done without a loop
        in Python."""
        self._positions, self._weights = positions, [inputs[position] for position in positions]
        # What was made in inference mode counts no changes.
        self._counted = [weight for weight in self._weights if not weight.is_inference()]
        self._versions = list(map(_VERSION, self._counted))

    def _is_as_seen(self, inputs):
        given = map(inputs.__getitem__, self._positions)
        return all(map(operator.is_, given, self._weights)) and list(map(_VERSION, self._counted)) == self._versions

    def __call__(self, *inputs):
        if not self._is_as_seen(inputs):
            return self._changed(inputs)
        return self._compiled(*map(inputs.__getitem__, self._rest))

    def _changed(self, inputs):
        self._n_changes += 1
        if self._n_changes > _MOST_CHANGES:
            _log.warning("weights have changed %d times: the graph is left to PyTorch from now on", self._n_changes)
            self._see([], inputs)
            self._compiled = self._graph_module.forward
            self._rest = range(len(inputs))
            return self._compiled(*inputs)
        return self.compile(inputs)(*inputs)


def backend(graph_module, example_inputs, *, mode=None, options=None):
    """Compiles a graph of dynamo's: what `torch.compile(model, backend="planish")` calls.

    Options, by `torch.compile(options={...})`: those of `planish.build` that are named `precision`, `threads`,
    `tune_level`, `timing_cache`, `build_time`, `verify` and `cache` (which is on: plans are found again by the graph's
    hash, in later processes too); `strict` makes an error of whatever stays in PyTorch.
    """
    options = _options(options or {})
    wanted = [each for each in example_inputs if isinstance(each, torch.Tensor) and each.requires_grad]
    reason = None
    if torch.is_grad_enabled() and wanted:
        reason = "gradients are wanted; call the model under torch.no_grad() or torch.inference_mode()"
    elif _device_of(example_inputs).type not in ("cpu", "cuda"):
        reason = f"an input is on {_device_of(example_inputs)}, and plans are for CPUs and NVIDIA's GPUs"
    if reason is None:
        try:
            return _Graph(graph_module, options).compile(example_inputs)
        except (planish.errors.Refused, RestartAnalysis):
            # The latter is dynamo's own: it traces the graph once more.
            raise
        except Exception as error:
            _log.debug("the graph could not be compiled", exc_info=True)
            reason = f"{type(error).__name__}: {error}"
    if options["strict"]:
        raise planish.errors.Refused(f"strict: {reason}")
    report = Report(sum(1 for node in graph_module.graph.nodes if node.op.startswith("call")))
    report.leave("the whole graph", reason, report.n_nodes)
    with _lock:
        _reports.append(report)
    _log.warning("the whole graph stays in PyTorch: %s", reason)
    return graph_module.forward
