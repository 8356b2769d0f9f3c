"""Builds: what a model is given as, shapes, profiles, calibration, progress; plans and their files."""

import io
import pathlib
import signal

import numpy as np
import planish
import pytest
from planish._progress import Bar

from conftest import ADD, RELU

#: Two layers whose products integers can take.
WEIGHTS = ",".join(str((5 * i % 13 - 6) / 8) for i in range(64))
LAYERS = f"""graph "layers" {{
    input %x: f32[n,8,8,8]
    const %w: f32[8,8,1,1] = [{WEIGHTS}]
    %h: f32[n,8,8,8] = Conv(%x, %w)
    %y: f32[n,8,8,8] = Conv(%h, %w)
    output %y
}}"""


def test_a_model_is_a_path_bytes_or_a_model():
    model = planish.Model.parse(RELU)
    model.save_onnx("relu.onnx")
    content = pathlib.Path("relu.onnx").read_bytes()
    x = np.float32([[1, -2, 3, -4]])
    for source in ("relu.onnx", pathlib.Path("relu.onnx"), content, bytearray(content), model, planish.Model("relu.onnx")):
        engine = planish.build(source, tune_level=0).engine()
        np.testing.assert_array_equal(engine(x), np.maximum(x, 0))
    assert planish.Model(content).inputs == model.inputs
    assert "Relu" in str(model) and repr(model) == '<planish.Model "relu" with 1 nodes>'


@pytest.mark.parametrize(
    "source,error,words",
    [
        ("no.onnx", "FileError", "cannot read no.onnx"),
        (b"no model", "BadModel", "the model is not a usable ONNX model"),
        (b"", "BadModel", "the model"),
        (7, "WrongType", "a model is a path"),
        ([1, 2], "WrongType", "a model is a path"),
    ],
)
def test_what_is_no_model(source, error, words):
    with pytest.raises(getattr(planish.errors, error)) as raised:
        planish.build(source)
    assert words in str(raised.value)


def test_text_that_is_no_model():
    with pytest.raises(planish.errors.BadModel, match="the text is no model"):
        planish.Model.parse("graph")


def test_shapes_fix_the_sizes():
    engine = planish.build(planish.Model.parse(RELU), shapes={"x": (2, 4)}, tune_level=0).engine()
    assert engine(np.zeros((2, 4), np.float32)).shape == (2, 4)
    with pytest.raises(planish.errors.WrongShape):
        engine(np.zeros((3, 4), np.float32))


def test_profiles_are_ranges_of_sizes():
    profiles = [{"x": [(1, 4), (2, 4), (3, 4)]}, {"x": [(8, 4), (8, 4), (9, 4)]}]
    engine = planish.build(planish.Model.parse(RELU), profiles=profiles, tune_level=0).engine()
    for rows in (1, 3, 8, 9):
        assert engine(np.zeros((rows, 4), np.float32)).shape == (rows, 4)
    for rows in (5, 10):
        with pytest.raises(planish.errors.WrongShape):
            engine(np.zeros((rows, 4), np.float32))


def test_one_name_for_two_sizes_is_taken_apart():
    text = 'graph "g" { input %a: f32[n] input %b: f32[n] %y: f32[n] = Relu(%a) output %y, %b }'
    engine = planish.build(planish.Model.parse(text), shapes={"a": (3,), "b": (4,)}, tune_level=0).engine()
    y, b = engine(np.ones(3, np.float32), np.ones(4, np.float32))
    assert y.shape == (3,) and b.shape == (4,)


@pytest.mark.parametrize(
    "options,error,words",
    [
        ({"shapes": {"x": (2,)}}, "WrongShape", "`shapes x:2` gives 1 dimension; input `x` has 2"),
        ({"shapes": {"z": (2,)}}, "WrongInputs", "shapes names `z`, which is not an input"),
        ({"profiles": {"x": (1, 4)}}, "BadOption", "a profile gives three shapes"),
        ({"profiles": {"x": [(9, 4), (2, 4), (3, 4)]}}, "WrongShape", "min 9, opt 2 and max 3"),
        ({"shapes": {"x": (2, 4)}, "profiles": {}}, "BadOption", "exclude each other"),
        ({"precision": "fp12"}, "BadOption", "`fp12` is not a precision"),
        ({"device": "gpu"}, "BadOption", "`gpu` is not a device"),
        ({"device": "cuda:9999"}, "Lacking", "cuda:9999 cannot be used"),
        ({"threads": 0}, "BadOption", "threads must be at least 1"),
        ({"calib": []}, "BadOption", "calib is for layers of 8 bits"),
        ({"precision": "int8", "calib": "no.calib"}, "FileError", "no.calib"),
        ({"precision": "int8", "calib": [], "calibrator": "guess"}, "BadOption", "guess"),
        ({"build_time": -1.0}, "BadOption", "build_time=-1"),
    ],
)
def test_wrong_options(options, error, words):
    with pytest.raises(getattr(planish.errors, error)) as raised:
        planish.build(planish.Model.parse(RELU), **options)
    assert words in str(raised.value)


def samples(n, numbers):
    """Inputs of the two layers."""
    for _ in range(n):
        yield numbers.standard_normal((1, 8, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("form", ["array", "tuple", "dict"])
def test_int8_by_samples_of_any_form(form, numbers):
    model = planish.Model.parse(LAYERS)
    forms = {"array": lambda x: x, "tuple": lambda x: (x, "label"), "dict": lambda x: {"x": x}}
    calib = (forms[form](x) for x in samples(6, numbers))
    plan = planish.build(model, precision="int8", calib=calib, tune_level=0, threads=1)
    x = next(samples(1, numbers))
    exact = planish.build(model, tune_level=0, threads=1).engine()(x)
    given = plan.engine()(x)
    # Two roundings to 8 bits of either operand: a few percent at most, and never none.
    error = np.linalg.norm(given - exact) / np.linalg.norm(exact)
    assert 0 < error < 0.05
    assert any("costs" in note for note in plan.notes), plan.notes


def test_calibrations_are_files_and_are_of_their_model(numbers):
    model = planish.Model.parse(LAYERS)
    found = planish.calibrate(model, samples(4, numbers), calibrator="minmax", threads=1)
    assert (found.n_samples, found.calibrator) == (4, "minmax")
    assert found.ranges["x"].threshold == pytest.approx(max(-found.ranges["x"].min, found.ranges["x"].max))
    found.save("layers.calib")
    for calib in (found, "layers.calib", planish.Calibration.open("layers.calib")):
        planish.build(model, precision="int8", calib=calib, tune_level=0, threads=1)
    with pytest.raises(planish.errors.Refused):
        planish.build(planish.Model.parse(RELU), precision="int8", calib=found, tune_level=0)


def test_an_exception_of_the_samples_is_the_callers_own():
    def broken():
        yield np.zeros((1, 8, 8, 8), np.float32)
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        planish.calibrate(planish.Model.parse(LAYERS), broken())


def test_progress_is_told():
    told = []
    planish.build(planish.Model.parse(RELU), progress=lambda *step: told.append(step), tune_level=1)
    assert {stage for stage, _, _ in told} >= {"check"}
    assert all(0 <= done <= total for _, done, total in told)


def test_an_exception_of_the_progress_ends_the_build():
    def stop(stage, done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        planish.build(planish.Model.parse(RELU), progress=stop)


def test_ctrl_c_ends_a_build():
    def interrupt(stage, done, total):
        signal.raise_signal(signal.SIGINT)

    # Whoever started the tests may have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            planish.build(planish.Model.parse(RELU), progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)


class Terminal(io.StringIO):
    """A stream that a bar is drawn on."""

    def isatty(self):
        return True


def test_the_bar_is_drawn_on_terminals_alone():
    for stream, is_drawn in ((Terminal(), True), (io.StringIO(), False)):
        bar = Bar(stream)
        bar("tune", 1, 2)
        bar.close()
        assert ("#" in stream.getvalue()) == is_drawn
    planish.build(planish.Model.parse(RELU), progress=True, tune_level=0)


def test_plans_say_what_they_are():
    plan = planish.build(planish.Model.parse(ADD), threads=1, tune_level=0)
    assert (plan.name, plan.threads, plan.is_checked) == ("add", 1, True)
    assert planish.describe("cpu") in plan.targets[0] or plan.targets[0] in planish.describe("cpu")
    (step,) = plan.steps
    assert step.operators == "Add" and step.kernel
    assert "Add" in str(plan.steps) and "<td>Add</td>" in plan._repr_html_()
    assert repr(plan).startswith('<planish.Plan "add", 1 steps, for ')
    again = planish.build(planish.Model.parse(ADD), threads=1, tune_level=0)
    assert plan.fingerprint == again.fingerprint
    unchecked = planish.build(planish.Model.parse(ADD), threads=1, tune_level=0, verify=False)
    assert not unchecked.is_checked and unchecked.fingerprint != plan.fingerprint


def test_files_of_plans():
    plan = planish.build(planish.Model.parse(ADD), tune_level=0)
    plan.save(pathlib.Path("add.plan"))
    for options in ({}, {"copy": True}, {"rebuild": True}, {"copy": True, "rebuild": True}, {"threads": 1}):
        engine = planish.load("add.plan", "cpu", **options)
        assert engine(np.float32([1]), np.float32([2])) == 3
    content = bytearray(pathlib.Path("add.plan").read_bytes())
    content[len(content) // 2] ^= 0xFF
    pathlib.Path("bad.plan").write_bytes(content)
    with pytest.raises(planish.errors.BadFile):
        planish.load("bad.plan")
    with pytest.raises(planish.errors.FileError):
        planish.load("no.plan")
    with pytest.raises(planish.errors.FileError):
        plan.save("no folder/add.plan")


def test_a_device_that_is_not_there_says_so():
    planish.build(planish.Model.parse(ADD), tune_level=0, device="cpu").save("add.plan")
    with pytest.raises(planish.errors.Lacking, match="cuda:9999 cannot be used"):
        planish.load("add.plan", "cuda:9999")


def test_timing_caches_are_kept():
    weights = ",".join(str((5 * i % 13 - 6) / 8) for i in range(16 * 16 * 9))
    # Large enough for kernels to be measured.
    text = f"""graph "g" {{
        input %x: f32[1,16,32,32]
        const %w: f32[16,16,3,3] = [{weights}]
        %y: f32[1,16,32,32] = Conv(%x, %w) {{ pads=[1,1,1,1] }}
        output %y
    }}"""
    planish.build(planish.Model.parse(text), tune_level=1, timing_cache="times", threads=1)
    assert pathlib.Path("times").stat().st_size > 0
