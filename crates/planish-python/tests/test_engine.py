"""Engines, contexts and pools: calls by position and by name, threads, asyncio, other processes."""

import asyncio
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import planish
import pytest

from conftest import ADD, RELU, TWO, engine_of


def test_inputs_by_position_and_by_name(add):
    a, b = np.float32([1, 2]), np.float32([3, 4])
    for c in (add(a, b), add(a, b=b), add(b=b, a=a), add.run({"b": b, "a": a})["c"]):
        assert c.dtype == np.float32
        np.testing.assert_array_equal(c, [4, 6])


def test_several_outputs_are_a_tuple_in_order():
    two = engine_of(TWO)
    x = np.float32([-1, 2])
    p, m = two(x)
    np.testing.assert_array_equal(p, [0, 2])
    np.testing.assert_array_equal(m, [1, -2])
    assert list(two.run({"x": x})) == ["p", "m"] == [output.name for output in two.outputs]


def test_what_inputs_and_outputs_are(relu):
    (x,), (y,) = relu.inputs, relu.outputs
    assert (x.name, x.dtype, x.shape) == ("x", "float32", ("n", 4))
    assert (y.name, y.dtype, y.shape) == ("y", "float32", ("n", 4))
    assert x == relu.inputs[0] and x != y
    assert "x: f32[n,4]" in repr(relu)


def test_outputs_outlive_the_next_run_and_the_engine():
    engine = engine_of(RELU)
    first = engine(np.full((2, 4), 1, np.float32))
    second = engine(np.full((2, 4), 2, np.float32))
    del engine
    assert (first == 1).all() and (second == 2).all()
    first += 1
    assert (first == 2).all() and (second == 2).all()


def test_contexts_close(relu):
    x = np.ones((1, 4), np.float32)
    with relu.context(threads=1) as context:
        np.testing.assert_array_equal(context(x), x)
        np.testing.assert_array_equal(context.run({"x": x})["y"], x)
    with pytest.raises(planish.errors.BadOption, match="closed"):
        context(x)
    context.close()


def test_a_pool_lends_its_contexts_in_turn(relu):
    pool = relu.pool(1)
    x = np.ones((1, 4), np.float32)
    lease = pool.lease()
    done = threading.Event()

    def wait():
        assert (pool(x) == x).all()
        assert (pool.run({"x": x})["y"] == x).all()
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not done.wait(0.05), "the only context is on loan"
    np.testing.assert_array_equal(lease(x), x)
    lease.close()
    thread.join(timeout=60)
    assert done.is_set()


def in_threads(n, work):
    """Does the work in threads at once, each with its number."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_any_number_of_threads_share_an_engine(add):
    wrong = []

    def work(number):
        for length in (1, 3, 17, number + 1):
            a = np.full(length, number, np.float32)
            if not (add(a, a) == 2 * number).all():
                wrong.append(number)

    in_threads(8, work)
    assert not wrong


def test_one_context_serves_threads_one_after_another(relu):
    wrong = []
    with relu.context() as context:

        def work(number):
            for _ in range(20):
                if not (context(np.full((2, 4), number, np.float32)) == number).all():
                    wrong.append(number)

        in_threads(4, work)
    assert not wrong


#: Long enough for another thread of Python's to be seen at work meanwhile.
SLOW = 'graph "slow" { input %x: f32[n,n] %y: f32[n,n] = MatMul(%x, %x) output %y }'


def test_the_interpreter_is_free_while_a_model_runs():
    engine = engine_of(SLOW, verify=False)
    x = np.ones((2048, 2048), np.float32)
    engine(x)
    counted, running = 0, True

    def run():
        nonlocal running
        engine(x)
        running = False

    thread = threading.Thread(target=run)
    thread.start()
    while running:
        counted += 1
        time.sleep(0)
    thread.join()
    assert counted > 10


def test_asyncio(add):
    async def several():
        calls = [add.run_async(np.float32([i]), b=np.float32([1])) for i in range(5)]
        return await asyncio.gather(*calls)

    assert [float(c[0]) for c in asyncio.run(several())] == [1, 2, 3, 4, 5]

    async def wrong():
        await add.run_async(np.float32([1]))

    with pytest.raises(planish.errors.WrongInputs, match="`b` is missing"):
        asyncio.run(wrong())


def test_engines_go_to_other_processes_by_path():
    planish.build(planish.Model.parse(ADD), tune_level=0).save("add.plan")
    engine = planish.load("add.plan", "cpu", threads=1)
    again = pickle.loads(pickle.dumps(engine))
    assert (again.device, again.threads, str(again.path)) == ("cpu", 1, "add.plan")
    with open("engine.pickle", "wb") as file:
        pickle.dump(engine, file)
    script = "import pickle, numpy as np; e = pickle.load(open('engine.pickle', 'rb')); print(e(np.float32([1]), np.float32([2])))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[3.]\n"


def test_an_engine_without_a_file_says_so_when_pickled(add):
    with pytest.raises(planish.errors.BadOption, match="save it"):
        pickle.dumps(add)


def test_profiles_are_lists_that_print_as_tables():
    engine = engine_of(TWO)
    profile = engine.profile({"x": np.float32([-1, 2])}, runs=3)
    assert sum(step.us for step in profile) <= profile.total_us
    assert str(profile).splitlines()[0].split() == ["us", "share", "layers", "operators", "kernel"]
    assert profile._repr_html_().startswith("<table><tr><th>us</th>")
