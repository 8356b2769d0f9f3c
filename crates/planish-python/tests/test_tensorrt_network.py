"""Networks defined layer by layer, as scripts for TensorRT do it: each layer against numpy."""

import numpy as np
import planish
import planish.tensorrt as trt
import pytest

from test_tensorrt import Kept


@pytest.fixture
def logger():
    """A logger that keeps what it is told."""
    return Kept()


@pytest.fixture
def network(logger):
    """An empty network, which knows its builder."""
    builder = trt.Builder(logger)
    made = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    made.builder = builder
    return made


def run(network, logger, *inputs, change=None):
    """Builds a network, runs it, and gives its outputs."""
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 0
    if change is not None:
        change(config)
    serialized = network.builder.build_serialized_network(network, config)
    assert serialized is not None, logger.told
    engine = trt.Runtime(logger).deserialize_cuda_engine(serialized)
    context = engine.create_execution_context()
    memory = []
    for idx in range(engine.num_io_tensors):
        name = engine.get_tensor_name(idx)
        if idx < len(inputs):
            memory.append(np.ascontiguousarray(inputs[idx]))
            assert context.set_input_shape(name, memory[-1].shape)
        else:
            memory.append(np.empty(tuple(context.get_tensor_shape(name)), trt.nptype(engine.get_tensor_dtype(name))))
        context.set_tensor_address(name, memory[-1].ctypes.data)
    assert context.execute_async_v3(0)
    return memory[len(inputs) :]


def floats(*shape):
    """Numbers to compute with."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


X = floats(2, 3, 4, 5)

LAYERS = {
    "relu": (lambda n, x: n.add_activation(x, trt.ActivationType.RELU), lambda x: np.maximum(x, 0)),
    "clip": (lambda n, x: told(n.add_activation(x, trt.ActivationType.CLIP), alpha=-0.5, beta=0.5), lambda x: np.clip(x, -0.5, 0.5)),
    "leaky": (lambda n, x: told(n.add_activation(x, trt.ActivationType.LEAKY_RELU), alpha=0.25), lambda x: np.where(x < 0, 0.25 * x, x)),
    "unary": (lambda n, x: n.add_unary(x, trt.UnaryOperation.ABS), np.abs),
    "exp": (lambda n, x: n.add_unary(x, trt.UnaryOperation.EXP), np.exp),
    "sum": (lambda n, x: n.add_elementwise(x, x, trt.ElementWiseOperation.SUM), lambda x: x + x),
    "floor_div": (lambda n, x: n.add_elementwise(x, half(n), trt.ElementWiseOperation.FLOOR_DIV), lambda x: np.floor(x / 0.5)),
    "max": (lambda n, x: told(n.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2)), stride_nd=(2, 2)), lambda x: x[:, :, :4, :4].reshape(2, 3, 2, 2, 2, 2).max((3, 5))),
    "mean": (
        lambda n, x: told(n.add_pooling_nd(x, trt.PoolingType.AVERAGE, (2, 2)), stride_nd=(2, 2)),
        lambda x: x[:, :, :4, :4].reshape(2, 3, 2, 2, 2, 2).mean((3, 5)),
    ),
    "softmax": (lambda n, x: told(n.add_softmax(x), axes=1 << 1), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "concat": (lambda n, x: told(n.add_concatenation([x, x]), axis=2), lambda x: np.concatenate([x, x], 2)),
    "reduce": (lambda n, x: n.add_reduce(x, trt.ReduceOperation.AVG, 0b1100, True), lambda x: x.mean((2, 3), keepdims=True)),
    "shuffle": (
        lambda n, x: told(n.add_shuffle(x), first_transpose=trt.Permutation([0, 2, 3, 1]), reshape_dims=(0, -1)),
        lambda x: x.transpose(0, 2, 3, 1).reshape(2, -1),
    ),
    "slice": (lambda n, x: n.add_slice(x, (0, 2, 0, 1), (2, 3, 4, 2), (1, -1, 1, 2)), lambda x: x[:, ::-1, :, 1:4:2]),
    "topk": (lambda n, x: n.add_topk(x, trt.TopKOperation.MAX, 2, 1 << 3), lambda x: -np.sort(-x, 3)[..., :2]),
    "gather": (lambda n, x: n.add_gather(x, constant(n, np.int32([2, 0])), 1), lambda x: x[:, [2, 0]]),
    "resize": (lambda n, x: told(n.add_resize(x), scales=[1, 1, 2, 2]), lambda x: x.repeat(2, 2).repeat(2, 3)),
    "scale": (
        lambda n, x: n.add_scale(x, trt.ScaleMode.CHANNEL, np.float32([1, 2, 3]), np.float32([2, 2, 2]), None),
        lambda x: x * 2 + np.float32([1, 2, 3])[:, None, None],
    ),
    "padding": (lambda n, x: n.add_padding_nd(x, (1, 0), (0, 2)), lambda x: np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)))),
    "identity": (lambda n, x: n.add_identity(x), lambda x: x),
    "select": (
        lambda n, x: n.add_select(n.add_elementwise(x, half(n), trt.ElementWiseOperation.GREATER).get_output(0), x, half(n)),
        lambda x: np.where(x > 0.5, x, 0.5),
    ),
    "einsum": (lambda n, x: n.add_einsum([x, x], "abcd,abed->abce"), lambda x: np.einsum("abcd,abed->abce", x, x)),
    "normalization": (
        lambda n, x: n.add_normalization(x, constant(n, np.full((1, 1, 1, 5), 2, "f")), constant(n, np.ones((1, 1, 1, 5), "f")), 1 << 3),
        lambda x: 2 * (x - x.mean(3, keepdims=True)) / np.sqrt(x.var(3, keepdims=True) + 1e-5) + 1,
    ),
    "fully_connected": (
        lambda n, x: n.add_fully_connected(x, 7, floats(7, 60), floats(7)),
        lambda x: (x.reshape(2, 60) @ floats(7, 60).T + floats(7)).reshape(2, 7, 1, 1),
    ),
    "matrix": (
        lambda n, x: n.add_matrix_multiply(x, trt.MatrixOperation.NONE, x, trt.MatrixOperation.TRANSPOSE),
        lambda x: x @ x.transpose(0, 1, 3, 2),
    ),
}


def told(layer, **what):
    """A layer that was told more."""
    for key, value in what.items():
        setattr(layer, key, value)
        assert tuple(np.ravel(getattr(layer, key))) == tuple(np.ravel(value))
    return layer


def constant(network, array):
    """Elements that do not change."""
    return network.add_constant(array.shape, array).get_output(0)


def half(network):
    """One half."""
    return constant(network, np.full((1, 1, 1, 1), 0.5, np.float32))


@pytest.mark.parametrize("name", LAYERS)
def test_each_layer(name, network, logger):
    make, expected = LAYERS[name]
    layer = make(network, network.add_input("x", trt.float32, X.shape))
    output = layer.get_output(0)
    output.name = "y"
    network.mark_output(output)
    wanted = expected(X)
    assert tuple(output.shape) == wanted.shape and output.dtype == trt.float32
    (y,) = run(network, logger, X)
    # Sums of a few numbers near 1, in another order.
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def classifier(network, batch=-1):
    """A small network of convolutions, with a batch that a run decides."""
    x = network.add_input("data", trt.float32, (batch, 1, 12, 12))
    conv = network.add_convolution_nd(x, 4, (3, 3), floats(4, 1, 3, 3), floats(4))
    conv.padding_nd = (1, 1)
    conv.name = "conv"
    relu = network.add_activation(conv.get_output(0), trt.ActivationType.RELU)
    pool = network.add_pooling_nd(relu.get_output(0), trt.PoolingType.MAX, (2, 2))
    pool.stride_nd = (2, 2)
    flat = network.add_shuffle(pool.get_output(0))
    flat.reshape_dims = (-1, 144)
    weights = network.add_constant((10, 144), floats(10, 144))
    product = network.add_matrix_multiply(flat.get_output(0), trt.MatrixOperation.NONE, weights.get_output(0), trt.MatrixOperation.TRANSPOSE)
    product.get_output(0).name = "prob"
    network.mark_output(product.get_output(0))
    return conv, pool, product


def by_numpy(x):
    """The same in numpy."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    conv = np.einsum("ncijkl,ockl->noij", windows, floats(4, 1, 3, 3)) + floats(4)[:, None, None]
    pool = np.maximum(conv, 0).reshape(len(x), 4, 6, 2, 6, 2).max((3, 5))
    return pool.reshape(len(x), 144) @ floats(10, 144).T


def test_a_network_with_open_batches(network, logger):
    conv, pool, product = classifier(network)
    assert [tuple(layer.get_output(0).shape) for layer in (conv, pool, product)] == [(-1, 4, 12, 12), (-1, 4, 6, 6), (-1, 10)]
    assert (network.num_layers, network.get_layer(0).type, conv.num_inputs) == (6, trt.LayerType.CONVOLUTION, 1)
    profile = network.builder.create_optimization_profile()
    profile.set_shape("data", (1, 1, 12, 12), (2, 1, 12, 12), (4, 1, 12, 12))
    for batch in (1, 3):
        x = floats(batch, 1, 12, 12)
        (y,) = run(network, logger, x, change=lambda config: config.add_optimization_profile(profile))
        np.testing.assert_allclose(y, by_numpy(x), rtol=1e-4, atol=1e-4)


def test_ranges_by_hand_make_integers(network, logger):
    conv, pool, product = classifier(network, 2)
    network.get_input(0).set_dynamic_range(-4, 4)
    for layer in network:
        for idx in range(layer.num_outputs):
            layer.get_output(idx).set_dynamic_range(-40, 40)
    conv.precision = trt.int8
    product.precision = trt.float32
    assert conv.precision_is_set and not pool.precision_is_set
    x = floats(2, 1, 12, 12)
    (y,) = run(network, logger, x, change=lambda config: config.set_flag(trt.BuilderFlag.INT8))
    error = np.linalg.norm(y - by_numpy(x)) / np.linalg.norm(by_numpy(x))
    # 8 bits over ten times the range that is used: some percent, and never none.
    assert 0 < error < 0.2, error


def test_output_types_and_what_is_missing(network, logger):
    x = network.add_input("x", trt.float32, (2, 3))
    layer = network.add_unary(x, trt.UnaryOperation.NEG)
    layer.set_output_type(0, trt.int32)
    assert layer.get_output(0).dtype == trt.int32
    network.mark_output(layer.get_output(0))
    (y,) = run(network, logger, np.float32([[1, 2, 3], [4, 5, 6]]))
    assert y.dtype == np.int32 and y.tolist() == [[-1, -2, -3], [-4, -5, -6]]
    with pytest.raises(NotImplementedError, match="add_moe"):
        network.add_moe(x, x, x)
    assert not hasattr(network, "add_moe")
    with pytest.raises(AttributeError, match="no `alpha`"):
        layer.alpha = 1.0


def test_a_network_that_cannot_be_is_told(network, logger):
    x = network.add_input("x", trt.float32, (2, 3))
    wrong = network.add_matrix_multiply(x, trt.MatrixOperation.NONE, x, trt.MatrixOperation.NONE)
    network.mark_output(wrong.get_output(0))
    assert network.builder.build_serialized_network(network, network.builder.create_builder_config()) is None
    assert logger.told[-1][0] == trt.Logger.ERROR and "MatMul" in logger.told[-1][1]


def test_plugins_of_planish_are_creators(network, logger):
    @planish.plugin("""planish-plugin 1
op: test.trt::Affine
version: 2
types: T = float32
inputs: x: T[..., n], b: T[n]
outputs: y: T[..., n], z: T[..., n]
attributes: factor: float, times: int = 1
tolerance: float32 1e-6
reference: y = Add(LeakyRelu(x, alpha=factor), b)
  z = Neg(x)
""")
    def affine(x, b, factor, times):
        return np.where(x < 0, x * np.float32(factor), x) + b, -x

    registry = trt.get_plugin_registry()
    assert registry.get_plugin_creator("Affine", "1", "") is None
    creator = registry.get_plugin_creator("Affine", "2", "")
    assert creator is not None and "Affine" in [each.name for each in registry.plugin_creator_list]
    assert [field.name for field in creator.field_names] == ["factor", "times"]
    fields = trt.PluginFieldCollection([trt.PluginField("factor", np.float32([3]), trt.PluginFieldType.FLOAT32)])
    plugin = creator.create_plugin("affine", fields)
    x = network.add_input("x", trt.float32, (2, 4))
    b = network.add_constant((4,), np.arange(4, dtype=np.float32)).get_output(0)
    layer = network.add_plugin_v2([x, b], plugin)
    assert layer.num_outputs == 2 and tuple(layer.get_output(0).shape) == (2, 4)
    for idx in range(2):
        network.mark_output(layer.get_output(idx))
    values = np.arange(-4, 4, dtype=np.float32).reshape(2, 4)
    y, z = run(network, logger, values)
    np.testing.assert_array_equal(y, np.where(values < 0, 3 * values, values) + np.arange(4))
    np.testing.assert_array_equal(z, -values)
    with pytest.raises(ValueError, match="no field of Affine"):
        creator.create_plugin("affine", trt.PluginFieldCollection([trt.PluginField("rate", np.float32([1]))]))
    with pytest.raises(NotImplementedError, match="no plugin of Planish"):
        network.add_plugin_v2([x], object())
