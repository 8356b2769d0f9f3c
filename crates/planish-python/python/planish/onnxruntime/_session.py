"""`InferenceSession`: a model, built when it is made."""

import json
import os
import time

import planish

from . import _providers
from ._options import GraphOptimizationLevel, SessionOptions
from ._types import type_name
from ._values import IOBinding, OrtValue
from .capi.onnxruntime_pybind11_state import InvalidArgument, translated


class NodeArg:
    """An input or an output: `name`, `type` as in `tensor(float)`, and `shape`."""

    def __init__(self, info, nameless=()):
        self.name = info.name
        self.type = type_name(info.dtype)
        self.shape = [None if size in nameless else size for size in info.shape or ()]

    def __repr__(self):
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"

    __str__ = __repr__


class ModelMetadata:
    """What a model's file says of itself."""

    def __init__(self, metadata):
        self.producer_name = metadata.producer_name
        self.graph_name = metadata.graph_name
        self.domain = metadata.domain
        self.description = metadata.description
        self.graph_description = metadata.graph_description
        # What ONNX Runtime says of a model that does not say.
        self.version = metadata.version or 2**63 - 1
        self.custom_metadata_map = metadata.properties


def _tune_level(options):
    said = options.config("planish.tune_level")
    if said:
        return int(said)
    return 0 if options.graph_optimization_level <= GraphOptimizationLevel.ORT_ENABLE_BASIC else 1


def _shapes(model, sizes):
    """The shapes that fixed sizes amount to, if they leave none open."""
    shapes = {}
    for info in model.inputs:
        shape = None if info.shape is None else [sizes.get(size, size) for size in info.shape]
        if shape is None or not all(isinstance(size, int) for size in shape):
            return None
        shapes[info.name] = shape
    return shapes if sizes else None


class InferenceSession:
    """A model that is ready to run, of the path of an ONNX file, of its bytes, or of a plan of Planish's.

    Runs are safe from any number of threads, and release the interpreter's lock.
    """

    def __init__(self, path_or_bytes, sess_options=None, providers=None, provider_options=None, **kwargs):
        self._options = sess_options if sess_options is not None else SessionOptions()
        self._used, self._device, precision = _providers.chosen(providers, provider_options)
        threads = self._options.intra_op_num_threads or None
        self._last_feed = None
        self._started_ns = time.perf_counter_ns()
        with translated():
            if _is_plan(path_or_bytes):
                self._metadata = planish.Metadata()
                self._engine = planish.load(path_or_bytes, self._device, threads=threads)
            else:
                self._engine = self._build(path_or_bytes, precision, threads)
        infos = self._engine.inputs
        # Sizes that the file gives no name are called after their input and axis.
        nameless = {f"{info.name}.{axis}" for info in infos for axis in range(len(info.shape or ()))}
        self._inputs = [NodeArg(info, nameless) for info in infos]
        self._outputs = [NodeArg(info, nameless) for info in self._engine.outputs]
        self._input_names = {info.name for info in self._inputs}
        self._output_names = {info.name for info in self._outputs}

    def _build(self, source, precision, threads):
        options = self._options
        model = planish.Model(source)
        self._metadata = model.metadata
        named = options.config("planish.precision")
        plan = planish.build(
            model,
            precision=named if "planish.precision" in options._entries else precision,
            calib=options.config("planish.calib") or None,
            shapes=_shapes(model, options.fixed_sizes()),
            device=self._device,
            threads=threads,
            tune_level=_tune_level(options),
            cache=options.config("planish.cache") != "0",
        )
        if options.optimized_model_filepath:
            plan.save(options.optimized_model_filepath)
        return plan.engine(self._device, threads=threads)

    def run(self, output_names, input_feed, run_options=None):
        """The outputs of these names, or all of them, as a list of arrays."""
        if len(input_feed) < len(self._inputs):
            missing = [info.name for info in self._inputs if info.name not in input_feed]
            if missing:
                given = list(input_feed)
                raise ValueError(f"Required inputs ({missing}) are missing from input feed ({given}).")
        for name in input_feed:
            if name not in self._input_names:
                raise InvalidArgument(f"[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid input name: {name}")
        for name in output_names or ():
            if name not in self._output_names:
                raise InvalidArgument(f"[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid output name:{name}")
        if self._options.enable_profiling:
            self._last_feed = dict(input_feed)
        with translated():
            made = self._engine.run(input_feed)
        return list(made.values()) if not output_names else [made[name] for name in output_names]

    def run_async(self, output_names, input_feed, callback, user_data, run_options=None):
        """Runs in a thread of its own, and calls `callback(results, user_data, error)` when that is done."""
        import threading

        def work():
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as raised:
                results, error = [], str(raised)
            callback(results, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def run_with_ort_values(self, output_names, input_dict_ort_values, run_options=None):
        """The same over values."""
        feed = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return [OrtValue(array) for array in self.run(output_names, feed, run_options)]

    def io_binding(self):
        """Inputs and outputs to be given beforehand."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding, run_options=None):
        """Runs on what is bound."""
        iobinding.run(run_options)

    def get_inputs(self):
        """The model's inputs, in its order."""
        return list(self._inputs)

    def get_outputs(self):
        """The model's outputs, in its order."""
        return list(self._outputs)

    def get_overridable_initializers(self):
        """None: weights are part of the plan."""
        return []

    def get_modelmeta(self):
        """What the model's file says of itself."""
        return ModelMetadata(self._metadata)

    def get_session_options(self):
        """The options that it was made with."""
        return self._options

    def get_providers(self):
        """The providers that are used."""
        return [name for name, _ in self._used]

    def get_provider_options(self):
        """Their options."""
        return dict(self._used)

    def set_providers(self, providers=None, provider_options=None):
        """Refused for another device: a session is built for one."""
        _, device, _ = _providers.chosen(providers, provider_options)
        if device != self._device:
            raise NotImplementedError(f"the session is built for {self._device}; make another one for {device}")

    def disable_fallback(self):
        """Taken and left alone: a run is never repeated on another device."""

    def enable_fallback(self):
        """Taken and left alone: a run is never repeated on another device."""

    def get_profiling_start_time_ns(self):
        """When the session was made."""
        return self._started_ns

    def end_profiling(self):
        """Times every step on the inputs of the last run, and writes a trace that browsers show; gives its path."""
        if not self._options.enable_profiling:
            return ""
        path = f"{self._options.profile_file_prefix}{time.strftime('%Y-%m-%d_%H-%M-%S')}.json"
        events, start = [], 0.0
        if self._last_feed is not None:
            for step in self._engine.profile(self._last_feed):
                event = {"cat": "Node", "ph": "X", "pid": os.getpid(), "tid": 0, "name": step.name or step.operators}
                events.append({**event, "ts": start, "dur": step.us, "args": {"op_name": step.operators, "kernel": step.kernel}})
                start += step.us
        with open(path, "w") as file:
            json.dump(events, file)
        return path


def _is_plan(source):
    """Whether a path is that of a plan, by its first bytes."""
    if isinstance(source, (bytes, bytearray)):
        return False
    try:
        with open(source, "rb") as file:
            return planish.is_plan(file.read(16))
    except OSError:
        return False
