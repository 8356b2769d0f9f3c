"""Small models, and a folder of each test's own to write in."""

import numpy as np
import planish
import pytest

ADD = 'graph "add" { input %a: f32[n] input %b: f32[n] %c: f32[n] = Add(%a, %b) output %c }'
RELU = 'graph "relu" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }'
TWO = """graph "two" {
    input %x: f32[n]
    %p: f32[n] = Relu(%x)
    %m: f32[n] = Neg(%x)
    output %p, %m
}"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Files go to a folder that is thrown away."""
    monkeypatch.chdir(tmp_path)


def engine_of(text, **options):
    """An engine of a model in text form, built without measuring."""
    return planish.build(planish.Model.parse(text), tune_level=0, threads=1, **options).engine()


@pytest.fixture(scope="session")
def add():
    """c = a + b"""
    return engine_of(ADD)


@pytest.fixture(scope="session")
def relu():
    """y = relu(x), rows of four"""
    return engine_of(RELU)


@pytest.fixture
def numbers():
    """A generator of random numbers with a seed."""
    return np.random.default_rng(7)
