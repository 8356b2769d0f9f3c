"""More of networks for TensorRT's users: loops, branches, layers of one node, and models that were read and are changed."""

import numpy as np
import planish
import planish.tensorrt as trt
import pytest

from test_tensorrt_network import constant, floats, half, logger, network, run, told  # noqa: F401, fixtures

X = floats(2, 3, 4, 5)
PLACES = np.int32([[1, 0], [0, 2]])

BOXES = np.float32([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]])
SCORES = np.float32([[[0.9, 0.1], [0.8, 0.7], [0.3, 0.2]]])


def numbers(n, array):
    """Constants of 32 bits."""
    return constant(n, np.int32(array))


def filled(n, x, op=trt.FillOperation.LINSPACE, **what):
    """Numbers in a row, added to an input so that there is one."""
    return told(n.add_fill((4, 5), op), **what)


MORE = {
    "scatter_elements": (
        lambda n, x: told(n.add_scatter(x, numbers(n, np.zeros((2, 3, 4, 1))), constant(n, np.ones((2, 3, 4, 1), "f")), trt.ScatterMode.ELEMENT), axis=3),
        lambda x: np.concatenate([np.ones((2, 3, 4, 1), "f"), x[..., 1:]], 3),
    ),
    "scatter_nd": (
        lambda n, x: n.add_scatter(x, numbers(n, [[1, 2]]), constant(n, np.ones((1, 4, 5), "f")), trt.ScatterMode.ND),
        lambda x: np.where((np.arange(6) == 5).reshape(2, 3, 1, 1), 1, x),
    ),
    "one_hot": (
        lambda n, x: n.add_one_hot(numbers(n, [2, 0]), constant(n, np.float32([-1, 4])), numbers(n, 3), -1),
        lambda x: np.float32([[-1, -1, 4], [4, -1, -1]]),
    ),
    "cumulative": (
        lambda n, x: n.add_cumulative(x, numbers(n, 1), trt.CumulativeOperation.SUM, False, True),
        lambda x: np.flip(np.cumsum(np.flip(x, 1), 1), 1),
    ),
    "reverse_sequence": (
        lambda n, x: told(n.add_reverse_sequence(x, numbers(n, [2, 3])), batch_axis=0, sequence_axis=1),
        lambda x: np.stack([x[0, [1, 0, 2]], x[1, ::-1]]),
    ),
    "linspace": (lambda n, x: filled(n, x, alpha=2.0, beta=(10.0, 0.5)), lambda x: 2 + 10 * np.arange(4.0)[:, None] + 0.5 * np.arange(5.0)),
    "range": (lambda n, x: told(n.add_fill((5,), trt.FillOperation.LINSPACE), alpha=1.0, beta=[2.0]), lambda x: np.float32([1, 3, 5, 7, 9])),
    "grid": (
        lambda n, x: told(n.add_grid_sample(x, constant(n, np.full((2, 1, 1, 2), 9, "f"))), sample_mode=trt.SampleMode.CLAMP, align_corners=True),
        lambda x: x[:, :, 3:, 4:],
    ),
    "fill_slice": (
        lambda n, x: told(n.add_slice(x, (0, 0, -1, 0), (2, 3, 6, 5), (1, 1, 1, 1)), mode=trt.SampleMode.FILL),
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0))),
    ),
    "clamp_slice": (
        lambda n, x: told(n.add_slice(x, (0, 0, 0, -2), (2, 3, 4, 8), (1, 1, 1, 1)), mode=trt.SampleMode.CLAMP),
        lambda x: np.pad(x, ((0, 0), (0, 0), (0, 0), (2, 1)), mode="edge"),
    ),
    "slice_by_tensors": (
        lambda n, x: wired(n.add_slice(x, (0, 0, 0, 0), (2, 3, 4, 2), (1, 1, 1, 2)), {1: numbers(n, [0, 0, 0, 1])}),
        lambda x: x[..., 1:5:2],
    ),
    "shuffle_by_tensor": (lambda n, x: wired(n.add_shuffle(x), {1: numbers(n, [6, 20])}), lambda x: x.reshape(6, 20)),
    "squeeze": (
        lambda n, x: n.add_squeeze(n.add_unsqueeze(x, numbers(n, [0])).get_output(0), numbers(n, [0])),
        lambda x: x,
    ),
    "resize_ceil": (
        lambda n, x: told(n.add_resize(x), shape=(2, 3, 3, 5), nearest_rounding=trt.ResizeRoundMode.CEIL),
        lambda x: x[:, :, [0, 2, 3]],
    ),
    "scaled_tanh": (lambda n, x: told(n.add_activation(x, trt.ActivationType.SCALED_TANH), alpha=2.0, beta=0.5), lambda x: 2 * np.tanh(x / 2)),
    "attention": (
        lambda n, x: n.add_attention(x, x, x, trt.AttentionNormalizationOp.SOFTMAX, False),
        lambda x: (lambda e: e / e.sum(-1, keepdims=True))(np.exp(x @ x.transpose(0, 1, 3, 2))) @ x,
    ),
    "assertion": (lambda n, x: (n.add_assertion(constant(n, np.array(True)), "true"), n.add_identity(x))[1], lambda x: x),
}


def wired(layer, tensors):
    """A layer that reads more."""
    for idx, tensor in tensors.items():
        layer.set_input(idx, tensor)
    return layer


@pytest.mark.parametrize("name", MORE)
def test_more_layers(name, network, logger):  # noqa: F811
    make, expected = MORE[name]
    x = network.add_input("x", trt.float32, X.shape)
    output = make(network, x).get_output(0)
    wanted = np.asarray(expected(X), np.float32)
    if wanted.shape != X.shape:
        network.mark_output(network.add_identity(x).get_output(0))  # the input is read in any case
    network.mark_output(output)
    assert tuple(output.shape) in (wanted.shape, (-1,) * wanted.ndim)
    y = run(network, logger, X)[-1]
    # Sums of a few numbers near 1, in another order.
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-5)


def test_boxes(network, logger):  # noqa: F811
    boxes, scores = (network.add_input(name, trt.float32, array.shape) for name, array in (("boxes", BOXES), ("scores", SCORES)))
    nms = network.add_nms(boxes, scores, numbers(network, 2))
    nms.set_input(3, constant(network, np.float32(0.5)))
    nms.set_input(4, constant(network, np.float32(0.25)))
    network.mark_output(nms.get_output(1))
    assert nms.get_output(0).dtype == nms.get_output(1).dtype == trt.int32
    (count,) = run(network, logger, BOXES, SCORES)
    # Of the first class the best and the one far off, of the second the one over its limit.
    assert count == 3


def power_of_two(network, x, limit, kind):
    """x doubled again and again, with all that it was on the way."""
    loop = network.add_loop()
    now = loop.add_recurrence(x)
    twice = network.add_elementwise(now.get_output(0), now.get_output(0), trt.ElementWiseOperation.SUM)
    now.set_input(1, twice.get_output(0))
    loop.add_trip_limit(limit(loop, now), kind)
    last = loop.add_loop_output(now.get_output(0), trt.LoopOutput.LAST_VALUE)
    way = loop.add_loop_output(twice.get_output(0), trt.LoopOutput.CONCATENATE, 1)
    back = loop.add_loop_output(now.get_output(0), trt.LoopOutput.REVERSE)
    for layer in (last, way, back):
        network.mark_output(layer.get_output(0))


def test_a_loop_by_count(network, logger):  # noqa: F811
    x = network.add_input("x", trt.float32, (3,))
    power_of_two(network, x, lambda loop, now: numbers(network, 4), trt.TripLimit.COUNT)
    values = np.float32([1, 2, -1])
    assert tuple(network.get_output(1).shape) == (3, -1)
    serialized = network.builder.build_serialized_network(network, network.builder.create_builder_config())
    assert serialized is not None, logger.told
    last, way, back = planish.Model(network._to_onnx()).evaluate({"x": values}).values()
    np.testing.assert_array_equal(last, values * 16)
    np.testing.assert_array_equal(way, values[:, None] * [2, 4, 8, 16])
    np.testing.assert_array_equal(back, np.float32([8, 4, 2, 1])[:, None] * values)


def test_a_loop_while_something_holds(network, logger):  # noqa: F811
    x = network.add_input("x", trt.float32, (2,))

    def small(loop, now):
        most = network.add_reduce(now.get_output(0), trt.ReduceOperation.MAX, 1, False)
        return network.add_elementwise(most.get_output(0), constant(network, np.float32(20)), trt.ElementWiseOperation.LESS).get_output(0)

    power_of_two(network, x, small, trt.TripLimit.WHILE)
    model = planish.Model(network._to_onnx())
    assert [float(model.evaluate({"x": np.float32([n, 0])})[model.outputs[0].name][0]) for n in (1, 3, 19, 21)] == [32, 24, 38, 21]


def test_a_recurrent_layer_by_iterators(network, logger):  # noqa: F811
    steps, start = network.add_input("steps", trt.float32, (4, 3)), network.add_input("start", trt.float32, (3,))
    loop = network.add_loop()
    loop.add_trip_limit(numbers(network, 4), trt.TripLimit.COUNT)
    forward, backward = loop.add_iterator(steps), loop.add_iterator(steps, 0, True)
    state = loop.add_recurrence(start)
    both = network.add_elementwise(forward.get_output(0), backward.get_output(0), trt.ElementWiseOperation.PROD)
    following = network.add_elementwise(state.get_output(0), both.get_output(0), trt.ElementWiseOperation.SUM)
    state.set_input(1, following.get_output(0))
    output = loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE)
    network.mark_output(output.get_output(0))
    assert tuple(output.get_output(0).shape) == (3,) and tuple(forward.get_output(0).shape) == (3,)
    x, first = floats(4, 3), floats(3)
    (y,) = run(network, logger, x, first)
    np.testing.assert_allclose(y, first + (x * x[::-1]).sum(0), rtol=1e-5, atol=1e-5)


def test_loops_that_cannot_be_say_why(network, logger):  # noqa: F811
    x = network.add_input("x", trt.float32, (3,))
    loop = network.add_loop()
    state = loop.add_recurrence(x)
    network.mark_output(loop.add_loop_output(state.get_output(0), trt.LoopOutput.LAST_VALUE).get_output(0))
    config = network.builder.create_builder_config()
    for word, mend in (("never ends", lambda: loop.add_trip_limit(numbers(network, 2), trt.TripLimit.COUNT)), ("no next value", lambda: state.set_input(1, x))):
        assert network.builder.build_serialized_network(network, config) is None and word in logger.told[-1][1]
        mend()
    assert network.builder.build_serialized_network(network, config) is not None


def test_branches(network, logger):  # noqa: F811
    x, wants = network.add_input("x", trt.float32, (2, 2)), network.add_input("wants", trt.bool, (1,))
    choice = network.add_if_conditional()
    choice.set_condition(wants)
    inside = choice.add_input(x).get_output(0)
    yes = network.add_unary(inside, trt.UnaryOperation.NEG).get_output(0)
    no = network.add_elementwise(inside, constant(network, np.full((1, 1), 7, "f")), trt.ElementWiseOperation.SUM).get_output(0)
    output = choice.add_output(yes, no)
    network.mark_output(output.get_output(0))
    assert tuple(output.get_output(0).shape) == (2, 2)
    values = np.float32([[1, 2], [3, 4]])
    for wanted, expected in ((True, -values), (False, values + 7)):
        (y,) = run(network, logger, values, np.array([wanted]))
        np.testing.assert_array_equal(y, expected)


def test_a_type_of_a_layer_is_a_hint_and_of_an_output_a_conversion(network, logger):  # noqa: F811
    x = network.add_input("x", trt.float32, (2, 3))
    first = network.add_unary(x, trt.UnaryOperation.NEG)
    first.precision = trt.float16
    first.set_output_type(0, trt.float16)
    total = network.add_elementwise(first.get_output(0), x, trt.ElementWiseOperation.SUB)
    total.get_output(0).dtype = trt.float16
    network.mark_output(total.get_output(0))
    (y,) = run(network, logger, np.float32([[1, 2, 3], [4, 5, 6]]))
    assert y.dtype == np.float16 and y.tolist() == [[-2, -4, -6], [-8, -10, -12]]


# Models that were read.


@pytest.fixture
def read(network, logger):  # noqa: F811
    """A network of a model that was read."""
    text = """graph "g" {
        input %x: f32[batch,4]
        const %w: f32[4,2] = [1,0, 0,1, 1,0, 0,1]
        %h: f32[batch,2] = MatMul(%x, %w)
        %a: f32[batch,2] = Relu(%h)
        %y: f32[batch,2] = Neg(%a)
        output %y
    }"""
    planish.Model.parse(text).save_onnx("model.onnx")
    with open("model.onnx", "rb") as file:
        assert trt.OnnxParser(network, logger).parse(file.read())
    return network


def by_hand(x):
    """The same in numpy, before Neg."""
    return np.maximum(x[:, :2] + x[:, 2:], 0)


def test_the_layers_of_a_model_are_looked_at(read):
    assert [layer.type for layer in read] == [trt.LayerType.MATRIX_MULTIPLY, trt.LayerType.ACTIVATION, trt.LayerType.UNARY]
    tensor = read.get_layer(1).get_input(0)
    assert tensor is read.get_layer(0).get_output(0) and read.get_layer(0).num_inputs == 1
    assert (tensor.name, tensor.dtype, tuple(tensor.shape)) == ("h", trt.float32, (-1, 2))
    assert read.get_layer(2).get_output(0) is read.get_output(0) and read.get_output(0).is_network_output
    assert read.get_layer(0).get_input(0) is read.get_input(0)
    # To look is no change.
    assert read.model is read._model


def test_sizes_and_types_of_a_model_that_was_read(read, logger):  # noqa: F811
    read.get_input(0).shape = (3, 4)
    read.get_input(0).dtype = trt.float16
    read.get_input(0).name = "data"
    read.get_output(0).dtype = trt.float16
    assert tuple(read.get_output(0).shape) == (3, 2)
    x = floats(3, 4).astype(np.float16)
    (y,) = run(read, logger, x)
    info = read.model.inputs[0]
    assert (info.name, info.dtype, info.shape) == ("data", "float16", (3, 4)) and read.model.outputs[0].name == "y"
    # FP16's roundings of numbers near 1.
    np.testing.assert_allclose(y, -by_hand(x.astype(np.float32)), rtol=2e-3, atol=2e-3)


def test_layers_behind_and_inside_of_a_model_that_was_read(read, logger):  # noqa: F811
    hidden = read.get_layer(1).get_output(0)
    scaled = read.add_elementwise(hidden, constant(read, np.full((1, 1), 3, "f")), trt.ElementWiseOperation.PROD).get_output(0)
    read.get_layer(2).set_input(0, scaled)
    read.mark_output(hidden)
    best = read.add_topk(read.get_output(0), trt.TopKOperation.MAX, 1, 1 << 1)
    best.get_output(1).name = "best"
    read.mark_output(best.get_output(1))
    x = floats(3, 4)
    y, a, places = run(read, logger, x)
    np.testing.assert_allclose(a, by_hand(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y, -3 * by_hand(x), rtol=1e-5, atol=1e-6)
    assert places.dtype == np.int32 and places.ravel().tolist() == np.argmax(-by_hand(x), 1).tolist()
    assert [info.name for info in read.model.outputs] == ["y", "a", "best"]


def test_another_output_in_the_place_of_the_model_s(read, logger):  # noqa: F811
    read.unmark_output(read.get_output(0))
    read.mark_output(read.get_layer(0).get_output(0))
    (h,) = run(read, logger, np.float32([[1, -2, 3, -4]]))
    assert h.tolist() == [[4, -6]]


def test_ranges_of_a_model_that_was_read_make_integers(read, logger):  # noqa: F811
    read.get_input(0).set_dynamic_range(-3, 3)
    for layer in read:
        for idx in range(layer.num_outputs):
            layer.get_output(idx).set_dynamic_range(-6, 6)
    read.get_layer(0).precision = trt.int8
    x = floats(3, 4)
    (y,) = run(read, logger, x, change=lambda config: config.set_flag(trt.BuilderFlag.INT8))
    assert not logger.told or all(severity > trt.Logger.WARNING for severity, _ in logger.told)
    assert np.abs(y + by_hand(x)).max() > 1e-5
    # A step of 8 bits over -6 to 6, twice.
    np.testing.assert_allclose(y, -by_hand(x), atol=2 * 6 / 127)


def test_a_model_without_a_layer_for_integers_is_built_all_the_same(network, logger):  # noqa: F811
    x = network.add_input("x", trt.float32, (2, 3))
    x.set_dynamic_range(-1, 1)
    network.mark_output(network.add_unary(x, trt.UnaryOperation.NEG).get_output(0))
    (y,) = run(network, logger, np.ones((2, 3), "f"), change=lambda config: config.set_flag(trt.BuilderFlag.INT8))
    assert (y == -1).all() and any("without integers" in text for _, text in logger.told)


def test_words_and_sizes_are_as_tensorrt_prints_them():
    assert (str(trt.DataType.FLOAT), repr(trt.int8), f"{trt.TensorIOMode.INPUT}") == ("DataType.FLOAT", "<DataType.INT8: 2>", "TensorIOMode.INPUT")
    assert str(trt.Logger.Severity.INFO) == "Severity.INFO"
    sizes = trt.Dims([1, 3, -1])
    sizes[2] = 5
    assert str(sizes) == "(1, 3, 5)" and sizes == (1, 3, 5) and sizes[1:] == [3, 5] and np.empty(sizes).shape == (1, 3, 5)
    assert (trt.bfloat16.itemsize, trt.int4.itemsize, trt.Weights(np.zeros((2, 3), "f")).dtype) == (2, 0.5, trt.float32)


def test_a_timing_cache_of_others_is_left_alone(network, logger):  # noqa: F811
    config = network.builder.create_builder_config()
    cache = config.create_timing_cache(b"\x7fTRT of another make")
    assert config.set_timing_cache(cache, False) and cache.serialize() == b""
    assert any("timing cache" in text for _, text in logger.told)


def test_layers_are_told_their_function_as_their_type(network):  # noqa: F811
    x = network.add_input("x", trt.float32, (1, 3, 8, 8))
    layer = network.add_activation(x, trt.ActivationType.TANH)
    layer.type = trt.ActivationType.RELU
    pool = network.add_pooling_nd(x, trt.PoolingType.MAX, (2, 2))
    pool.type = trt.PoolingType.AVERAGE
    assert (layer.activation, pool.pooling) == (trt.ActivationType.RELU, trt.PoolingType.AVERAGE)
    pool.stride_nd[0] = 5
    assert pool.stride_nd == (1, 1) and pool.padding_nd == (0, 0)
    layer.__class__ = trt.IActivationLayer
    assert layer.type == trt.LayerType.ACTIVATION


def test_deep_networks_are_asked_for_their_sizes_as_they_grow(network, logger):  # noqa: F811
    tensor = network.add_input("x", trt.float32, (-1, 4))
    for _ in range(400):
        tensor = network.add_unary(tensor, trt.UnaryOperation.NEG).get_output(0)
        assert tuple(tensor.shape) == (-1, 4)
    network.get_input(0).shape = (3, 4)
    assert tuple(tensor.shape) == (3, 4)


def test_error_recorders_are_told(logger):  # noqa: F811
    class Recorder(trt.IErrorRecorder):
        def __init__(self):
            trt.IErrorRecorder.__init__(self)
            self.kept = []

        def report_error(self, code, desc):
            self.kept.append((code, desc))
            return True

    runtime = trt.Runtime(logger)
    runtime.error_recorder = Recorder()
    assert runtime.deserialize_cuda_engine(b"no plan") is None
    assert runtime.error_recorder.kept and isinstance(runtime.error_recorder.kept[0][0], trt.ErrorCodeTRT)
    parser = trt.OnnxParser(trt.Builder(logger).create_network(), logger)
    assert not parser.parse(b"no model") and parser.get_error(0).code() == trt.ErrorCode.INVALID_GRAPH
