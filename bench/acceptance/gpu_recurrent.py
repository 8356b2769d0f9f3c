#!/usr/bin/env python3
"""Recurrent layers on a GPU: our plans against cuDNN, which PyTorch calls.

    python3 bench/acceptance/gpu_recurrent.py [--planish target/release/planish] [--precision fp32|fp16]

Weights are PyTorch's own, so that the outputs can be compared; both run from CUDA graphs on tensors of the device.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import all_good, binary, figure  # noqa: E402

# What these layers may take, in parts of cuDNN's time: of the others it is reported.
ASKED = {("lstm", 100, 1, 256, 256, 2): 1.2, ("gru", 100, 1, 256, 256, 2): 1.2}
# Cell, steps, batch, elements, hidden units, layers.
LAYERS = [
    ("lstm", 100, 1, 256, 256, 2),
    ("gru", 100, 1, 256, 256, 2),
    ("lstm", 100, 16, 256, 256, 2),
    ("lstm", 50, 1, 128, 512, 1),
    ("gru", 200, 4, 80, 128, 1),
]
# Where ONNX's gates (iofc, zrh) stand among PyTorch's (ifgo, rzn).
GATES = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}
TIMES = 50


def write_onnx(path, module, cell, steps, batch, size, hidden, layers):
    nodes, constants, source = [], [numpy_helper.from_array(np.array([1], np.int64), "one")], "x"
    for layer in range(layers):

        def ordered(name):
            parts = np.split(getattr(module, f"{name}_l{layer}").detach().cpu().float().numpy(), len(GATES[cell]))
            return np.concatenate([parts[gate] for gate in GATES[cell]])

        bias = np.concatenate([ordered("bias_ih"), ordered("bias_hh")])[None]
        for name, value in [("w", ordered("weight_ih")[None]), ("r", ordered("weight_hh")[None]), ("b", bias)]:
            constants.append(numpy_helper.from_array(value, f"{name}{layer}"))
        more = {"linear_before_reset": 1} if cell == "gru" else {}
        inputs = [source, f"w{layer}", f"r{layer}", f"b{layer}"]
        nodes.append(helper.make_node(cell.upper(), inputs, [f"all{layer}"], hidden_size=hidden, **more))
        source = "y" if layer + 1 == layers else f"y{layer}"
        nodes.append(helper.make_node("Squeeze", [f"all{layer}", "one"], [source]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, size])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, batch, hidden])
    graph = helper.make_graph(nodes, cell, [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def cudnn_us(module, x):
    """The median of a captured run."""
    for _ in range(3):
        module(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        module(x)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(TIMES):
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return float(np.median(times))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--planish", help="the planish binary")
    parser.add_argument("--precision", choices=["fp32", "fp16"], default="fp32")
    args = parser.parse_args()
    planish = binary(args.planish)
    folder = Path(tempfile.mkdtemp(prefix="planish-recurrent-"))
    print(f"{'cell, steps, batch, elements, hidden, layers':46s} {'ours us':>9s} {'cuDNN us':>9s} {'x':>6s} {'max err':>9s}")
    for cell, steps, batch, size, hidden, layers in LAYERS:
        torch.manual_seed(0)
        module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](size, hidden, layers).cuda()
        model, plan = folder / "model.onnx", folder / "model.plan"
        write_onnx(model, module, cell, steps, batch, size, hidden, layers)
        x = torch.randn(steps, batch, size)
        want = module(x.cuda())[0].detach().cpu().numpy()
        np.savez(folder / "x.npz", x=x.numpy())
        dtype = torch.half if args.precision == "fp16" else torch.float
        theirs = cudnn_us(module.to(dtype), x.cuda().to(dtype))
        build = [planish, "build", model, "-o", plan, "--device", "cuda", "--precision", args.precision]
        subprocess.run(build, check=True, capture_output=True)
        bench = [planish, "bench", plan, "--duration", "1s", "--json"]
        report = json.loads(subprocess.run(bench, check=True, capture_output=True, text=True).stdout)
        ours = report["compute_ms"] * 1e3
        run = [planish, "run", plan, "--inputs", folder / "x.npz", "-o", folder / "y.npz"]
        subprocess.run(run, check=True, capture_output=True)
        error = float(np.abs(np.load(folder / "y.npz")["y"] - want).max())
        name = f"{cell}, {steps}, {batch}, {size}, {hidden}, {layers}"
        print(f"{name:46s} {ours:9.1f} {theirs:9.1f} {theirs / ours:6.2f} {error:9.1e}", flush=True)
        asked, seen = ASKED.get((cell, steps, batch, size, hidden, layers)), ours / theirs
        shown = f"<= {asked} of cuDNN's time" if asked else "reported beside cuDNN's time"
        figure(f"{name} in {args.precision}", shown, f"{seen:.2f} ({ours:.0f} us)", asked is None or seen <= asked)
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
