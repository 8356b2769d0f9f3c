"""Single operators against ONNX Runtime: three sizes each, outputs compared, processor time of one thread.

    python bench/operators.py [--planish target/release/planish] [--only Cast] [--seconds 0.4]

Models of one operator are written to a temporary folder, built at tune level 1, and both sides run in turns: blocks of runs of
ONNX Runtime and of the plan (through `planish bench`), some of each. The shortest run counts on both sides, so that work beside
them counts little; the ratio is ONNX Runtime's time by the plan's. Needs onnx, onnxruntime and numpy.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h

F32, F16, I64, U8, BOOL = T.FLOAT, T.FLOAT16, T.INT64, T.UINT8, T.BOOL
NUMPY = {F32: np.float32, F16: np.float16, I64: np.int64, U8: np.uint8, T.DOUBLE: np.float64, BOOL: np.bool_}
rng = np.random.default_rng(1)


def tensor(name, dtype, dims):
    return h.make_tensor_value_info(name, dtype, dims)


def constant(name, array):
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def model(nodes, inputs, outputs, constants=(), opset=18):
    graph = h.make_graph(nodes, "operator", inputs, outputs, list(constants))
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=10)


def floats(*dims):
    return rng.standard_normal(dims, dtype=np.float32)


def cast(frm, to, n):
    x = floats(n) * 50
    x = (np.abs(x) if frm == U8 else x).astype(NUMPY[frm])
    return model([h.make_node("Cast", ["x"], ["y"], to=to)], [tensor("x", frm, [n])], [tensor("y", to, [n])]), {"x": x}


def resize(mode, channels, size, to, **attributes):
    sizes = constant("s", np.array([1, channels, to, to], dtype=np.int64))
    node = h.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode, **attributes)
    shape = [1, channels, size, size]
    return (
        model([node], [tensor("x", F32, shape)], [tensor("y", F32, [1, channels, to, to])], [sizes]),
        {"x": floats(*shape)},
    )


def gru(seq, size, hidden, op="GRU", gates=3, **attributes):
    scale = np.float32(1 / np.sqrt(hidden))
    w, r = floats(1, gates * hidden, size) * scale, floats(1, gates * hidden, hidden) * scale
    b = floats(1, 2 * gates * hidden) * scale
    node = h.make_node(op, ["x", "w", "r", "b"], ["y"], hidden_size=hidden, **attributes)
    constants = [constant("w", w), constant("r", r), constant("b", b)]
    y = tensor("y", F32, [seq, 1, 1, hidden])
    return model([node], [tensor("x", F32, [seq, 1, size])], [y], constants), {"x": floats(seq, 1, size)}


def scatter(rows, edges, width):
    node = h.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction="add")
    inputs = [tensor("x", F32, [rows, width]), tensor("i", I64, [edges, width]), tensor("u", F32, [edges, width])]
    index = np.repeat(rng.integers(0, rows, (edges, 1)), width, 1).astype(np.int64)
    return model([node], inputs, [tensor("y", F32, [rows, width])]), {
        "x": floats(rows, width),
        "i": index,
        "u": floats(edges, width),
    }


def stft(length, frame, step):
    bins, frames = frame // 2 + 1, (length - frame) // step + 1
    node = h.make_node("STFT", ["x", "step", "window", "frame"], ["y"])
    constants = [
        constant("step", np.int64(step)),
        constant("frame", np.int64(frame)),
        constant("window", np.hanning(frame).astype(np.float32)),
    ]
    y = tensor("y", F32, [1, frames, bins, 2])
    return model([node], [tensor("x", F32, [1, length, 1])], [y], constants), {"x": floats(1, length, 1)}


def max_pool(channels, size, kernel):
    node = h.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[kernel] * 2, strides=[2, 2], pads=[kernel // 2] * 4)
    out = (size + 2 * (kernel // 2) - kernel) // 2 + 1
    shape = [1, channels, out, out]
    return (
        model([node], [tensor("x", F32, [1, channels, size, size])], [tensor("y", F32, shape), tensor("i", I64, shape)]),
        {"x": floats(1, channels, size, size)},
    )


def rotary(heads, seq, size):
    node = h.make_node("RotaryEmbedding", ["x", "c", "s", "p"], ["y"])
    angles = np.outer(np.arange(seq), 1 / 10000 ** (np.arange(size // 2) / (size // 2))).astype(np.float32)
    shape = [1, heads, seq, size]
    constants = [constant("c", np.cos(angles)), constant("s", np.sin(angles))]
    inputs = [tensor("x", F32, shape), tensor("p", I64, [1, seq])]
    made = model([node], inputs, [tensor("y", F32, shape)], constants, opset=23)
    return made, {"x": floats(*shape), "p": np.arange(seq, dtype=np.int64)[None]}


ROWS = {
    "RotaryEmbedding": [lambda: rotary(8, 32, 64), lambda: rotary(12, 128, 64), lambda: rotary(32, 512, 128)],
    "Cast f32-f16": [lambda n=n: cast(F32, F16, n) for n in (1 << 12, 1 << 17, 1 << 21)],
    "Cast f16-f32": [lambda n=n: cast(F16, F32, n) for n in (1 << 12, 1 << 17, 1 << 21)],
    "Cast f32-u8": [lambda n=n: cast(F32, U8, n) for n in (1 << 12, 1 << 17, 1 << 21)],
    "Cast i64-f64": [lambda n=n: cast(I64, T.DOUBLE, n) for n in (1 << 12, 1 << 17, 1 << 21)],
    "Resize linear": [lambda s=s: resize("linear", 16, s, 2 * s) for s in (16, 64, 160)],
    "Resize cubic": [lambda s=s: resize("cubic", 3, s, 2 * s) for s in (16, 64, 224)],
    "Resize antialias": [lambda s=s: resize("linear", 3, s, s // 2, antialias=1) for s in (32, 128, 448)],
    "GRU": [lambda: gru(10, 64, 64), lambda: gru(50, 128, 128), lambda: gru(100, 256, 256)],
    "RNN": [lambda: gru(10, 64, 64, "RNN", 1), lambda: gru(50, 128, 128, "RNN", 1), lambda: gru(100, 256, 256, "RNN", 1)],
    "ScatterElements add": [lambda: scatter(64, 256, 16), lambda: scatter(1000, 4000, 32), lambda: scatter(5000, 40000, 64)],
    "STFT": [lambda: stft(4000, 256, 128), lambda: stft(16000, 400, 160), lambda: stft(160000, 512, 160)],
    "MaxPool indices": [lambda: max_pool(16, 32, 2), lambda: max_pool(64, 56, 3), lambda: max_pool(64, 112, 3)],
}


def theirs(path, feeds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def shortest(run, seconds):
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
    return best * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planish", default="target/release/planish")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    args.planish = str(pathlib.Path(args.planish).resolve())
    print(f"{'operator':<22} {'size':>4} {'ort us':>10} {'planish us':>10} {'ratio':>6}  worst difference, slow steps")
    for name, sizes in ROWS.items():
        if args.only not in name:
            continue
        for number, make in enumerate(sizes):
            with tempfile.TemporaryDirectory() as folder:
                print(row(name, number, make, pathlib.Path(folder), args), flush=True)


def row(name, number, make, folder, args):
    made, feeds = make()
    onnx.save(made, folder / "m.onnx")
    run = theirs(folder / "m.onnx", feeds)
    want = run()
    build = [args.planish, "build", "m.onnx", "-o", "m.plan", "--device", "cpu", "--threads", "1", "--tune-level", "1"]
    built = subprocess.run(build, cwd=folder, capture_output=True, text=True)
    if built.returncode:
        return f"{name:<22} {number:>4} failed: {(built.stderr or built.stdout).strip().splitlines()[-1]}"
    slow = [line for line in built.stdout.splitlines() if line.startswith(("slow", "late"))]
    np.savez(folder / "in.npz", **feeds)
    run_own = [args.planish, "run", "m.plan", "--inputs", "in.npz", "--threads", "1", "-o", "out.npz"]
    ran = subprocess.run(run_own, cwd=folder, capture_output=True, text=True)
    worst = difference(folder / "out.npz", made, want) if ran.returncode == 0 else (ran.stderr or ran.stdout).strip()
    ort_us, own_us = float("inf"), float("inf")
    for _ in range(args.turns):
        ort_us = min(ort_us, shortest(run, args.seconds))
        bench = [args.planish, "bench", "m.plan", "--inputs", "in.npz", "--threads", "1"]
        bench += ["--warmup", "0.05", "--duration", f"{args.seconds}", "--json=b.json"]
        done = subprocess.run(bench, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            return f"{name:<22} {number:>4} bench failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}"
        own_us = min(own_us, json.loads((folder / "b.json").read_text())["min_ms"] * 1e3)
    return f"{name:<22} {number:>4} {ort_us:>10.1f} {own_us:>10.1f} {ort_us / own_us:>6.2f}  {worst} {' '.join(slow)}"


def difference(path, made, want):
    worst, made_here = 0.0, np.load(path)
    for output, array in zip(made.graph.output, want):
        got = made_here[output.name]
        if array.dtype == np.int64:
            worst = max(worst, float((got != array).mean()))
        else:
            scale = max(1e-6, float(np.abs(array.astype(np.float64)).max()))
            worst = max(worst, float(np.abs(got.astype(np.float64) - array).max()) / scale)
    return f"{worst:.1e}"


if __name__ == "__main__":
    main()
