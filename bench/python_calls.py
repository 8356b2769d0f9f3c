#!/usr/bin/env python3
"""What Python adds to a run: the time of `engine(x)` beside that of the same run in Rust, copies, and threads.

    pip install .                                          the optimized wheel, into the environment that runs this
    python3 bench/python_calls.py                          prints a table; --rounds for quieter numbers

Both sides are timed in turns, in the same process; the median of all rounds is printed, with the smallest and the largest.
"""

import argparse
import statistics
import threading
import time

import numpy as np
import planish

#: What a call may add to a run, in microseconds.
ASKED_US = 5.0

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


def threads(rounds):
    """Runs of one engine from several threads of Python's."""
    engine = planish.build(planish.Model.parse(MATMUL), threads=1).engine()
    x = np.ones((128, 128), np.float32)
    n = 2000
    print(f"\n{'MatMul of 128 x 128, runs a second':<44}{'median':>9}{'least':>9}{'most':>9}")
    rates = {1: [], 2: [], 4: []}
    for _ in range(rounds):
        for count, list_ in rates.items():
            work = [threading.Thread(target=lambda: [engine(x) for _ in range(n // count)]) for _ in range(count)]
            start = time.perf_counter()
            for thread in work:
                thread.start()
            for thread in work:
                thread.join()
            list_.append(n / (time.perf_counter() - start))
    for count, list_ in rates.items():
        shown(f"{count} threads of Python", list_)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000, help="in a round")
    args = parser.parse_args()
    print(planish.describe("cpu"))
    added = overhead(args.rounds, args.calls)
    threads(max(args.rounds // 3, 3))
    print(f"\nadded by Python: {added:.2f} us, asked: at most {ASKED_US:.0f} us: {'yes' if added <= ASKED_US else 'NO'}")


if __name__ == "__main__":
    main()
