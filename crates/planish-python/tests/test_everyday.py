"""Lists in batches, and sliding windows."""

import numpy as np
import planish
import pytest

from conftest import ADD, engine_of

SQUARE = 'graph "square" { input %x: f32[n,3] %y: f32[n,3] = Mul(%x, %x) output %y }'
IMAGE = 'graph "image" { input %x: f32[n,1,h,w] %y: f32[n,1,h,w] = Neg(%x) output %y }'


@pytest.mark.parametrize("n_items,batch_size", [(0, 4), (1, 4), (4, 4), (10, 4), (3, None)])
def test_lists_in_batches(n_items, batch_size):
    engine = engine_of(SQUARE)
    items = [np.full(3, number, np.float32) for number in range(n_items)]
    results = engine.batch_inference(items, batch_size)
    assert len(results) == n_items
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result, np.full(3, number**2))


def test_items_of_several_inputs_and_with_a_batch_axis():
    text = 'graph "g" { input %a: f32[n,2] input %b: f32[n,2] %c: f32[n,2] = Add(%a, %b) output %c, %a }'
    engine = engine_of(text)
    items = ({"b": np.float32([[i, 1]]), "a": np.float32([[1, i]])} for i in range(5))
    for i, (c, a) in enumerate(engine.batch_inference(items, batch_size=2)):
        np.testing.assert_array_equal(c, [[i + 1, i + 1]])
        np.testing.assert_array_equal(a, [[1, i]])


def test_what_a_batch_refuses():
    engine = engine_of(SQUARE)
    with pytest.raises(planish.errors.BadOption):
        engine.batch_inference([np.zeros(3, np.float32)], batch_size=0)
    with pytest.raises(planish.errors.WrongShape):
        engine.batch_inference([np.zeros(4, np.float32)])
    with pytest.raises(planish.errors.WrongInputs, match="`b` is missing"):
        engine_of(ADD).batch_inference([np.zeros(4, np.float32)])


@pytest.mark.parametrize("mode", ["constant", "gaussian"])
@pytest.mark.parametrize("shape", [(9, 13), (1, 9, 13), (2, 1, 9, 13), (3, 5)])
def test_windows_that_change_nothing_but_the_sign(mode, shape, numbers):
    engine = engine_of(IMAGE)
    image = numbers.standard_normal(shape).astype(np.float32)
    made = engine.sliding_window(image, roi=(4, 6), overlap=[0.5, 0.25], mode=mode, padding_mode="reflect" if shape[0] > 3 else "constant")
    assert made.shape == (shape[0] if len(shape) == 4 else 1, 1, *shape[-2:])
    np.testing.assert_allclose(made.reshape(shape), -image, rtol=1e-5, atol=1e-6)


def test_pixels_are_normalized_and_labels_given():
    engine = engine_of(IMAGE)
    image = np.arange(64, dtype=np.uint8).reshape(8, 8)
    made = engine.sliding_window(image, 4, scale=1 / 255, mean=0.5, std=[0.25])
    np.testing.assert_allclose(made[0, 0], -(image / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-5)
    text = """graph "sides" {
        input %x: f32[n,1,h,w]
        %m: f32[n,1,h,w] = Neg(%x)
        %y: f32[n,2,h,w] = Concat(%x, %m) { axis=1 }
        output %y
    }"""
    centred = image.astype(np.int16) - 32
    labels = engine_of(text).sliding_window(centred, 4, argmax=True)
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, [centred < 0])


@pytest.mark.parametrize("options", [{"mode": "round"}, {"padding_mode": "none"}, {"overlap": 1.0}, {"roi": (1, 2, 3)}])
def test_what_windows_refuse(options):
    with pytest.raises(planish.errors.BadOption):
        engine_of(IMAGE).sliding_window(np.zeros((8, 8), np.float32), **{"roi": 4, **options})


def test_sizes_of_outputs_are_told_without_a_run():
    engine = engine_of('graph "g" { input %x: f32[n,2] %y: f32[2,n] = Transpose(%x) { perm=[1,0] } %k: i64[2,"k\'0"] = NonZero(%x) output %y, %k }')
    assert engine.output_shapes({"x": (5, 2)}) == {"y": (2, 5), "k": None}
    with pytest.raises(planish.errors.WrongInputs):
        engine.output_shapes({"z": (5, 2)})


def test_the_time_of_a_run():
    engine = engine_of(SQUARE)
    assert 0 < engine.time({"x": np.zeros((1, 3), np.float32)}, runs=5) < 1e6
