#!/usr/bin/env python3
"""What Python adds to a run: the time of `engine(x)` beside that of the same run in Rust, copies, and threads.

    pip install .                                          the optimized wheel, into the environment that runs this
    python3 bench/python_calls.py                          prints a table; --rounds for quieter numbers
    python3 bench/python_calls.py --device cuda            the same with tensors of torch's on a GPU

Both sides are timed in turns, in the same process; the median of all rounds is printed, with the smallest and the largest.
"""

import argparse
import statistics
import threading
import time

import numpy as np
import planish

from gpu_common import figure

#: What a call may add to a run, in microseconds.
ASKED_US = 5.0
#: The same with tensors of torch's on a GPU.
ASKED_CUDA_US = 10.0

ADD = 'graph "add" { input %a: f32[4] input %b: f32[4] %c: f32[4] = Add(%a, %b) output %c }'
MATMUL = 'graph "matmul" { input %x: f32[128,128] %y: f32[128,128] = MatMul(%x, %x) output %y }'


def time_us(call, n):
    """The mean time of a call, in microseconds."""
    start = time.perf_counter_ns()
    for _ in range(n):
        call()
    return (time.perf_counter_ns() - start) / n / 1e3


def shown(name, times):
    """A row of the table."""
    print(f"{name:<44}{statistics.median(times):9.2f}{min(times):9.2f}{max(times):9.2f}")


def overhead(rounds, n):
    """Calls of the smallest engine, from Python and in Rust."""
    plan = planish.build(planish.Model.parse(ADD), threads=1)
    engine = plan.engine()
    a, b = np.ones(4, np.float32), np.ones(4, np.float32)
    feed = {"a": a, "b": b}
    context = engine.context()
    sides = {
        "Rust: context.run_in_order": lambda: engine.time(feed, runs=n),
        "engine(a, b)": lambda: time_us(lambda: engine(a, b), n),
        "engine.run({...})": lambda: time_us(lambda: engine.run(feed), n),
        "context(a, b)": lambda: time_us(lambda: context(a, b), n),
        "numpy.add(a, b), for comparison": lambda: time_us(lambda: np.add(a, b), n),
    }
    times = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            times[name].append(side())
    print(f"{'Add of 4 floats, us':<44}{'median':>9}{'least':>9}{'most':>9}")
    for name in sides:
        shown(name, times[name])
    added = [call - run for call, run in zip(times["engine(a, b)"], times["Rust: context.run_in_order"])]
    shown("engine(a, b) over the run in Rust", added)
    print(f"tensors copied: {engine.copies}")
    return statistics.median(added)


def rate(count, n, work):
    """Runs a second where `count` threads share `n` of them; each calls `work` with its part."""
    started = [threading.Thread(target=work, args=(n // count,)) for _ in range(count)]
    start = time.perf_counter()
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return n // count * count / (time.perf_counter() - start)


def threads(rounds):
    """Runs of one engine from several threads of Python's, beside contexts that loop in Rust without the interpreter."""
    worst = 1.0
    for name, text, sizes, n in (("128 x 128", MATMUL, (128, 128), 4000), ("384 x 384", MATMUL.replace("128", "384"), (384, 384), 400)):
        engine = planish.build(planish.Model.parse(text), threads=1).engine()
        x = np.ones(sizes, np.float32)
        sides = {
            "Python: engine(x)": lambda part: [engine(x) for _ in range(part)],
            "Rust: contexts of one thread": lambda part: engine.time({"x": x}, runs=part),
        }
        rates = {(side, count): [] for count in (1, 2, 4) for side in sides}
        for _ in range(rounds):
            for (side, count), list_ in rates.items():
                list_.append(rate(count, n, sides[side]))
        print(f"\n{'MatMul of ' + name + ', runs a second':<44}{'median':>9}{'least':>9}{'most':>9}{'x one':>9}")
        median = {key: statistics.median(list_) for key, list_ in rates.items()}
        for (side, count), list_ in rates.items():
            one = median[side, 1]
            print(f"{f'{count} threads, {side}':<44}{median[side, count]:9.0f}{min(list_):9.0f}{max(list_):9.0f}{median[side, count] / one:9.2f}")
        gain = {count: [median[side, count] / median[side, 1] for side in sides] for count in (2, 4)}
        worst = min([worst, *(python / rust for python, rust in gain.values())])
    print(f"\nthe gain of 2 and 4 threads from Python, in parts of that of Rust: {worst:.2f} at worst")


def on_gpu(rounds, n):
    """Calls of the smallest engine with tensors of torch's on a GPU, queued one after another, and waited for in the end."""
    import torch

    engine = planish.build(planish.Model.parse(ADD), device="cuda").engine("cuda")
    a, b = torch.ones(4, device="cuda"), torch.ones(4, device="cuda")
    made, context, stream = torch.empty(4, device="cuda"), engine.context(), torch.cuda.current_stream().cuda_stream
    inputs, outputs = [(a.data_ptr(), [4]), (b.data_ptr(), [4])], [(made.data_ptr(), 16)]
    run_at = lambda: context.run_at(inputs, outputs, on_device=True, stream=stream)  # noqa: E731
    sides = {
        "engine(a, b)": lambda: engine(a, b),
        "context.run_at: the run at addresses": run_at,
        "torch.empty alone": lambda: torch.empty(4, dtype=torch.float32, device="cuda"),
        "torch.add(a, b), for comparison": lambda: torch.add(a, b),
    }
    times = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            side()
            torch.cuda.synchronize()
            times[name].append(time_us(side, n))
            torch.cuda.synchronize()
    assert torch.equal(engine(a, b), a + b)
    print(f"{'Add of 4 floats on a GPU, us':<44}{'median':>9}{'least':>9}{'most':>9}")
    for name in sides:
        shown(name, times[name])
    added = [call - run for call, run in zip(times["engine(a, b)"], times["context.run_at: the run at addresses"])]
    shown("engine(a, b) over the run at addresses", added)
    print(f"tensors copied: {engine.copies}")
    return statistics.median(added)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000, help="in a round")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args = parser.parse_args()
    if args.device == "cuda":
        added = on_gpu(args.rounds, args.calls)
        figure("a call with tensors of torch on the GPU, over the run", f"<= {ASKED_CUDA_US:.0f} us", f"{added:.2f} us", added <= ASKED_CUDA_US)
        return
    print(planish.describe("cpu"))
    added = overhead(args.rounds, args.calls)
    threads(max(args.rounds // 3, 3))
    figure("a call from Python, over the run in Rust", f"<= {ASKED_US:.0f} us", f"{added:.2f} us", added <= ASKED_US)


if __name__ == "__main__":
    main()
