"""Weight streaming on a GPU: a model three times its budget, with and without streaming, against the link.

    python3 bench/acceptance/gpu_streaming.py [--layers 24] [--side 4096] [--planish target/release/planish]
    python3 bench/acceptance/gpu_streaming.py --zoo bert_base_128       # where Python has no onnx

Builds a row of matrix products in FP32, one row of input, or a model of `planish zoo`, and runs `planish bench --json`
without a budget and with a third of the weights' bytes. The link's rate is measured on pinned memory with torch, where
there is one, or given by `--link` in GB/s. Prints the times, the bytes that are streamed, what the link allows for them
and the ratio; the exit code is 1 where it is above 1.2.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import all_good, binary, figure  # noqa: E402

#: What a run may take, in parts of what the link takes for the streamed bytes alone.
ASKED = 1.2


def model(path, layers, side):
    """Writes the row of products; gives the bytes of its weights."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    random = np.random.default_rng(1)
    nodes, weights = [], []
    for at in range(layers):
        weight = (random.standard_normal((side, side)) / side**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{at}"))
        nodes.append(helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"x{at + 1}"]))
    port = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, side])
    graph = helper.make_graph(nodes, "products", [port("x0")], [port(f"x{layers}")], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(made, str(path), save_as_external_data=True, location=path.name + ".data")
    return layers * side * side * 4


def link_rate():
    """GB/s from pinned memory to the GPU: the best of ten copies of 256 MiB."""
    import torch

    host = torch.empty(256 << 20, dtype=torch.uint8, pin_memory=True)
    device = torch.empty_like(host, device="cuda")
    best = 0.0
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        device.copy_(host, non_blocking=True)
        end.record()
        end.synchronize()
        best = max(best, host.numel() / (begin.elapsed_time(end) * 1e-3) / 1e9)
    return best


def find(value, name):
    """The first number of this name anywhere in a result."""
    if isinstance(value, dict):
        if isinstance(value.get(name), (int, float)):
            return value[name]
        value = list(value.values())
    if isinstance(value, list):
        return next((found for found in (find(item, name) for item in value) if found is not None), None)
    return None


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--zoo", help="a model of `planish zoo` instead")
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--link", type=float, help="GB/s of the link; measured with torch if not given")
    args = parser.parse_args()
    rate, planish = args.link or link_rate(), binary(args.planish)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "products.onnx"
        if args.zoo:
            subprocess.run([planish, "zoo", args.zoo, "-o", str(path)], check=True)
            total = path.stat().st_size
        else:
            total = model(path, args.layers, args.side)
        plan = str(path.with_suffix(".plan"))
        subprocess.run([planish, "build", str(path), "-o", plan, "--device", "cuda", "--tune-level", "1"], check=True)
        medians = {}
        for budget in (None, total // 3):
            extra = [] if budget is None else ["--weight-budget", str(budget)]
            command = [planish, "bench", plan, "--device", "cuda", "--json", *extra]
            result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            medians[budget] = 1e3 * (find(result, "median_ms") or 0)
            streamed = find(result, "streamed_bytes") or 0
    allowed = streamed / (rate * 1e9) * 1e6
    resident, away = medians[None], medians[total // 3]
    if not (streamed and resident and away):
        sys.exit("the results of `planish bench --json` lack median_ms or streamed_bytes")
    print(f"weights {total / 1e6:.0f} MB, budget {total / 3e6:.0f} MB, streamed {streamed / 1e6:.0f} MB; link {rate:.1f} GB/s")
    print(f"all resident {resident:.0f} us, streamed {away:.0f} us, the link alone {allowed:.0f} us: ratio {away / allowed:.3f}")
    seen = away / allowed
    figure("a model three times its weight budget, of what the link takes", f"<= {ASKED}", f"{seen:.3f}", seen <= ASKED)
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
