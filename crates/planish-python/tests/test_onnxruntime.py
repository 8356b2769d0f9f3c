"""`planish.onnxruntime` by itself: sessions, bindings, values, options, and what is not honoured."""

import ctypes
import json
import io
import pathlib
import threading
import warnings

import numpy as np
import planish
import planish.onnxruntime as ort
import pytest
from planish._onnx_bytes import Graph
from planish.onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
)

from conftest import ADD, RELU, TWO


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Plans are kept in a folder that is thrown away."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def session_of(text, options=None, **others):
    """A session of a model in text form."""
    planish.Model.parse(text).save_onnx("model.onnx")
    if options is None:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return ort.InferenceSession("model.onnx", options, **others)


def test_runs_by_names_of_outputs():
    session = session_of(TWO, providers=["CPUExecutionProvider"])
    x = np.float32([-1, 2])
    p, m = session.run(None, {"x": x})
    np.testing.assert_array_equal(p, [0, 2])
    (only,) = session.run(["m"], {"x": x})
    np.testing.assert_array_equal(only, m)
    m, p = session.run(["m", "p"], {"x": x}, ort.RunOptions())
    np.testing.assert_array_equal(p, [0, 2])


def test_what_inputs_and_outputs_are():
    session = session_of(RELU)
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["n", 4])
    assert (y.name, y.type, y.shape) == ("y", "tensor(float)", ["n", 4])
    assert session.get_overridable_initializers() == []
    meta = session.get_modelmeta()
    assert (meta.graph_name, meta.version, meta.custom_metadata_map) == ("relu", 2**63 - 1, {})


def test_types_have_onnx_runtimes_names():
    text = 'graph "g" { input %x: i64[n] input %h: f16[] %s: seq(i64[n]) = SequenceConstruct(%x) output %s, %h }'
    session = session_of(text)
    assert [info.type for info in session.get_inputs()] == ["tensor(int64)", "tensor(float16)"]
    assert session.get_outputs()[0].type == "seq(tensor(int64))"
    made = session.run(None, {"x": np.arange(3), "h": np.float16(2)})
    np.testing.assert_array_equal(made[0][0], [0, 1, 2])


def test_models_are_paths_bytes_and_plans():
    planish.Model.parse(ADD).save_onnx("add.onnx")
    options = ort.SessionOptions()
    a = np.float32([1])
    for kept in ("add.plan", "optimized.onnx"):
        options.optimized_model_filepath = kept
        for source in (pathlib.Path("add.onnx"), pathlib.Path("add.onnx").read_bytes(), kept):
            session = ort.InferenceSession(source, options if source != kept else None)
            assert session.run(["c"], {"a": a, "b": a}) == [np.float32([2])]
    assert planish.Model("optimized.onnx").outputs[0].name == "c"


@pytest.mark.parametrize(
    "feed,names,error,words",
    [
        ({}, None, ValueError, "Required inputs (['x']) are missing from input feed ([])."),
        ({"x": np.zeros((1, 4), np.float32), "z": 1}, None, InvalidArgument, "INVALID_ARGUMENT : Invalid input name: z"),
        ({"x": np.zeros((1, 4), np.float32)}, ["z"], InvalidArgument, "Invalid output name:z"),
        ({"z": np.zeros((1, 4), np.float32)}, None, ValueError, "Required inputs (['x']) are missing from input feed (['z'])."),
        ({"x": np.zeros((1, 4))}, None, InvalidArgument, "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float)) (input `x` is f64"),
        ({"x": np.zeros((1, 5), np.float32)}, None, InvalidArgument, "Got invalid dimensions for input: x for the following indices\n index: 1 Got: 5 Expected: 4"),
        ({"x": np.zeros(4, np.float32)}, None, InvalidArgument, "Invalid rank for input: x Got: 1 Expected: 2"),
    ],
)
def test_wrong_feeds(feed, names, error, words):
    session = session_of(RELU)
    with pytest.raises(error) as raised:
        session.run(names, feed)
    assert words in str(raised.value)


def test_what_is_no_model():
    with pytest.raises(NoSuchFile, match="3 : NO_SUCHFILE"):
        ort.InferenceSession("no.onnx")
    with pytest.raises((InvalidProtobuf, InvalidGraph)):
        ort.InferenceSession(b"nothing")
    with pytest.raises(InvalidArgument):
        ort.InferenceSession(b"")
    for source in (5, None, io.BytesIO()):
        with pytest.raises(TypeError, match="Unable to load from type"):
            ort.InferenceSession(source)


def test_the_second_session_of_a_model_is_opened_from_the_cache(tmp_path):
    session_of(RELU)
    (kept,) = tmp_path.glob("cache/**/*.plan")
    before = kept.stat().st_mtime_ns
    session_of(RELU)
    assert [kept] == list(tmp_path.glob("cache/**/*.plan")) and kept.stat().st_mtime_ns >= before
    options = ort.SessionOptions()
    options.add_session_config_entry("planish.cache", "0")
    session_of(TWO, options)
    assert [kept] == list(tmp_path.glob("cache/**/*.plan"))


def test_session_options():
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("planish.tune_level", "0")
    options.add_free_dimension_override_by_name("n", 2)
    assert options.get_session_config_entry("session.disable_prepacking") == "1"
    with pytest.raises(RuntimeError, match="nothing"):
        options.get_session_config_entry("nothing")
    with pytest.raises(ValueError, match="planish.speed"):
        options.add_session_config_entry("planish.speed", "high")
    with pytest.raises(NotImplementedError):
        options.register_custom_ops_library("lib.so")
    session = session_of(RELU, options)
    assert session.get_session_options() is options
    assert session.run(None, {"x": np.zeros((2, 4), np.float32)})[0].shape == (2, 4)
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": np.zeros((3, 4), np.float32)})


def test_options_that_are_not_there_are_errors():
    options = ort.SessionOptions()
    for key, value, error in (("thread_count", 4, AttributeError), ("intra_op_num_threads", "4", TypeError), ("graph_optimization_level", 99, TypeError)):
        with pytest.raises(error):
            setattr(options, key, value)
    assert str(options.graph_optimization_level) == "GraphOptimizationLevel.ORT_ENABLE_ALL"


def test_weights_of_options_take_the_place_of_the_model_s():
    text = 'graph "g" { input %x: f32[n,2] const %w: f32[2] = [1,2] %y: f32[n,2] = Mul(%x, %w) output %y }'
    planish.Model.parse(text).save_onnx("mul.onnx")
    options, x = ort.SessionOptions(), np.ones((1, 2), "f")
    weights = ort.OrtValue.ortvalue_from_numpy(np.float32([5, 7]))
    options.add_initializer("w", weights)
    assert ort.InferenceSession("mul.onnx", options).run(None, {"x": x})[0].tolist() == [[5, 7]]
    options.add_initializer("v", weights)
    with pytest.raises(ValueError, match="no weight `v`"):
        ort.InferenceSession("mul.onnx", options)


def test_inputs_with_a_value_of_their_own():
    graph = Graph("default")
    graph.input("x", "float32", ["n", 2])
    graph.input("b", "float32", [2])
    assert graph.weight("w", "float32", [2], np.float32([1, 2]).tobytes()) == "w"
    graph._weights[-1] = graph._weights[-1].replace(b"\x42\x01w", b"\x42\x01b")  # the weight is called as the input is
    graph.node("Add", ["x", "b"], ("y",))
    graph.output("y", None, None)
    session, x = ort.InferenceSession(graph.to_bytes()), np.zeros((1, 2), "f")
    assert [info.name for info in session.get_inputs()] == ["x"]
    (default,) = session.get_overridable_initializers()
    assert (default.name, default.type, default.shape) == ("b", "tensor(float)", [2])
    assert session.run(None, {"x": x})[0].tolist() == [[1, 2]]
    assert session.run(None, {"x": x, "b": np.float32([5, 6])})[0].tolist() == [[5, 6]]
    with pytest.raises(InvalidArgument, match="Invalid input name: c"):
        session.run(None, {"x": x, "c": x})


def test_runs_are_ended_beforehand():
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Fail, match="terminate flag"):
        session_of(RELU).run(None, {"x": np.ones((1, 4), "f")}, options)


def of_classic(make, inputs, outputs):
    """A session of a model with operators of classic models."""
    graph = Graph("classic")
    for name, dtype, shape in inputs:
        graph.input(name, dtype, shape)
    made = make(graph)
    for name, wanted in zip(made, outputs):
        graph.node("Identity", [name], (wanted,))
        graph.output(wanted, None, None)
    return ort.InferenceSession(graph.to_bytes())


def classic(graph, op, inputs, n_outputs=1, **attributes):
    """A node of the classic models' domain."""
    return graph.custom_node("ai.onnx.ml", 3, op, inputs, n_outputs, op, attributes)


@pytest.mark.parametrize("labels,kind", [(["cat", "dog"], "string"), ([3, 8], "int64")])
def test_classifiers_name_classes_and_give_maps(labels, kind):
    def make(graph):
        key = "classlabels_strings" if kind == "string" else "classlabels_ints"
        told = {"coefficients": [1.0, 0.0, 0.0, 1.0], "intercepts": [0.0, 0.0], "post_transform": "NONE", key: labels}
        label, scores = classic(graph, "LinearClassifier", ["x"], 2, **told)
        return label, scores

    def zipped(graph):
        label, scores = make(graph)
        (maps,) = classic(graph, "ZipMap", [scores], **{"classlabels_strings" if kind == "string" else "classlabels_int64s": labels})
        return label, maps

    x = np.float32([[2, 1], [0, 5]])
    session = of_classic(make, [("x", "float32", ["n", 2])], ("label", "scores"))
    label, scores = session.run(None, {"x": x})
    assert label.tolist() == labels and session.get_outputs()[0].type == f"tensor({kind})"
    assert label.dtype == (object if kind == "string" else np.int64)
    session = of_classic(zipped, [("x", "float32", ["n", 2])], ("label", "maps"))
    assert session.run(["maps"], {"x": x}) == [[dict(zip(labels, row)) for row in [[2.0, 1.0], [0.0, 5.0]]]]
    assert (session.get_outputs()[1].type, session.get_outputs()[1].shape) == (f"seq(map({kind},tensor(float)))", [])


def test_columns_of_words():
    def make(graph):
        return classic(graph, "OneHotEncoder", ["sex"], zeros=1, cats_strings=["female", "male"])

    session = of_classic(make, [("sex", "string", ["n", 1])], ("columns",))
    assert session.get_inputs()[0].type == "tensor(string)"
    (columns,) = session.run(None, {"sex": np.array([["male"], ["female"], ["?"]])})
    assert columns.reshape(3, 2).tolist() == [[0, 1], [1, 0], [0, 0]]


def test_names_that_are_imported_past_the_package():
    from planish.onnxruntime.capi import _pybind_state, onnxruntime_inference_collection
    from planish.onnxruntime import backend

    assert _pybind_state.InvalidArgument is InvalidArgument
    assert onnxruntime_inference_collection.InferenceSession is ort.InferenceSession
    planish.Model.parse(RELU).save_onnx("relu.onnx")
    (y,) = backend.prepare("relu.onnx").run(np.float32([[-1, 2, -3, 4]]))
    assert y.tolist() == [[0, 2, 0, 4]]
    with pytest.raises(RuntimeError, match="NodeArg with name: q"):
        session_of(RELU).io_binding().bind_cpu_input("q", np.ones(1))


def test_a_trace_of_the_steps_is_written():
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = "trace_"
    session = session_of(RELU, options)
    session.run(None, {"x": np.zeros((2, 4), np.float32)})
    (event,) = json.loads(pathlib.Path(session.end_profiling()).read_text())
    assert event["args"]["op_name"] == "Relu" and event["dur"] >= 0


def test_providers():
    assert ort.get_available_providers()[-1] == "CPUExecutionProvider"
    assert set(ort.get_available_providers()) <= set(ort.get_all_providers())
    assert ort.get_device() in ("CPU", "GPU")
    with pytest.warns(UserWarning, match="OpenVINOExecutionProvider is not available"):
        session = session_of(RELU, providers=[("OpenVINOExecutionProvider", {"device_type": "CPU"}), "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    session.set_providers(["CPUExecutionProvider"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session_of(RELU, providers=["OpenVINOExecutionProvider", "CPUExecutionProvider"])


def test_bindings():
    session = session_of(ADD)
    a, b = np.float32([1, 2]), np.float32([3, 4])
    binding = session.io_binding()
    binding.bind_cpu_input("a", a)
    binding.bind_input("b", "cpu", 0, np.float32, b.shape, b.ctypes.data)
    binding.bind_output("c")
    binding.synchronize_inputs()
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], [4, 6])
    b[:] = 10
    place = np.zeros(2, np.float32)
    binding.clear_binding_outputs()
    binding.bind_output("c", "cpu", 0, 1, (2,), place.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(place, [11, 12])
    (value,) = binding.get_outputs()
    assert value.data_ptr() == place.ctypes.data
    value = ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32)
    binding.clear_binding_outputs()
    binding.bind_ortvalue_output("c", value)
    binding.bind_ortvalue_input("a", ort.OrtValue.ortvalue_from_numpy(np.float32([5, 5])))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(value.numpy(), [15, 15])
    with pytest.raises(ValueError, match="`a` is bound to memory of `cuda`"):
        binding.bind_input("a", "cuda", 0, np.float32, (2,), 0)


def test_values():
    value = ort.OrtValue.ortvalue_from_numpy(np.arange(6).reshape(2, 3).T)
    assert (value.shape(), value.data_type(), value.element_type()) == ([3, 2], "tensor(int64)", 7)
    assert value.is_tensor() and value.has_value() and not value.is_sparse_tensor()
    assert value.tensor_size_in_bytes() == 48
    first = ctypes.c_int64.from_address(value.data_ptr()).value
    assert first == 0
    value.update_inplace(np.full((3, 2), 7))
    assert (value.numpy() == 7).all()
    np.testing.assert_array_equal(np.from_dlpack(value), value.numpy())
    np.testing.assert_array_equal(ort.OrtValue.from_dlpack(np.float32([1, 2])).numpy(), [1, 2])
    session = session_of(ADD)
    made = session.run_with_ort_values(["c"], {name: ort.OrtValue.ortvalue_from_numpy(np.float32([2])) for name in "ab"})
    assert made[0].numpy() == 4


def test_runs_beside_the_caller():
    session = session_of(RELU)
    done, told = threading.Event(), []

    def callback(results, user_data, error):
        told.append((results, user_data, error))
        done.set()

    session.run_async(None, {"x": np.ones((1, 4), np.float32)}, callback, "mine")
    assert done.wait(60)
    (results, user_data, error), = told
    assert (user_data, error) == ("mine", "") and results[0].sum() == 4
    done.clear()
    session.run_async(None, {}, callback, None)
    assert done.wait(60) and "missing" in told[1][2]
