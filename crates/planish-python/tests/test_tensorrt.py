"""`planish.tensorrt` on host memory: the ways in which scripts build, keep, run, profile and inspect engines."""

import json

import numpy as np
import planish
import planish.tensorrt as trt
import pytest

from conftest import RELU, TWO
from test_build import LAYERS


class Kept(trt.ILogger):
    """A logger that keeps what it is told."""

    def __init__(self):
        trt.ILogger.__init__(self)
        self.told = []

    def log(self, severity, msg):
        """Keeps a message."""
        self.told.append((severity, msg))


@pytest.fixture
def logger():
    """A logger that keeps what it is told."""
    return Kept()


def built(text, logger, change=None):
    """The bytes of an engine of a model, built without measuring."""
    planish.Model.parse(text).save_onnx("model.onnx")
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    with open("model.onnx", "rb") as file:
        assert parser.parse(file.read()), parser.get_error(0)
    config = builder.create_builder_config()
    config.builder_optimization_level = 0
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 28)
    if change is not None:
        change(builder, network, config)
    serialized = builder.build_serialized_network(network, config)
    assert serialized is not None, logger.told
    return serialized


def ranges(builder, network, config):
    """Batches of 1 to 8."""
    profile = builder.create_optimization_profile()
    profile.set_shape(network.get_input(0).name, (1, 4), (2, 4), (8, 4))
    assert config.add_optimization_profile(profile) == 0


def test_profiles_are_told_and_held_to(logger):
    """Scripts allocate for the largest shape of a profile, and ask whether a shape is taken."""

    def two(builder, network, config):
        ranges(builder, network, config)
        wider = builder.create_optimization_profile()
        wider.set_shape("x", (16, 4), (32, 4), (64, 4))
        assert config.add_optimization_profile(wider) == 1

    engine = trt.Runtime(logger).deserialize_cuda_engine(built(RELU, logger, two))
    assert engine.num_optimization_profiles == 2
    assert [tuple(shape) for shape in engine.get_tensor_profile_shape("x", 0)] == [(1, 4), (2, 4), (8, 4)]
    assert [tuple(shape) for shape in engine.get_profile_shape(1, 0)] == [(16, 4), (32, 4), (64, 4)]
    with pytest.raises(IndexError):
        engine.get_tensor_profile_shape("x", 2)
    context = engine.create_execution_context()
    for size, taken in [(8, True), (9, False), (16, True), (65, False), (0, False)]:
        assert context.set_input_shape("x", (size, 4)) is taken, size
    severity, told = logger.told[-1]
    assert severity == trt.ILogger.ERROR and "(0, 4) is outside of the optimization profiles" in told
    assert tuple(context.get_tensor_shape("x")) == (16, 4)
    # Without profiles any size runs.
    engine = trt.Runtime(logger).deserialize_cuda_engine(built(RELU, logger))
    assert engine.num_optimization_profiles == 1 and engine.engine.profiles == []
    assert [tuple(shape) for shape in engine.get_tensor_profile_shape("x", 0)] == [(1, 4), (1, 4), (2**31 - 1, 4)]
    assert engine.create_execution_context().set_input_shape("x", (100, 4))


def test_calls_of_version_8(logger):
    engine = trt.Runtime(logger).deserialize_cuda_engine(built(RELU, logger, ranges))
    assert [engine.get_binding_name(i) for i in range(engine.num_bindings)] == ["x", "y"] == list(engine)
    assert engine.binding_is_input(0) and not engine.binding_is_input("y")
    assert tuple(engine.get_binding_shape(0)) == (-1, 4)
    assert trt.nptype(engine.get_binding_dtype("y")) == np.float32
    with engine.create_execution_context() as context:
        assert not context.all_binding_shapes_specified
        assert context.set_binding_shape(0, (3, 4)) and not context.set_binding_shape(0, (3, 5))
        assert context.all_binding_shapes_specified
        shape = context.get_binding_shape(engine.get_binding_index("y"))
        x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
        y = np.empty(trt.volume(shape), np.float32)
        assert context.execute_v2(bindings=[int(x.ctypes.data), int(y.ctypes.data)])
        np.testing.assert_array_equal(y.reshape(shape), np.maximum(x, 0))
        y[:] = 0
        assert context.execute_async_v2(bindings=[x.ctypes.data, y.ctypes.data], stream_handle=0)
        np.testing.assert_array_equal(y.reshape(shape), np.maximum(x, 0))


def test_calls_of_version_10(logger):
    serialized = built(TWO, logger)
    with open("engine.plan", "wb") as file:
        file.write(serialized)
    with open("engine.plan", "rb") as file, trt.Runtime(logger).deserialize_cuda_engine(file.read()) as engine:
        context = engine.create_execution_context()
        memory = {}
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
                context.set_input_shape(name, (5,))
            shape = context.get_tensor_shape(name)
            memory[name] = np.ones(shape, trt.nptype(engine.get_tensor_dtype(name)))
            assert context.set_tensor_address(name, memory[name].ctypes.data)
        memory["x"][:] = [-2, -1, 0, 1, 2]
        assert context.execute_async_v3(stream_handle=0)
        np.testing.assert_array_equal(memory["p"], [0, 0, 0, 1, 2])
        np.testing.assert_array_equal(memory["m"], [2, 1, 0, -1, -2])
    # The plan is Planish's own.
    np.testing.assert_array_equal(planish.load("engine.plan")(memory["x"])[0], memory["p"])


def test_sizes_and_addresses_that_are_missing_say_so(logger):
    context = trt.Runtime(logger).deserialize_cuda_engine(built(RELU, logger)).create_execution_context()
    assert context.infer_shapes() == ["x"]
    with pytest.raises(planish.errors.WrongShape, match="set_input_shape"):
        context.execute_async_v3(0)
    context.set_input_shape("x", (1, 4))
    with pytest.raises(ValueError, match="address"):
        context.execute_async_v3(0)
    assert not context.set_tensor_address("z", 1)


class Images(trt.IInt8EntropyCalibrator2):
    """Random batches in one piece of memory, as calibrators on a device have it."""

    def __init__(self, n_batches):
        trt.IInt8EntropyCalibrator2.__init__(self)
        self.left, self.memory = n_batches, np.empty((2, 8, 8, 8), np.float32)
        self.rng = np.random.default_rng(3)
        self.cache = None

    def get_batch_size(self):
        """Images in a batch."""
        return 2

    def get_batch(self, names):
        """The memory, filled anew."""
        if self.left == 0:
            return None
        self.left -= 1
        self.memory[...] = self.rng.standard_normal(self.memory.shape)
        return [int(self.memory.ctypes.data)]

    def read_calibration_cache(self):
        """What was found before."""
        return self.cache

    def write_calibration_cache(self, cache):
        """Keeps what was found."""
        self.cache = cache


def test_int8_with_a_calibrator_and_its_cache(logger):
    calibrator = Images(4)

    def integers(builder, network, config):
        config.set_flag(trt.BuilderFlag.INT8)
        config.int8_calibrator = calibrator

    first = built(LAYERS, logger, integers)
    assert calibrator.left == 0 and calibrator.cache.startswith(b"TRT-")
    again = built(LAYERS, logger, integers)
    x = np.random.default_rng(5).standard_normal((1, 8, 8, 8)).astype(np.float32)
    answers = []
    for serialized in (first, again, built(LAYERS, logger)):
        context = trt.Runtime(logger).deserialize_cuda_engine(serialized).create_execution_context()
        context.set_input_shape("x", x.shape)
        y = np.zeros_like(x)
        context.execute_v2([x.ctypes.data, y.ctypes.data])
        answers.append(y)
    np.testing.assert_array_equal(answers[0], answers[1])
    # Two roundings to 8 bits of either operand: a few percent at most, and never none.
    assert 0 < np.linalg.norm(answers[0] - answers[2]) / np.linalg.norm(answers[2]) < 0.05


def test_profilers_and_inspectors(logger):
    class Times(trt.IProfiler):
        """Keeps the times of layers."""

        def __init__(self):
            trt.IProfiler.__init__(self)
            self.layers = {}

        def report_layer_time(self, layer_name, ms):
            """Keeps one."""
            self.layers[layer_name] = ms

    engine = trt.Runtime(logger).deserialize_cuda_engine(built(TWO, logger))
    context = engine.create_execution_context()
    context.profiler = Times()
    context.set_input_shape("x", (2,))
    x, p, m = np.ones(2, np.float32), np.ones(2, np.float32), np.ones(2, np.float32)
    context.execute_v2([x.ctypes.data, p.ctypes.data, m.ctypes.data])
    assert context.profiler.layers and all(ms >= 0 for ms in context.profiler.layers.values())
    inspector = engine.create_engine_inspector()
    layers = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))["Layers"]
    assert len(layers) == engine.num_layers and layers[0]["TacticName"]
    assert "kernel" in inspector.get_engine_information(trt.LayerInformationFormat.ONELINE)
    assert json.loads(inspector.get_layer_information(0, trt.LayerInformationFormat.JSON)) == layers[0]


def test_what_is_not_honoured_says_so_once(logger):
    def odd(builder, network, config):
        config.set_flag(trt.BuilderFlag.STRICT_TYPES)
        config.set_flag(trt.BuilderFlag.INT8)
        assert config.get_flag(trt.BuilderFlag.INT8) and config.flags & 1 << int(trt.BuilderFlag.INT8)

    built(RELU, logger, odd)
    built(RELU, logger, odd)
    warned = [msg for severity, msg in logger.told if severity == trt.Logger.WARNING]
    assert sorted(word for msg in warned for word in ("STRICT_TYPES", "calibrator") if word in msg) == ["STRICT_TYPES", "calibrator"]
    assert any(severity == trt.Logger.VERBOSE and "Relu" in msg for severity, msg in logger.told)


def test_what_cannot_be_read_or_built_is_told(logger, capsys):
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    assert not parser.parse(b"no model") and not parser.parse_from_file("no.onnx")
    assert parser.num_errors == 2 and "no.onnx" in parser.get_error(1).desc()
    assert builder.build_serialized_network(network, builder.create_builder_config()) is None
    assert trt.Runtime(logger).deserialize_cuda_engine(b"no plan") is None
    assert all(severity == trt.Logger.ERROR for severity, _ in logger.told) and len(logger.told) == 4
    loud = trt.Logger(trt.Logger.ERROR)
    loud.log(trt.Logger.ERROR, "heard")
    loud.log(trt.Logger.WARNING, "not heard")
    assert capsys.readouterr().err == "[PLANISH] [E] heard\n"
