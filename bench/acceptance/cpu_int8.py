#!/usr/bin/env python3
"""INT8 against our own FP32 and the INT8 of ONNX Runtime and OpenVINO on the CPU: medians, in turns.

    python3 bench/acceptance/cpu_int8.py --work FOLDER                     the convolutional suite, 1 and 2 threads
    python3 bench/acceptance/cpu_int8.py --isa avx2 --threads 2            as on a machine with AVX2 and no more
    python3 bench/acceptance/cpu_int8.py --peers ort,openvino              the second needs `pip install openvino`
    python3 bench/acceptance/cpu_int8.py --rows resnet50_224 --peers none

Models come from `planish zoo`, with random weights; ranges from eight random inputs. Peers run the model that
`planish quantize` writes with the same ranges; with `--isa avx2` they do not see what the machine has beyond that
(bench/lesser.py). It needs bench/requirements.txt. Asked for with VNNI: 1.2 times FP32 on each row, 1.5 in
geometric mean, 2.3 on ResNet-50, 1.2 times ONNX Runtime, as fast as OpenVINO; with AVX2 alone never slower than FP32.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_common import ROOT, all_good, binary, build_plan, call, figure, geometric_mean, model_file, plan_parser, relative_l2, sizes  # noqa: E402
from gpu_int8 import SEED, calibration  # noqa: E402
import lesser  # noqa: E402
from suite import SUITE  # noqa: E402

ROWS = "resnet18_224,resnet50_224,mobilenet_v2_224,labelfree_unet2d_256"
TURNS = 3
# What is asked for of each peer's time by ours.
PEERS = {"ort": ("ONNX Runtime", 1.2), "openvino": ("OpenVINO", 1.0)}


def arguments():
    parser = plan_parser(__doc__)
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--isa", choices=lesser.HIDDEN, help="hide what the processor has beyond that, from the peers too")
    parser.add_argument("--seconds", default=1.0, type=float, help="of one timing")
    parser.add_argument("--peers", default="ort", help=f"of {', '.join(PEERS)}; none for none")
    return parser.parse_args()


def planish_ms(planish, plan, threads, seconds):
    command = [planish, "bench", plan, "--device", "cpu", "--threads", str(threads), "--duration", f"{seconds}s", "--json"]
    return json.loads(call(command).stdout)["median_ms"]


def peer_ms(peer, model, inputs, threads, seconds, out, more):
    worker = os.path.join(ROOT, "bench", "worker.py")
    command = [sys.executable, worker, "time", peer, model, inputs, str(threads), str(seconds), out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env={**os.environ, **more})
    if done.returncode != 0:
        raise RuntimeError(f"{PEERS[peer][0]}: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])["median_ms"]


def random_input(name):
    """Floats, or ids of words where the model reads these."""
    import numpy
    given, rest = sizes(name, 1).split(":")
    shape = [int(size) for size in rest.split("x")]
    random = numpy.random.default_rng(SEED)
    words = re.search(r"ids\((\d+)\)", SUITE[name])
    return {given: random.integers(0, int(words.group(1)), shape) if words else random.standard_normal(shape).astype("f4")}


def outputs_of(path):
    import numpy
    with numpy.load(path) as file:
        return {key: file[key] for key in file.files}


def distance(got, want):
    return max(relative_l2(got[key], want[key]) for key in want)


def main():
    args = arguments()
    peers = [peer for peer in args.peers.split(",") if peer in PEERS]
    planish = binary(args.planish)
    work = args.work or tempfile.mkdtemp(prefix="planish-int8-")
    os.makedirs(work, exist_ok=True)
    planish_gets, peers_get = lesser.environment(args.isa, work)
    os.environ.update(planish_gets)
    import numpy
    for threads in map(int, args.threads.split(",")):
        ratios = []
        for name in args.rows.split(","):
            row = f"{name}, {threads} threads{', ' + args.isa if args.isa else ''}"
            try:
                ranges = calibration(planish, work, name)
                tag = f"{args.isa or 'cpu'}{threads}"
                more = f"{args.build} --threads {threads}"
                fp32, _ = build_plan(planish, work, name, 1, "fp32", "cpu", more, tag)
                int8, built = build_plan(planish, work, name, 1, "int8", "cpu", f"{more} --calib {ranges}", tag)
                shares = [note for note in built["notes"] if "multiplications" in note]
                print("\n".join(f"{row}: {note}" for note in shares), flush=True)
                inputs = os.path.join(work, f"{name}.inputs.npz")
                numpy.savez(inputs, **random_input(name))
                outs = {}
                for plan in (fp32, int8):
                    outs[plan] = f"{plan}.npz"
                    call([planish, "run", plan, "--device", "cpu", "--inputs", inputs, "-o", outs[plan]])
                off = distance(outputs_of(outs[int8]), outputs_of(outs[fp32]))
                quantized = os.path.join(work, f"{name}_qdq.onnx")
                if peers and not os.path.exists(quantized):
                    call([planish, "quantize", model_file(planish, work, name), "--calib", ranges, "-o", quantized])
                times = {who: [] for who in ["fp32", "int8", *peers]}
                for _ in range(TURNS):
                    times["fp32"].append(planish_ms(planish, fp32, threads, args.seconds))
                    times["int8"].append(planish_ms(planish, int8, threads, args.seconds))
                    for peer in peers:
                        out = f"{quantized}.{peer}.npz"
                        times[peer].append(peer_ms(peer, quantized, inputs, threads, args.seconds, out, peers_get))
                best = {who: min(list) for who, list in times.items()}
                ratios.append(best["fp32"] / best["int8"])
                seen = f"FP32 {best['fp32']:.2f} ms, INT8 {best['int8']:.2f} ms, {ratios[-1]:.2f} x, distance {off:.3f}"
                figure(f"INT8 against FP32, {row}", ">= 1.0 x", seen, ratios[-1] >= 1.0)
                for peer in peers:
                    (title, wanted), ratio = PEERS[peer], best[peer] / best["int8"]
                    apart = distance(outputs_of(outs[int8]), outputs_of(f"{quantized}.{peer}.npz"))
                    seen = f"{title} {best[peer]:.2f} ms, {ratio:.2f} x, distance {apart:.3f}"
                    figure(f"INT8 against {title}'s, {row}", f">= {wanted} x", seen, ratio >= wanted)
            except RuntimeError as error:
                figure(f"INT8, {row}", "a plan", str(error), False)
        if ratios:
            seen = f"{geometric_mean(ratios):.2f} x over {len(ratios)} rows"
            figure(f"INT8 against FP32, {threads} threads, geometric mean", ">= 1.5 x", seen, geometric_mean(ratios) >= 1.5)
    sys.exit(0 if all_good() else 1)


if __name__ == "__main__":
    main()
