"""Pipelines of engines: branches, loops, functions between them, threads, and what is wrong with one."""

import threading

import numpy as np
import planish
import pytest
from conftest import ADD, engine_of

NEG = 'graph "neg" { input %x: f32[n] %y: f32[n] = Neg(%x) output %y }'


@pytest.fixture(scope="module")
def neg():
    """y = -x"""
    return engine_of(NEG)


def loop(add, neg, function):
    """z = -x; three times z = function(trip, z + x); the output is z and -z."""
    return planish.Pipeline(
        ["x"],
        [
            planish.Stage("first", neg, x="x"),
            planish.Repeat(
                3,
                [
                    planish.Stage("sum", add, {"a": "first.y"}, b="x"),
                    planish.Host("work", function, ["sum.c"], {"z": "first.y"}),
                ],
                carry={"first.y": "work.z"},
            ),
            planish.Stage("last", neg, x="first.y"),
        ],
        {"z": "first.y", "minus": "last.y"},
        contexts=2,
    )


def test_branches_loops_and_functions(add, neg):
    trips = []

    def work(trip, z):
        trips.append(trip)
        return z * np.float32(trip + 1)

    pipeline = loop(add, neg, work)
    z, minus = pipeline(np.float32([1, 2]))
    np.testing.assert_array_equal(z, [9, 18])
    np.testing.assert_array_equal(minus, [-9, -18])
    assert trips == [0, 1, 2]
    assert list(pipeline.run({"x": np.float32([1])})) == ["z", "minus"]
    np.testing.assert_array_equal(pipeline(x=[1, 2, 3])[0], [9, 18, 27])      # a list is taken as the engine's type
    assert "none of them overlaps" in pipeline.proofs({"x": (4,)})[0]


def test_threads_have_runs_of_their_own(add, neg):
    pipeline = loop(add, neg, lambda trip, z: z * np.float32(trip + 1))
    wrong = []

    def runs(number):
        for turn in range(20):
            x = np.full(1 + turn % 3, number, np.float32)
            z, _ = pipeline(x)
            if not np.array_equal(z, 9 * x):
                wrong.append((number, turn, z))

    threads = [threading.Thread(target=runs, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_engines_in_a_chain(add, neg):
    np.testing.assert_array_equal(neg.pipeline(neg)(np.float32([1, -2])), [1, -2])
    chain = add.pipeline(neg, contexts=1)
    np.testing.assert_array_equal(chain(np.float32([1]), b=np.float32([2])), [-3])
    with pytest.raises(planish.errors.BadOption, match="takes a, b, the one before it gives y"):
        neg.pipeline(add)


def test_what_is_wrong_names_the_stage(add, neg):
    stage = planish.Stage("one", neg, x="x")
    with pytest.raises(planish.errors.BadOption, match="stage `two` reads `nowhere`"):
        planish.Pipeline(["x"], [stage, planish.Stage("two", neg, x="nowhere")], {"y": "one.y"})
    with pytest.raises(planish.errors.WrongType, match="planish.Stage, planish.Host and planish.Repeat, not str"):
        planish.Pipeline(["x"], ["one"], {"y": "one.y"})
    with pytest.raises(planish.errors.WrongType, match="not int"):
        planish.Pipeline(["x"], [stage, planish.Repeat(2, [7])], {"y": "one.y"})
    pipeline = planish.Pipeline(["x"], [stage], {"y": "one.y"})
    with pytest.raises(planish.errors.WrongInputs, match="input `x` is missing"):
        pipeline()
    with pytest.raises(planish.errors.WrongInputs, match="no input `z`"):
        pipeline(np.float32([1]), z=np.float32([1]))
    with pytest.raises(planish.errors.WrongInputs, match="has 1 inputs, 2 are given"):
        pipeline(np.float32([1]), np.float32([1]))


def test_what_a_function_raises_is_the_cause(add, neg):
    def fails(trip, z):
        raise LookupError("no such step")

    with pytest.raises(planish.errors.Failed, match="stage `work`.*no such step") as caught:
        loop(add, neg, fails)(np.float32([1]))
    assert isinstance(caught.value.__cause__, LookupError)
    with pytest.raises(planish.errors.Error, match="stage `work`"):
        loop(add, neg, lambda trip, z: z[:1])(np.float32([1, 2]))
