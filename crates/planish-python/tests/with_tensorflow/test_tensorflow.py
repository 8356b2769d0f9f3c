"""Keras and TensorFlow on their way to plans, with every hop compared: `cargo xtask python --tensorflow`."""

import numpy as np
import planish
import pytest

keras = pytest.importorskip("keras")
tensorflow = pytest.importorskip("tensorflow")


def classifier():
    """A small network of images, channels last."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((12, 12, 3), name="image"),
            layers.Conv2D(8, 3, activation="relu", padding="same"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(5, activation="softmax"),
        ]
    )


def test_keras_by_every_hop(capsys):
    image = np.random.default_rng(1).standard_normal((2, 12, 12, 3)).astype("f")
    hops = planish.export(classifier(), image, "model.onnx", check=True, plan_path="model.plan", tune_level=0)
    assert [hop.hop for hop in hops] == ["model to SavedModel", "TensorFlow to ONNX", "ONNX to plan"]
    assert hops.worst < 1e-5
    assert "TensorFlow to ONNX" in capsys.readouterr().out
    model = planish.Model("model.onnx")
    assert model.inputs[0].name == "image" and model.inputs[0].shape[1:] == (12, 12, 3)
    wanted = classifier().predict(image, verbose=0)
    np.testing.assert_allclose(planish.load("model.plan")(image), wanted, rtol=1e-4, atol=1e-6)


def test_two_inputs_by_name():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    model = keras.Model([a, b], keras.layers.Dense(2)(a - 2 * b))
    given = {"a": np.ones((3, 4), "f"), "b": np.full((3, 4), 0.5, "f")}
    assert planish.export(model, given, check=True, tune_level=0).worst < 1e-5
    with pytest.raises(planish.errors.WrongInputs, match="lack `b`"):
        planish.export(model, {"a": given["a"]}, check=True, tune_level=0)


def test_a_saved_model_of_tensorflow():
    class Scaled(tensorflow.Module):
        def __init__(self):
            super().__init__()
            self.weight = tensorflow.Variable([[1.0, 2.0], [3.0, 4.0]])

        @tensorflow.function(input_signature=[tensorflow.TensorSpec([None, 2], tensorflow.float32, name="x")])
        def __call__(self, x):
            return {"y": tensorflow.nn.relu(x @ self.weight)}

    tensorflow.saved_model.save(Scaled(), "saved")
    hops = planish.export("saved", path="saved.onnx", check=True, tune_level=0)
    assert [hop.hop for hop in hops] == ["TensorFlow to ONNX", "ONNX to plan"]
    engine = planish.build("saved.onnx", tune_level=0).engine()
    np.testing.assert_allclose(engine(np.float32([[1, -1]])), [[0, 0]], atol=1e-6)
    np.testing.assert_allclose(engine(np.float32([[1, 1]])), [[4, 6]], rtol=1e-6)


def test_a_function_needs_examples():
    function = tensorflow.function(lambda x: tensorflow.sin(x) + 1.0)
    assert planish.export(function, np.ones((2, 3), "f"), check=True, tune_level=0).worst < 1e-5
    with pytest.raises(planish.errors.WrongInputs, match="give example_inputs"):
        planish.export(function, check=True)
