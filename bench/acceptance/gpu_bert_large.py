#!/usr/bin/env python3
"""BERT-large in FP8 with padding removed: sequences a second over lengths as of SQuAD's questions, on one NVIDIA GPU.

    python3 bench/acceptance/gpu_bert_large.py --work FOLDER
    python3 bench/acceptance/gpu_bert_large.py --low fp16 --lengths 128,384

Weights are random; ranges come from four random texts on the CPU. Padding is removed by sorting: sequences go into batches of
the same bucket, and a bucket's plan has its own length, so what is left of padding is that up to the bucket's end. Lengths are
drawn from a log-normal distribution with median 160 (sigma 0.45) and cut at 32 and 384: a stand-in for SQuAD v1.1's,
whose texts are not here. Throughput is that of plans on the device alone, sorted batches one after another.
"""

import argparse
import json
import os
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import all_good, binary, call, figure  # noqa: E402

HIDDEN, HEADS, INNER, LAYERS, WORDS, PLACES = 1024, 16, 4096, 24, 30522, 512
MLPERF = 9160


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work")
    parser.add_argument("--planish")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--low", default="fp8", choices=["fp8", "fp16"])
    parser.add_argument("--lengths", default="128,192,256,384", help="the ends of the buckets")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--build", default="--no-verify", metavar="ARGS")
    return parser.parse_args()


def model(path):
    """The encoder with its embedding, as ONNX, for any batch and length."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    random = numpy.random.default_rng(7)
    nodes, constants = [], []

    def constant(name, array):
        constants.append(numpy_helper.from_array(array, name))
        return name

    def weight(name, *shape, spread):
        return constant(name, (random.standard_normal(shape, dtype=numpy.float32) * spread))

    def op(kind, inputs, name, **attributes):
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def linear(x, name, n_in, n_out):
        product = op("MatMul", [x, weight(f"{name}.weight", n_in, n_out, spread=n_in**-0.5)], f"{name}.product")
        return op("Add", [product, weight(f"{name}.bias", n_out, spread=0.02)], name)

    def norm(x, name):
        scale = constant(f"{name}.scale", numpy.ones(HIDDEN, numpy.float32))
        return op("LayerNormalization", [x, scale, weight(f"{name}.bias", HIDDEN, spread=0.02)], name, axis=-1, epsilon=1e-12)

    def heads(x, name):
        apart = op("Reshape", [x, "heads"], f"{name}.apart")
        return op("Transpose", [apart], f"{name}.turned", perm=[0, 2, 1, 3])

    constant("heads", numpy.array([0, 0, HEADS, HIDDEN // HEADS]))
    constant("together", numpy.array([0, 0, HIDDEN]))
    constant("root", numpy.array((HIDDEN // HEADS) ** 0.5, numpy.float32))
    half, root2, one = (constant(name, numpy.array(value, numpy.float32)) for name, value in [("half", 0.5), ("root2", 2**0.5), ("one", 1.0)])
    constant("first", numpy.array([0])), constant("axis", numpy.array([0]))
    nodes.append(helper.make_node("Shape", ["ids"], ["length"], name="length", start=1, end=2))
    op("Slice", [weight("places", PLACES, HIDDEN, spread=0.5), "first", "length", "axis"], "places.cut")
    op("Gather", [weight("words", WORDS, HIDDEN, spread=1.0), "ids"], "words.gather")
    x = norm(op("Add", ["words.gather", "places.cut"], "embedding"), "norm")
    for at in range(LAYERS):
        layer = f"layer{at}"
        q, k, v = (heads(linear(x, f"{layer}.{name}", HIDDEN, HIDDEN), f"{layer}.{name}") for name in "qkv")
        k = op("Transpose", [k], f"{layer}.k.back", perm=[0, 1, 3, 2])
        scores = op("Div", [op("MatMul", [q, k], f"{layer}.scores"), "root"], f"{layer}.scaled")
        mixed = op("MatMul", [op("Softmax", [scores], f"{layer}.weights", axis=-1), v], f"{layer}.mixed")
        mixed = op("Reshape", [op("Transpose", [mixed], f"{layer}.mixed.turned", perm=[0, 2, 1, 3]), "together"], f"{layer}.attention")
        x = norm(op("Add", [x, linear(mixed, f"{layer}.out", HIDDEN, HIDDEN)], f"{layer}.add1"), f"{layer}.norm1")
        inner = linear(x, f"{layer}.inner", HIDDEN, INNER)
        erf = op("Add", [op("Erf", [op("Div", [inner, root2], f"{layer}.z")], f"{layer}.erf"), one], f"{layer}.erf1")
        gelu = op("Mul", [op("Mul", [inner, erf], f"{layer}.m"), half], f"{layer}.gelu")
        x = norm(op("Add", [x, linear(gelu, f"{layer}.outer", INNER, HIDDEN)], f"{layer}.add2"), f"{layer}.norm2")
    out = linear(x, "spans", HIDDEN, 2)
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])
    result = helper.make_tensor_value_info(out, TensorProto.FLOAT, ["batch", "seq", 2])
    graph = helper.make_graph(nodes, "bert_large", [ids], [result], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def main():
    args = arguments()
    planish = binary(args.planish)
    work = args.work or tempfile.mkdtemp(prefix="planish-bert-")
    os.makedirs(work, exist_ok=True)
    path, ranges, samples = (os.path.join(work, name) for name in ("bert_large.onnx", "bert_large.calib", "texts.npy"))
    if not os.path.exists(path):
        model(path)
    random = numpy.random.default_rng(3)
    more = []
    if args.low == "fp8":
        if not os.path.exists(ranges):
            numpy.save(samples, random.integers(0, WORDS, [4, 128]))
            call([planish, "calibrate", path, "--data", samples, "--calibrator", "minmax", "--device", "cpu", "-o", ranges])
        more = ["--calib", ranges]
    ends = sorted(int(end) for end in args.lengths.split(","))
    lengths = numpy.clip(numpy.exp(numpy.log(160) + 0.45 * random.standard_normal(10000)).astype(int), 32, ends[-1])
    bucket = numpy.searchsorted(ends, lengths)
    seconds, n = 0.0, 0
    for place, end in enumerate(ends):
        plan = os.path.join(work, f"bert_large.{args.low}.{end}.plan")
        call([planish, "build", path, "--device", args.device, "--precision", args.low, "--shapes", f"ids:{args.batch}x{end}", "-o", plan, *args.build.split(), *more], 900)
        said = json.loads(call([planish, "bench", plan, "--device", args.device, "--duration", "0.5s", "--json", "--no-transfers", "--spin"]).stdout)
        ms = min(said[key] for key in ("compute_ms", "median_ms") if said.get(key))
        here = int((bucket == place).sum())
        print(f"length {end}: {ms:.3f} ms for {args.batch}, {args.batch / ms * 1e3:.0f} a second; {here / 100:.1f} % of the sequences", flush=True)
        seconds += here / args.batch * ms / 1e3
        n += here
    seen = f"{n / seconds:.0f} sequences a second, mean length {lengths.mean():.0f}, {ends} as buckets"
    figure(f"{args.low} BERT-large, sorted by length", f"reported beside MLPerf's {MLPERF}", seen, True)
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
