"""Operators that functions of Python's compute."""

import numpy as np
import planish
import pytest


def declared(name, reference):
    return f"""planish-plugin 1
op: test.python::{name}
version: 1
types: T = float32
inputs: x: T[..., n]
outputs: y: T[..., n]
tolerance: float32 1e-6
{reference}
"""


def model(name):
    text = f'graph "g" {{ input %x: f32[rows,4] %y: f32[rows,4] = custom "test.python" "{name}" 1 (%x) output %y }}'
    return planish.Model.parse(text)


def test_a_function_is_an_operator():
    @planish.plugin(declared("Twice", "reference: y = Add(x, x)"))
    def twice(x):
        return x + x

    assert twice(3) == 6                                                      # it stays the function that it was
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(model("Twice").evaluate({"x": x})["y"], 2 * x)
    plan = planish.build(model("Twice"), tune_level=0)
    assert plan.is_checked
    np.testing.assert_array_equal(plan.engine()(x), 2 * x)


def test_the_same_declaration_brings_the_new_function():
    text = declared("Counted", "reference: y = Neg(x)")
    calls = []
    planish.plugin(text)(lambda x: calls.append("old") or -x)
    planish.plugin(text)(lambda x: calls.append("new") or -x)
    engine = planish.build(model("Counted"), tune_level=0, verify=False).engine()
    calls.clear()
    engine(np.ones((1, 4), "f"))
    assert set(calls) == {"new"}


def test_a_reference_of_python():
    planish.plugin(declared("Cosine", ""), reference=lambda x: np.cos(x.astype("d")).astype("f"))(lambda x: np.cos(x))
    engine = planish.build(model("Cosine"), tune_level=0).engine()
    np.testing.assert_allclose(engine(np.ones((1, 4), "f")), np.cos(np.ones((1, 4))), rtol=1e-6)
    with pytest.raises(planish.errors.BadOption, match="no reference"):
        planish.plugin(declared("Nothing", ""))(lambda x: x)


def test_a_wrong_function_fails_the_build():
    planish.plugin(declared("Wrong", "reference: y = Neg(x)"))(lambda x: -x * np.float32(1.01))
    with pytest.raises(planish.errors.BadOption, match="test.python::Wrong.*does not compute what its reference does"):
        planish.build(model("Wrong"), tune_level=0)


@pytest.mark.parametrize(
    "name, function, why",
    [
        ("Raises", lambda x: 1 / 0, "ZeroDivisionError"),
        ("Sizes", lambda x: x[:0], "is declared"),
        ("Types", lambda x: x.astype("d"), "is declared"),
        ("Several", lambda x: (x, x), "gives 2 arrays, 1 are declared"),
    ],
)
def test_what_a_function_does_wrong_is_told(name, function, why):
    planish.plugin(declared(name, "reference: y = Identity(x)"))(function)
    engine = planish.build(model(name), tune_level=0, verify=False).engine()
    with pytest.raises(planish.errors.Error, match=why):
        engine(np.ones((1, 4), "f"))
