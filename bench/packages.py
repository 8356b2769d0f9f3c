#!/usr/bin/env python3
"""Packages of others in their own pipelines, with `onnxruntime` as it is and with `planish.onnxruntime` in its place.

    python3 bench/packages.py --wheel FILE.whl        makes its environment under target/bench, prints a table
    python3 bench/packages.py --python INTERPRETER    an environment that has the packages and Planish already

Each pipeline takes data that packages carry, and is run by two processes that differ in one thing: what `import
onnxruntime` gives. Nothing of the packages is changed. The processes take turns; times are of whole calls, with what the
packages do before and after their models, and the median of all is printed. A session of Planish is built when it is
first made and opened from the user's cache folder later: `first` is the time from nothing to a pipeline that has given
its first answer, `again` the same in a process that finds the plans.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENT = HERE.parent / "target" / "bench" / "packages"
LISTS = ("requirements-packages-needs.txt", "requirements-packages.txt")
#: What an answer's numbers may differ by, relative to the largest of the list that they are of: both sides compute in
#: f32, and packages round and cut what they get.
TOLERANCE = 2e-3
RUNTIMES = ("onnxruntime", "planish")


def environment(wheel):
    """The interpreter of an environment with the packages and the wheel."""
    python = ENVIRONMENT / "bin" / "python"
    stamp, text = ENVIRONMENT / "installed.txt", "".join((HERE / name).read_text() for name in LISTS)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if not stamp.exists() or stamp.read_text() != text:
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        subprocess.run([*pip, "-r", str(HERE / LISTS[0])], check=True)
        subprocess.run([*pip, "--no-deps", "-r", str(HERE / LISTS[1])], check=True)
        stamp.write_text(text)
    if wheel:
        subprocess.run([*pip, "--no-deps", "--force-reinstall", wheel], check=True)
    return str(python)


class Worker:
    """A process that has one pipeline over one runtime."""

    def __init__(self, python, runtime, name, cache, show=False):
        told = {**os.environ, "XDG_CACHE_HOME": cache, "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}
        command = [python, str(HERE / "packages_worker.py"), runtime, name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None if show else subprocess.DEVNULL, env=told, text=True)
        self.start = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process ended with {self.process.wait()}")
        found = json.loads(line)
        if "error" in found:
            raise RuntimeError(found["error"])
        return found

    def ask(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self.read()["times"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def difference(a, b, path="answer"):
    """Where two answers differ, in words; None where they do not."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and not isinstance(a, bool):
        far = abs(a - b)
        return None if far <= TOLERANCE * max(1, abs(a)) else f"{path}: {a} and {b}"
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next((found for key in a if (found := difference(a[key], b[key], f"{path}.{key}"))), None)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return next((found for i, (x, y) in enumerate(zip(a, b)) if (found := difference(x, y, f"{path}[{i}]"))), None)
    return None if a == b else f"{path}: {str(a)[:60]!r} and {str(b)[:60]!r}"


def row(python, name, args, cache):
    """One pipeline with both runtimes: its times, and where the answers differ."""
    workers = {}
    starts = {}
    first = Worker(python, "planish", name, cache, args.show)
    starts["first"] = first.start["seconds"]
    first.end()
    try:
        for runtime in RUNTIMES:
            workers[runtime] = Worker(python, runtime, name, cache, args.show)
        times = {runtime: [] for runtime in RUNTIMES}
        for turn in range(args.rounds):
            for runtime in RUNTIMES if turn % 2 == 0 else RUNTIMES[::-1]:
                times[runtime] += workers[runtime].ask(args.block)
        starts["again"] = workers["planish"].start["seconds"]
        starts["onnxruntime"] = workers["onnxruntime"].start["seconds"]
        different = difference(*(workers[runtime].start["answer"] for runtime in RUNTIMES))
        size = workers["onnxruntime"].start["answer"]
    finally:
        for worker in workers.values():
            worker.end()
    return {name: statistics.median(list_) for name, list_ in times.items()}, starts, different, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", help="Planish's, installed into the environment")
    parser.add_argument("--python", help="an interpreter that has everything already")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--block", type=float, default=0.5, help="seconds of a turn")
    parser.add_argument("--cache", help="where plans are kept; a folder of this call's own if not given")
    parser.add_argument("--show", action="store_true", help="print the answers, and what packages print")
    parser.add_argument("names", nargs="*", help="pipelines; all if none is named")
    args = parser.parse_args()
    python = args.python or environment(args.wheel)
    known = subprocess.run([python, str(HERE / "packages_worker.py")], check=True, capture_output=True, text=True).stdout.split()
    if set(args.names) - set(known):
        sys.exit(f"there are {', '.join(known)}")
    print(f"{'pipeline':<22}{'onnxruntime':>14}{'planish':>12}{'times':>8}   {'first':>8}{'again':>8}{'ort':>8}   answers")
    speedups, n_different = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name in args.names or known:
            try:
                times, starts, different, answer = row(python, name, args, args.cache or folder)
            except RuntimeError as error:
                print(f"{name:<22}failed: {error}", flush=True)
                n_different += 1
                continue
            speedups.append(times["onnxruntime"] / times["planish"])
            n_different += different is not None
            print(
                f"{name:<22}{times['onnxruntime'] * 1e3:11.3f} ms{times['planish'] * 1e3:9.3f} ms{speedups[-1]:8.2f}   "
                f"{starts['first']:7.2f}s{starts['again']:7.2f}s{starts['onnxruntime']:7.2f}s   {different or 'equal'}",
                flush=True,
            )
            if args.show:
                print("   ", json.dumps(answer, ensure_ascii=False)[:600])
    mean = math.exp(statistics.fmean(map(math.log, speedups))) if speedups else math.nan
    print(f"\n{len(speedups)} pipelines, {n_different} with other answers; {mean:.2f} times as fast in geometric mean")
    sys.exit(1 if n_different or mean < 1 else 0)


if __name__ == "__main__":
    main()
