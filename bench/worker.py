"""The part of the benchmark that needs numpy and the peers; run.py calls it, each time in a process of its own.

worker.py inputs MODEL SEED SPECIFICATION OUT.npz       writes the inputs of a case, prints shapes and kind
worker.py time PEER MODEL INPUTS.npz THREADS SECONDS [OUT.npz]    times one block, prints one JSON line
worker.py compare A.npz B.npz ...                       distances of each pair of outputs

A line of JSON on standard output is the answer.
"""

import itertools
import json
import os
import resource
import statistics
import sys
import time
import zipfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "xtask", "python"))

# What open sizes of a model become that has no row in models.tsv.
OPEN_SIZE = 64
WARMUP_SECONDS = 0.2
WARMUP_RUNS = 2
LEAST_RUNS = 3
# The least root mean square that an output is measured against: the peers' exp, tanh and sigmoid have an absolute
# error near 1e-7, which is all there is of an output whose every probability is tiny.
RMS_FLOOR = 1e-2


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def save(path, arrays):
    """As numpy.savez, for any array name."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)


def load(path):
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def inputs(model, seed, specification, out):
    import feeds
    import onnx

    proto = onnx.load(model, load_external_data=False)
    constants = {tensor.name for tensor in proto.graph.initializer}
    types = {
        value.name: onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        for value in proto.graph.input
        if value.name not in constants
    }
    arrays = feeds.feeds(seed, types, specification or guessed(onnx, proto, types))
    save(out, arrays)
    return {"kind": kind(onnx, proto), "shapes": {name: list(array.shape) for name, array in arrays.items()}}


def guessed(onnx, proto, types):
    """A specification for a model of which nothing is known: its own sizes, 1 and then OPEN_SIZE where they are open."""
    parts = []
    for value in proto.graph.input:
        if value.name not in types:
            continue
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        sizes = "x".join(str(size or (1 if axis == 0 else OPEN_SIZE)) for axis, size in enumerate(dims))
        is_float = np.issubdtype(types[value.name], np.floating)
        parts.append(f"{value.name}={'noise' if is_float else 'ids(2)'}:{sizes}")
    return " ".join(parts)


def kind(onnx, proto):
    """What precision the outputs can be expected to agree to."""
    if any("Quantize" in node.op_type or "Integer" in node.op_type for node in proto.graph.node):
        return "quantized"
    if any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in proto.graph.initializer):
        return "half"
    return "single"


def onnx_runtime(model, arrays, threads):
    import onnxruntime as ort

    base = peak_mb()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    start = time.perf_counter()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    load_ms = (time.perf_counter() - start) * 1e3
    names = [output.name for output in session.get_outputs()]
    return lambda: dict(zip(names, session.run(None, arrays))), ort.__version__, load_ms, base


def openvino(model, arrays, threads):
    import openvino as ov

    base = peak_mb()
    start = time.perf_counter()
    core = ov.Core()
    network = core.read_model(model)
    network.reshape({name: list(array.shape) for name, array in arrays.items()})
    options = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(network, "CPU", options).create_infer_request()
    load_ms = (time.perf_counter() - start) * 1e3

    def run():
        results = request.infer(arrays, share_inputs=True, share_outputs=True)
        return {output.any_name: results[output] for output in request.model_outputs}

    return run, ov.__version__.split("-")[0], load_ms, base


PEERS = {"ort": onnx_runtime, "openvino": openvino}


def measure(peer, model, inputs_path, threads, seconds, out=None):
    arrays = load(inputs_path)
    run, version, load_ms, base = PEERS[peer](model, arrays, threads)
    start = time.perf_counter()
    n_warm = 0
    while n_warm < WARMUP_RUNS or time.perf_counter() - start < WARMUP_SECONDS:
        outputs = run()
        n_warm += 1
    if out:
        save(out, outputs)
    times = []
    cpu = time.process_time()
    end = time.perf_counter() + seconds
    while len(times) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    cpu = time.process_time() - cpu
    return {
        "version": version,
        "median_ms": statistics.median(times) * 1e3,
        "min_ms": min(times) * 1e3,
        "n_runs": len(times),
        "cpu_ms": cpu * 1e3 / len(times),
        "load_ms": load_ms,
        "base_mb": base,
        "peak_mb": peak_mb(),
    }


def distance(a, b):
    """Relative L2 distance of two float arrays; of integers, the share that differs."""
    if a.shape != b.shape:
        return f"shapes {list(a.shape)} and {list(b.shape)}"
    if a.size == 0:
        return 0.0
    if not (np.issubdtype(a.dtype, np.floating) and np.issubdtype(b.dtype, np.floating)):
        return float(np.mean(a != b))
    a, b = a.astype(np.float64), b.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return "NaN or infinity on one side only"
    finite = np.isfinite(a)
    error, norm = (np.sqrt(np.mean(np.square(x[finite]))) if finite.any() else 0.0 for x in (a - b, b))
    return float(error / max(norm, RMS_FLOOR))


def compare(paths):
    """The worst distance over the outputs for each pair of files; outputs go by name, or by place if names differ."""
    files = [load(path) for path in paths]
    pairs = []
    for a, b in itertools.combinations(files, 2):
        if len(a) != len(b):
            pairs.append(f"{len(a)} and {len(b)} outputs")
            continue
        same_names = set(a) == set(b)
        found = [distance(a[name], b[name] if same_names else other) for name, other in zip(a, b.values())]
        said = [text for text in found if isinstance(text, str)]
        pairs.append(said[0] if said else max(found))
    return {"pairs": pairs}


def main():
    command, *rest = sys.argv[1:]
    if command == "inputs":
        answer = inputs(*rest)
    elif command == "time":
        peer, model, inputs_path, threads, seconds, *out = rest
        answer = measure(peer, model, inputs_path, int(threads), float(seconds), *out)
    elif command == "compare":
        answer = compare(rest)
    else:
        sys.exit(__doc__)
    print(json.dumps(answer))


main()
