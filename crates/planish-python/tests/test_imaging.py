"""Engines over images and volumes, ensembles, several devices, and the exporter's flags."""

import numpy as np
import planish
import planish.imaging
import pytest
from planish import exporter
from planish.imaging import InferenceEngine, SlidingWindowInferer, sliding_window_inference

#: Two channels for each pixel: what it is, and what it is not.
TWO = """graph "g" {
    input %x: f32[n,1,8,8]
    const %w: f32[2,1,3,3] = [0,0,0, 0,1,0, 0,0,0, 0,0,0, 0,-1,0, 0,0,0]
    %y: f32[n,2,8,8] = Conv(%x, %w) { pads=[1,1,1,1] }
    output %y
}"""


@pytest.fixture
def plan():
    """The path of a plan."""
    planish.build(planish.Model.parse(TWO), threads=1, tune_level=0).save("two.plan")
    return "two.plan"


def image(numbers, *shape):
    """Numbers to look at."""
    return numbers.standard_normal(shape).astype(np.float32)


def test_windows_and_items(plan, numbers):
    x = image(numbers, 1, 1, 20, 30)
    with InferenceEngine(plan, batch_size=3, warmup=1) as engine:
        made = engine.sliding_window_inference(x, (8, 8), 4, overlap=0.5, mode="gaussian")
        np.testing.assert_allclose(made, np.concatenate([x, -x], 1), atol=1e-6)
        items = [image(numbers, 1, 8, 8) for _ in range(7)]
        for item, answer in zip(items, engine.batch_inference(items)):
            np.testing.assert_array_equal(answer, np.concatenate([item, -item]))
        np.testing.assert_array_equal(engine(x[:, :, :8, :8]), np.concatenate([x, -x], 1)[:, :, :8, :8])
    with pytest.raises(IndexError):
        engine(x)


def test_hooks_ensembles_and_devices(plan, numbers):
    x = image(numbers, 2, 1, 8, 8)
    engine = InferenceEngine(plan, preprocess=lambda x: x * 2, postprocess=lambda y: y[:, 0])
    np.testing.assert_array_equal(engine.infer(x), 2 * x[:, 0])
    both = InferenceEngine([plan, plan], ["cpu", "cpu"])
    np.testing.assert_array_equal(both.infer(x), np.concatenate([x, -x], 1))
    items = [image(numbers, 1, 8, 8) for _ in range(9)]
    for item, answer in zip(items, both.batch_inference(items, 2)):
        np.testing.assert_array_equal(answer, np.concatenate([item, -item]))
    votes = InferenceEngine([plan] * 3, ensemble="vote")
    np.testing.assert_array_equal(votes.infer(x), (x < 0)[:, 0].astype(int))
    np.testing.assert_array_equal(votes.batch_inference(items)[0], (items[0] < 0)[0].astype(int))
    with pytest.raises(planish.errors.BadOption, match="vote"):
        InferenceEngine(plan, ensemble="best")


def test_the_arguments_of_monai(plan, numbers):
    engine = planish.load(plan)
    x = image(numbers, 1, 1, 12, 12)
    made = sliding_window_inference(x, (8, 8), 2, engine, 0.25, "constant", 0.125, "reflect", 0.0, None, None, False)
    np.testing.assert_allclose(made[:, :1], x, atol=1e-6)
    np.testing.assert_array_equal(SlidingWindowInferer((8, 8), 2, padding_mode="reflect")(x, engine), made)
    np.testing.assert_array_equal(sliding_window_inference(x, 8, 2, engine, argmax=True)[0], x[0, 0] < 0)
    with pytest.raises(planish.errors.Unsupported, match="process_fn"):
        sliding_window_inference(x, 8, 2, engine, process_fn=lambda *each: each)
    with pytest.raises(planish.errors.WrongType, match="engine"):
        sliding_window_inference(x, 8, 2, lambda x: x)


def test_what_is_no_plan():
    with open("model.onnx", "wb") as file:
        file.write(b"no plan at all, and long enough")
    with pytest.raises(planish.errors.BadFile, match="is no plan"):
        InferenceEngine("model.onnx")


LAYERS = """graph "g" {
    input %x: f32[n,4,8,8]
    const %w: f32[4,4,3,3] = [WEIGHTS]
    %a: f32[n,4,8,8] = Conv(%x, %w) { pads=[1,1,1,1] }
    %b: f32[n,4,8,8] = Conv(%a, %w) { pads=[1,1,1,1] }
    %y: f32[n,4,8,8] = Conv(%b, %w) { pads=[1,1,1,1] }
    output %y
}""".replace("WEIGHTS", ",".join(f"{(idx * 7 % 13 - 6) / 20}" for idx in range(144)))


def test_the_exporter(capsys, numbers):
    planish.Model.parse(LAYERS).save_onnx("model.onnx")
    np.save("samples.npy", image(numbers, 6, 4, 8, 8))
    told = "--input-shape 1 4 8 8 --dynamic-shapes --min-batch 1 --opt-batch 2 --max-batch 4 --workspace-size 0.5 --threads 1"
    told += " --precision int8 --calibration-data samples.npy --num-calibration-samples 4 --benchmark --benchmark-iterations 3"
    assert exporter.main(["model.onnx", "--output", "model.plan", *told.split()]) == 0
    said = capsys.readouterr().out
    assert "model.plan" in said and "3 runs of batch 2" in said
    engine = planish.load("model.plan")
    assert engine(np.zeros((4, 4, 8, 8), np.float32)).shape == (4, 4, 8, 8)
    with pytest.raises(planish.errors.WrongShape):
        engine(np.zeros((5, 4, 8, 8), np.float32))


@pytest.mark.parametrize(
    "told,words",
    [
        ("no.onnx", "no.onnx"),
        ("model.onnx --precision int8", "--calibration-data"),
        ("model.onnx --input-shape 1 4", "2 sizes"),
        ("model.onnx --ckpt last.ckpt", "--ckpt"),
    ],
)
def test_what_the_exporter_refuses(told, words, capsys):
    planish.Model.parse(LAYERS).save_onnx("model.onnx")
    assert exporter.main(told.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and words in said and said.count("\n") == 1
