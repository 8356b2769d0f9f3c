"""Scripts of the kind that people have, run with ONNX Runtime and with `planish.onnxruntime`: the same answers."""

import numpy as np
import onnx
import onnxruntime
import planish.onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

#: Rounding of f32 sums of some hundred terms, in other orders.
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Files and kept plans go to folders that are thrown away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def same(one, other):
    """Whether two answers are the same, arrays up to rounding."""
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)
        else:
            np.testing.assert_array_equal(one, other)
        return True
    assert one == other
    return True


def save(nodes, inputs, outputs, weights=(), **about):
    """Writes a model; `about` is what it says of itself."""
    numbers = [numpy_helper.from_array(array, name) for name, array in weights]
    graph = helper.make_graph(nodes, "network", inputs, outputs, numbers, doc_string="a graph in words")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, **about)
    onnx.checker.check_model(model)
    onnx.save(model, "model.onnx")


def classifier(rng=np.random.default_rng(3)):
    """Convolution, pooling, a linear layer and the softmax."""
    weight = rng.standard_normal((8, 3, 3, 3)).astype(np.float32) / 5
    linear = rng.standard_normal((8, 10)).astype(np.float32)
    save(
        [
            helper.make_node("Conv", ["image", "w"], ["h"], pads=[1, 1, 1, 1], strides=[2, 2]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["p"]),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("MatMul", ["f", "l"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"]),
        ],
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [
            helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10]),
        ],
        [("w", weight), ("l", linear)],
        producer_name="tests",
        domain="org.example",
        model_version=3,
        doc_string="a classifier",
    )


def images(n):
    """Random images."""
    return np.random.default_rng(n).standard_normal((n, 3, 32, 32)).astype(np.float32)


def classify(ort):
    """Loads a model, looks at it, and runs it by its own names."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession("model.onnx", sess_options=options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    outputs = [output.name for output in session.get_outputs()]
    answers = [session.run(outputs, {name: images(n)}) for n in (1, 3, 1)]
    labels = [int(answer[0].argmax()) for answer in answers]
    return answers, labels


def describe(ort):
    """Prints what a model takes and gives."""
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    ports = [(port.name, port.type, port.shape) for port in session.get_inputs() + session.get_outputs()]
    meta = session.get_modelmeta()
    about = (meta.producer_name, meta.graph_name, meta.domain, meta.description, meta.graph_description, meta.version)
    return ports, about, meta.custom_metadata_map, session.get_providers()


def bind(ort):
    """Binds inputs and outputs, runs, and reads the outputs back."""
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    x = images(2)
    binding = session.io_binding()
    binding.bind_input("image", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("probabilities")
    logits = ort.OrtValue.ortvalue_from_shape_and_type([2, 10], np.float32, "cpu", 0)
    binding.bind_ortvalue_output("logits", logits)
    session.run_with_iobinding(binding)
    values = binding.get_outputs()
    about = [(value.shape(), value.data_type(), value.device_name(), value.is_tensor()) for value in values]
    return about, binding.copy_outputs_to_cpu(), logits.numpy()


def values(ort):
    """Runs on values, from bytes."""
    with open("model.onnx", "rb") as file:
        session = ort.InferenceSession(file.read(), providers=["CPUExecutionProvider"])
    image = ort.OrtValue.ortvalue_from_numpy(images(1), "cpu", 0)
    made = session.run_with_ort_values(["logits"], {"image": image})
    return image.shape(), image.data_type(), [value.numpy() for value in made]


def fail(ort):
    """What wrong feeds raise: the class, and the word in its message."""
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    kinds = []
    x = images(1)
    for names, feed in [
        (None, {}),
        (None, {"image": x, "other": x}),
        (["nothing"], {"image": x}),
        (None, {"image": x.astype(np.float64)}),
        (None, {"image": x[0]}),
        (None, {"image": x[:, :, :16]}),
    ]:
        with pytest.raises(Exception) as raised:
            session.run(names, feed)
        word = next((word for word in ("INVALID_ARGUMENT", "missing") if word in str(raised.value)), "")
        kinds.append((raised.type.__name__, word))
    with pytest.raises(Exception) as raised:
        ort.InferenceSession("no.onnx", providers=["CPUExecutionProvider"])
    kinds.append(raised.type.__name__)
    return kinds


@pytest.mark.parametrize("script", [classify, describe, bind, values, fail], ids=lambda script: script.__name__)
def test_scripts_over_a_classifier(script):
    classifier()
    assert same(script(onnxruntime), script(planish.onnxruntime))


def generate(ort):
    """Grows a sequence step by step, as text generators do."""
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    ids = np.array([[1, 2]], np.int64)
    for _ in range(6):
        mask = np.ones_like(ids)
        (logits,) = session.run(["logits"], {"ids": ids, "mask": mask})
        ids = np.concatenate([ids, logits[:, -1:].argmax(-1)], axis=1)
    return ids, logits


def test_a_sequence_that_grows():
    rng = np.random.default_rng(5)
    save(
        [
            helper.make_node("Gather", ["table", "ids"], ["e"]),
            helper.make_node("Cast", ["mask"], ["m"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["m", "last"], ["u"]),
            helper.make_node("Mul", ["e", "u"], ["k"]),
            helper.make_node("CumSum", ["k", "axis"], ["c"]),
            helper.make_node("Tanh", ["c"], ["t"]),
            helper.make_node("MatMul", ["t", "head"], ["logits"]),
        ],
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"]),
            helper.make_tensor_value_info("mask", TensorProto.INT64, ["batch", "length"]),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "length", 16])],
        [
            ("table", rng.standard_normal((16, 8)).astype(np.float32)),
            ("head", rng.standard_normal((8, 16)).astype(np.float32)),
            ("last", np.int64([2])),
            ("axis", np.int64(1)),
        ],
    )
    assert same(generate(onnxruntime), generate(planish.onnxruntime))


def recur(ort):
    """Carries a state from run to run, as voice detectors do."""
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    state = np.zeros((1, 1, 8), np.float32)
    heard = []
    for chunk in np.random.default_rng(1).standard_normal((5, 4, 1, 6)).astype(np.float32):
        outputs = dict(zip((o.name for o in session.get_outputs()), session.run(None, {"chunk": chunk, "state": state})))
        state = outputs["next"]
        heard.append(outputs["heard"])
    return heard, state


def test_a_state_that_is_carried():
    rng = np.random.default_rng(2)
    save(
        [
            helper.make_node("GRU", ["chunk", "w", "r", "", "", "state"], ["all", "next"], hidden_size=8),
            helper.make_node("ReduceMean", ["all"], ["heard"], keepdims=0),
        ],
        [
            helper.make_tensor_value_info("chunk", TensorProto.FLOAT, [4, 1, 6]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 1, 8]),
        ],
        [
            helper.make_tensor_value_info("heard", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, 1, 8]),
        ],
        [("w", rng.standard_normal((1, 24, 6)).astype(np.float32)), ("r", rng.standard_normal((1, 24, 8)).astype(np.float32))],
    )
    assert same(recur(onnxruntime), recur(planish.onnxruntime))


def detect(ort):
    """Boxes after non-maximum suppression: as many as there are."""
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(4)
    corners = rng.random((1, 20, 2)).astype(np.float32)
    boxes = np.concatenate([corners, corners + 0.2], axis=-1)
    return session.run(None, {"boxes": boxes, "scores": rng.random((1, 2, 20)).astype(np.float32)})


def test_as_many_boxes_as_there_are():
    save(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, "n", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 2, "n"]),
        ],
        [helper.make_tensor_value_info("kept", TensorProto.INT64, [None, 3])],
        [("most", np.int64([5])), ("overlap", np.float32([0.4])), ("least", np.float32([0.3]))],
    )
    assert same(detect(onnxruntime), detect(planish.onnxruntime))


def about(ort):
    """What a model says of itself, that says little."""
    meta = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"]).get_modelmeta()
    return meta.producer_name, meta.graph_name, meta.domain, meta.description, meta.version, meta.custom_metadata_map


def test_a_model_that_says_little_of_itself():
    port = helper.make_tensor_value_info
    save([helper.make_node("Relu", ["x"], ["y"])], [port("x", TensorProto.FLOAT, [2])], [port("y", TensorProto.FLOAT, [2])])
    assert same(about(onnxruntime), about(planish.onnxruntime))


def sizes(ort):
    """The sizes of inputs and outputs that a model leaves open without a name."""
    session = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    return [(port.name, port.type, port.shape) for port in session.get_inputs()], session.run(None, {"x": np.ones((2, 3), "f")})


def test_sizes_without_a_name():
    port = helper.make_tensor_value_info
    save([helper.make_node("Neg", ["x"], ["y"])], [port("x", TensorProto.FLOAT, [None, 3])], [port("y", TensorProto.FLOAT, [None, 3])])
    assert same(sizes(onnxruntime), sizes(planish.onnxruntime))
