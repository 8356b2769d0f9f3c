"""Options of sessions and of runs."""

import os

from planish._named import Named


class GraphOptimizationLevel(Named):
    """How much is done to a model. Everything here is optimized; the higher levels also measure kernels."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Named):
    """Whether branches run beside each other: decided when a model is built, whatever is asked for."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Named):
    """The order of nodes: decided when a model is built, whatever is asked for."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


#: Entries of `add_session_config_entry` that are Planish's own, with what they are if nobody says otherwise.
CONFIG = {
    # fp32, tf32, fp16, bf16 or int8
    "planish.precision": "fp32",
    # The path of a calibration, for int8.
    "planish.calib": "",
    # 0 goes by the cost model, up to 5 measures more and more; empty goes by the graph optimization level.
    "planish.tune_level": "",
    # Whether plans are kept for the next time.
    "planish.cache": "1",
}


class SessionOptions:
    """What a session is asked for. What is not named here has no meaning in Planish and is left alone.

    `intra_op_num_threads` are the threads that a model is tuned for and runs with; `graph_optimization_level` up to
    `ORT_ENABLE_BASIC` goes by the cost model alone; free dimension overrides fix sizes; `enable_profiling` writes a trace;
    `optimized_model_filepath` keeps the plan. `add_session_config_entry("planish.precision", "fp16")` and its like
    (`planish.calib`, `planish.tune_level`, `planish.cache`) say what ONNX Runtime has no word for.
    """

    def __init__(self):
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.optimized_model_filepath = ""
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self._entries = {}
        self._sizes = {}
        self._weights = {}

    def __setattr__(self, key, value):
        known = self.__dict__.get(key)
        if known is None and "_weights" in self.__dict__:
            raise AttributeError(f"'SessionOptions' object has no attribute '{key}'")
        if isinstance(known, Named) and not isinstance(value, type(known)) or type(known) in (int, str) and not isinstance(value, (type(known), os.PathLike)):
            raise TypeError(f"SessionOptions.{key} is {type(known).__name__}, not {type(value).__name__}")
        object.__setattr__(self, key, bool(value) if isinstance(known, bool) else value)

    def add_initializer(self, name, ort_value):
        """Another weight in the place of the model's."""
        self._weights[name] = ort_value

    def add_external_initializers(self, names, ort_values):
        """Other weights in the place of the model's."""
        self._weights.update(zip(names, ort_values))

    def replaced_weights(self):
        """The weights that take the place of the model's, as arrays."""
        return {name: value.numpy() for name, value in self._weights.items()}

    def add_external_initializers_from_files_in_memory(self, names, contents, lengths):
        """Refused: give the path of the model, or its weights by `add_external_initializers`."""
        raise NotImplementedError("files of weights in memory are not read; give the path of the model, or add_external_initializers")

    def add_provider(self, provider, provider_options=None):
        """A provider for sessions that are not given any."""
        self._entries.setdefault("providers", []).append((provider, dict(provider_options or {})))

    def add_provider_for_devices(self, devices, provider_options=None):
        """Taken and left alone: devices are chosen by providers."""

    def has_providers(self):
        """Whether providers were added."""
        return bool(self._entries.get("providers"))

    def set_provider_selection_policy(self, policy):
        """Taken and left alone: devices are chosen by providers."""

    set_provider_selection_policy_delegate = set_load_cancellation_flag = set_provider_selection_policy

    def add_session_config_entry(self, key, value):
        """Keeps an entry; those of Planish begin with `planish.`, others are left alone."""
        if key.startswith("planish.") and key not in CONFIG:
            raise ValueError(f"{key} is no entry of Planish; there are {', '.join(CONFIG)}")
        self._entries[key] = value

    def get_session_config_entry(self, key):
        """The entry that was kept under this key."""
        if key not in self._entries:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

    def config(self, key):
        """An entry of Planish's own."""
        return self._entries.get(key, CONFIG[key])

    def add_free_dimension_override_by_name(self, name, size):
        """Fixes a size that the model leaves open."""
        self._sizes[name] = size

    def add_free_dimension_override_by_denotation(self, denotation, size):
        """Refused: denotations are not kept."""
        raise NotImplementedError("sizes are fixed by name: add_free_dimension_override_by_name")

    def register_custom_ops_library(self, path):
        """Refused: operators in libraries of ONNX Runtime's cannot be called."""
        raise NotImplementedError(f"{path}: operators of ONNX Runtime's libraries cannot be called from Planish")

    def fixed_sizes(self):
        """The sizes that overrides fix, by name."""
        return dict(self._sizes)


class RunOptions:
    """Options of a run: `terminate` ends it before it begins, others are taken and left alone."""

    def __init__(self):
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.terminate = False
        self._entries = {}

    def add_active_adapter(self, adapter):
        """Refused: weights are part of a plan."""
        raise NotImplementedError("adapters cannot be put on a plan; merge them into the model")

    def add_run_config_entry(self, key, value):
        """Keeps an entry."""
        self._entries[key] = value

    def get_run_config_entry(self, key):
        """The entry that was kept under this key."""
        if key not in self._entries:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._entries[key]
