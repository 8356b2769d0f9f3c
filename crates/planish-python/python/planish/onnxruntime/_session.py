"""`InferenceSession`: a model, built when it is made."""

import json
import os
import time

import planish

from . import _providers
from ._errors import Fail, InvalidArgument, translated
from ._files import defaults, output_names, type_and_sizes, with_weights, without_weights
from ._options import GraphOptimizationLevel, SessionOptions
from ._types import type_name, type_of_number
from ._values import IOBinding, OrtMemoryInfo, OrtValue, OrtValueVector
from ._words import settled


class NodeArg:
    """An input or an output: `name`, `type` as in `tensor(float)`, and `shape`."""

    def __init__(self, info, nameless=(), words=None):
        self.name = info.name
        self.type = type_name(info.dtype) if words is None else words.type_of(info.name, type_name(info.dtype))
        # Sizes that only a run can tell have no name.
        sizes = info.shape if words is None or info.name not in words.maps else ()
        self.shape = [None if size in nameless or isinstance(size, str) and "'" in size else size for size in sizes or ()]

    def __repr__(self):
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"

    __str__ = __repr__


class _Declared(NodeArg):
    """An input as the file declares it."""

    def __init__(self, name, number, shape):
        self.name, self.type, self.shape = name, type_of_number(number), shape


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


class Session:
    """What sessions have in common."""


class InferenceSession(Session):
    """A model that is ready to run, of the path of an ONNX file, of its bytes, or of a plan of Planish's.

    Runs are safe from any number of threads, and release the interpreter's lock.
    """

    def __init__(self, path_or_bytes, sess_options=None, providers=None, provider_options=None, **kwargs):
        if not isinstance(path_or_bytes, (str, bytes, bytearray, os.PathLike, planish.Model)):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        self._options = sess_options if sess_options is not None else SessionOptions()
        self._model_path = "" if isinstance(path_or_bytes, (bytes, bytearray, planish.Model)) else os.fspath(path_or_bytes)
        self._words, self._named_outputs = None, None
        self._default_inputs, self._others = None, {}
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
        self._inputs = [NodeArg(info, nameless, self._words) for info in infos]
        self._outputs = [NodeArg(info, nameless, self._words) for info in self._engine.outputs]
        self._input_names = {info.name for info in self._inputs}
        self._output_names = {info.name for info in self._outputs}

    def _build(self, source, precision, threads):
        options = self._options
        self._source = source
        if options.replaced_weights():
            source = with_weights(source, options.replaced_weights())
        if not isinstance(source, planish.Model):
            source, self._words = settled(source)
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
            self._save_optimized(model, plan, os.fspath(options.optimized_model_filepath))
        return plan.engine(self._device, threads=threads)

    @staticmethod
    def _save_optimized(model, plan, path):
        """Keeps the optimized model: as an ONNX file, or as the plan where the file is called so."""
        if path.endswith(".plan"):
            plan.save(path)
        else:
            model.simplified().save_onnx(path)

    def run(self, output_names, input_feed, run_options=None):
        """The outputs of these names, or all of them, as a list of arrays."""
        if not self._input_names <= input_feed.keys():
            missing = [info.name for info in self._inputs if info.name not in input_feed]
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(input_feed)}).")
        if run_options is not None and run_options.terminate:
            raise Fail("[ONNXRuntimeError] : 1 : FAIL : Exiting due to terminate flag being set to true.")
        for name in input_feed:
            if name not in self._input_names:
                if name in self._defaults():
                    return self._overriding(input_feed).run(output_names, input_feed, run_options)
                raise InvalidArgument(f"[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid input name: {name}")
        for name in output_names or ():
            if name not in self._output_names:
                raise InvalidArgument(f"[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid output name:{name}")
        if self._options.enable_profiling:
            self._last_feed = dict(input_feed)
        if self._words is not None:
            input_feed = {name: self._words.to_numbers(array) if name in self._words.inputs else array for name, array in input_feed.items()}
        try:
            made = self._engine.run(input_feed)
        except planish.errors.Error as error:
            self._explain(input_feed, error)
        if self._words is not None:
            made = {name: self._words.of(name, array) for name, array in made.items()}
        return list(made.values()) if not output_names else [made[name] for name in output_names]

    def _explain(self, input_feed, error):
        """Raises what ONNX Runtime would, in its words where it has them for an input."""
        if isinstance(error, (planish.errors.WrongType, planish.errors.WrongShape)):
            for port in self._inputs:
                words = _mismatch(port, input_feed[port.name])
                if words:
                    raise InvalidArgument(f"[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : {words} ({error})") from error
        with translated():
            raise error

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

    def run_with_ortvaluevector(self, run_options, feed_names, feeds, fetch_names, fetches, fetch_devices):
        """The same over lists of values: `fetches` takes the outputs."""
        made = self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds)), run_options)
        fetches[:] = OrtValueVector(made)

    def io_binding(self):
        """Inputs and outputs to be given beforehand."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding, run_options=None):
        """Runs on what is bound."""
        try:
            iobinding.run(run_options)
        except (InvalidArgument, ValueError, Fail) as error:
            raise RuntimeError(f"Error in execution: {error}") from error

    def get_inputs(self):
        """The model's inputs, in its order."""
        return list(self._inputs)

    def get_outputs(self):
        """The model's outputs, in its order."""
        if self._named_outputs is None:
            self._named_outputs = True
            self._name_sizes()
        return list(self._outputs)

    def _name_sizes(self):
        """Calls open sizes of outputs as the file does."""
        declared = output_names(self._source) if hasattr(self, "_source") else {}
        for port in self._outputs:
            names = declared.get(port.name)
            if names is not None and len(names) == len(port.shape):
                port.shape = [known if isinstance(known, int) or not said else said for known, said in zip(port.shape, names)]

    _inputs_meta = property(get_inputs)
    _outputs_meta = property(get_outputs)
    _model_meta = property(lambda self: self.get_modelmeta())

    def get_input_memory_infos(self):
        """Where inputs are read: in host memory, or a GPU's."""
        return [OrtMemoryInfo.of(self._device) for _ in self._inputs]

    def get_output_memory_infos(self):
        """Where outputs are written."""
        return [OrtMemoryInfo.of(self._device) for _ in self._outputs]

    def get_input_epdevices(self):
        """None is told apart."""
        return [None for _ in self._inputs]

    def get_tuning_results(self):
        """None: what was measured is in timing caches and plans."""
        return []

    def set_tuning_results(self, results, error_on_invalid=False):
        """Taken and left alone: what was measured is in timing caches and plans."""

    def set_ep_dynamic_options(self, options):
        """Taken and left alone."""

    def get_provider_graph_assignment_info(self):
        """None is told apart: all nodes are of one plan."""
        return []

    def get_overridable_initializers(self):
        """The inputs that have a value if they are not given."""
        return list(self._defaults().values())

    def _defaults(self):
        """The same by name."""
        if self._default_inputs is None:
            found = defaults(self._source) if hasattr(self, "_source") and not isinstance(self._source, planish.Model) else {}
            self._default_inputs = {name: _Declared(name, *type_and_sizes(info)) for name, info in found.items()}
        return self._default_inputs

    def _overriding(self, input_feed):
        """The session of the model that takes these inputs, though they have a value: built when they are first given."""
        names = frozenset(name for name in input_feed if name in self._defaults())
        if names not in self._others:
            self._others[names] = InferenceSession(without_weights(self._source, names), self._options, self.get_providers())
        return self._others[names]

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


def _mismatch(port, given):
    """What is wrong with an array for an input, in ONNX Runtime's words; nothing where that is another matter."""
    dtype, shape = getattr(given, "dtype", None), getattr(given, "shape", None)
    if dtype is None or shape is None:
        return None
    found = type_name(getattr(dtype, "name", str(dtype).replace("torch.", "")))
    if found != port.type:
        return f"Unexpected input data type. Actual: ({found}) , expected: ({port.type})"
    if len(shape) != len(port.shape):
        return f"Invalid rank for input: {port.name} Got: {len(shape)} Expected: {len(port.shape)} Please fix either the inputs/outputs or the model."
    wrong = [(axis, got, wanted) for axis, (got, wanted) in enumerate(zip(shape, port.shape)) if isinstance(wanted, int) and got != wanted]
    if not wrong:
        return None
    listed = "\n".join(f" index: {axis} Got: {got} Expected: {wanted}" for axis, got, wanted in wrong)
    return f"Got invalid dimensions for input: {port.name} for the following indices\n{listed}\n Please fix either the inputs/outputs or the model."


def _is_plan(source):
    """Whether a path is that of a plan, by its first bytes."""
    if isinstance(source, (bytes, bytearray, planish.Model)):
        return False
    try:
        with open(source, "rb") as file:
            return planish.is_plan(file.read(16))
    except OSError:
        return False
