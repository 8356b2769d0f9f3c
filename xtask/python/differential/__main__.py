"""Writes seeded random cases with ONNX Runtime's answers: one file an operator.

usage: python -m differential OUT SEED CASES [OPERATOR...]

A file is a sequence of records; a record is a count of blobs (u32, little-endian), then per blob its length
(u32) and bytes: the description, the model, the number of graph inputs (one byte), the inputs and the
outputs as TensorProto messages. An output that is not compared is an empty blob.
"""

import importlib
import os
import struct
import sys
import zlib

from onnx import numpy_helper

from .draw import Draw

FAMILIES = ["pointwise", "layout", "linear", "reduce", "quantize", "media", "contrib"]
# A generator may draw cases that ONNX Runtime has no kernel for; so many tries per wanted case are made.
TRIES = 4


def generators():
    merged = {}
    for family in FAMILIES:
        merged.update(importlib.import_module(f".{family}", __package__).GENERATORS)
    return merged


def record(case, result):
    model, inputs, outputs = result
    blobs = [case.describe().encode(), model, bytes([len(inputs)])]
    blobs += [numpy_helper.from_array(array).SerializeToString() for array in inputs]
    for idx, array in enumerate(outputs):
        skipped = idx in case.skip_outputs
        blobs.append(b"" if skipped else numpy_helper.from_array(array).SerializeToString())
    return struct.pack("<I", len(blobs)) + b"".join(struct.pack("<I", len(blob)) + blob for blob in blobs)


def main():
    out, seed, n_cases = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    wanted = set(sys.argv[4:])
    os.makedirs(out, exist_ok=True)
    for name, generate in generators().items():
        if wanted and name not in wanted:
            continue
        records = []
        for attempt in range(n_cases * TRIES):
            if len(records) == n_cases:
                break
            draw = Draw([seed, zlib.crc32(name.encode()), attempt])
            case = generate(draw)
            result = case.run(constant_parameters=case.always_constant or draw.chance(0.5))
            if result is not None:
                records.append(record(case, result))
        with open(os.path.join(out, f"{name}.partial"), "wb") as file:
            file.write(b"".join(records))
        os.replace(os.path.join(out, f"{name}.partial"), os.path.join(out, f"{name}.cases"))
        print(f"{name}\t{len(records)}", flush=True)


main()
