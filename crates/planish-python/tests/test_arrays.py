"""What arrays are taken and given: types, layouts, copies counted, what is refused and how."""

import ctypes
import subprocess
import sys

import numpy as np
import planish
import pytest

from conftest import ADD, engine_of

#: Planish's names of the types that numpy has.
TYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool",
}


@pytest.mark.parametrize("ours,numpys", TYPES.items())
def test_every_type_of_numpy_goes_in_and_out(ours, numpys):
    engine = engine_of(f'graph "g" {{ input %x: {ours}[n,2] %y: {ours}[2,n] = Transpose(%x) {{ perm=[1,0] }} output %y }}')
    assert engine.inputs[0].dtype == numpys
    x = np.arange(6).reshape(3, 2).astype(numpys)
    y = engine(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize("shape", [(0, 4), (1, 4), (3, 4), (17, 4)])
def test_plain_arrays_are_not_copied(relu, shape, numbers):
    before = relu.copies
    x = numbers.standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(relu(x), np.maximum(x, 0))
    assert relu.copies == before


def layouts(numbers):
    """Arrays of four columns that lie in memory in other ways."""
    base = numbers.standard_normal((6, 8)).astype(np.float32)
    yield base[:, ::2]
    yield base[::-1, :4]
    yield np.asfortranarray(base[:, :4])
    yield base.reshape(2, 6, 4).transpose(1, 0, 2).reshape(-1)[:32].reshape(4, 8)[:, 4:]
    yield np.broadcast_to(base[0, :4], (5, 4))
    yield np.broadcast_to(np.float32(3), (2, 4))
    unaligned = np.empty(4 * 16 + 1, np.uint8)[1:].view(np.float32).reshape(4, 4)
    unaligned[...] = base[:4, :4]
    yield unaligned


def test_other_layouts_are_copied_and_counted(relu, numbers):
    for x in layouts(numbers):
        before = relu.copies
        np.testing.assert_array_equal(relu(x), np.maximum(x, 0))
        assert relu.copies == before + 1, x.strides


def test_read_only_arrays_scalars_and_lists(add):
    a = np.float32([1, 2])
    a.flags.writeable = False
    before = add.copies
    np.testing.assert_array_equal(add(a, [3, 4]), [4, 6])
    np.testing.assert_array_equal(add((1.5,), [2]), [3.5])
    assert add.copies == before
    scalar = engine_of('graph "g" { input %x: f32[] %y: f32[] = Neg(%x) output %y }')
    assert scalar(2.5) == -2.5 and scalar(np.float32(1)).shape == ()


def test_outputs_are_written_in_place_and_are_the_callers():
    engine = engine_of(ADD)
    c = engine(np.ones(1000, np.float32), np.ones(1000, np.float32))
    assert c.flags.c_contiguous and c.flags.writeable and c.ctypes.data % 64 == 0
    assert engine.copies == 0


def test_an_output_whose_size_only_a_run_can_tell_is_copied():
    engine = engine_of('graph "g" { input %x: f32[n] %y: i64[1,"k\'0"] = NonZero(%x) output %y }')
    np.testing.assert_array_equal(engine(np.float32([0, 3, 0, 5])), [[1, 3]])
    np.testing.assert_array_equal(engine(np.float32([1, 0, 0, 0])), [[0]])
    assert engine.copies == 2


def test_an_input_that_is_an_output_too():
    engine = engine_of('graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y, %x }')
    x = np.float32([-1, 2])
    y, same = engine(x)
    np.testing.assert_array_equal(y, [0, 2])
    np.testing.assert_array_equal(same, [-1, 2])
    x[:] = 7
    np.testing.assert_array_equal(same, [-1, 2])


def test_sequences_are_lists():
    text = """graph "g" {
        input %x: f32[n]
        %y: f32[n] = Neg(%x)
        %s: seq(f32[n]) = SequenceConstruct(%x, %y)
        output %s
    }"""
    engine = engine_of(text)
    (s,) = engine.outputs
    assert s.shape is None and s.dtype.startswith("seq")
    first, second = engine(np.float32([1, 2]))
    np.testing.assert_array_equal(first, [1, 2])
    np.testing.assert_array_equal(second, [-1, -2])


class Lent:
    """An array that is known by DLPack alone."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device


def test_anything_with_dlpack(relu):
    x = np.float32([[1, -2, 3, -4]])
    before = relu.copies
    np.testing.assert_array_equal(relu(Lent(x)), np.maximum(x, 0))
    assert relu.copies == before
    np.testing.assert_array_equal(relu(Lent(np.repeat(x, 2, axis=1)[:, ::2])), np.maximum(x, 0))
    assert relu.copies == before + 1


@pytest.mark.parametrize(
    "given,error,words",
    [
        (np.zeros((1, 4)), "WrongType", "`x` is f64, the model takes f32"),
        (np.zeros((1, 4), ">f4"), "WrongType", "`x` has the other byte order"),
        (np.zeros((1, 4), "U3"), "WrongType", "`x` is of <U3"),
        (np.zeros((1, 5), np.float32), "WrongShape", "x"),
        (np.zeros(4, np.float32), "WrongShape", "x"),
        ("text", "WrongType", "`x` is a str"),
        (None, "WrongType", "`x` is a NoneType"),
        (object(), "WrongType", "`x` is a object"),
        ([[1, 2, 3, 4], [5]], "WrongType", "`x` is a list"),
        (Lent(np.zeros((1, 4), np.float32), device=(2, 1)), "WrongInputs", "`x` is in the memory of GPU 1"),
        (Lent(np.zeros((1, 4), np.float32), device=(8, 0)), "WrongInputs", "`x` is on a device of DLPack's kind 8"),
    ],
)
def test_what_is_refused_names_the_input(relu, given, error, words):
    with pytest.raises(getattr(planish.errors, error)) as raised:
        relu(given)
    assert words in str(raised.value)
    # A context that refused runs on.
    assert relu(np.ones((1, 4), np.float32)).sum() == 4


def test_wrong_inputs(add):
    a = np.float32([1])
    for call, words in [
        (lambda: add(a), "input `b` is missing"),
        (lambda: add(a, a, a), "takes 2 inputs (`a`, `b`), 3 were given"),
        (lambda: add(a, a, b=a), "input `b` was given twice"),
        (lambda: add(a, c=a), "`c` is not an input of the model; its inputs are `a`, `b`"),
        (lambda: add.run({"a": a}), "input `b` is missing"),
    ]:
        with pytest.raises(planish.errors.WrongInputs) as raised:
            call()
        assert words in str(raised.value)
    with pytest.raises(planish.errors.WrongShape):
        add(np.zeros(2, np.float32), np.zeros(3, np.float32))


def test_raw_bytes_of_files_are_what_the_model_takes():
    widened = engine_of('graph "g" { input %x: bf16[n] %y: f32[n] = Cast(%x) {to=f32} output %y }')
    halves = np.array([0x3F80, 0xC000], np.uint16)                            # 1 and -2, as numpy's files keep bfloat16
    np.savez("raw.npz", x=halves.view("V2"))
    np.testing.assert_array_equal(widened(np.load("raw.npz")["x"]), [1, -2])
    assert widened.copies == 0
    planish.Model.parse('graph "g" { input %x: bf16[n] %y: f32[n] = Cast(%x) {to=f32} output %y }').save_onnx("widen.onnx")
    ran = subprocess.run([sys.executable, "-m", "planish", "run", "widen.onnx", "--inputs", "raw.npz", "-o", "out.npz"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_array_equal(np.load("out.npz")["y"], [1, -2])
    small = engine_of('graph "g" { input %x: i4[n] %y: f32[n] = Cast(%x) {to=f32} output %y }')
    np.testing.assert_array_equal(small(np.array([0xFF, 7, 0xF8], np.uint8).view("V1")), [-1, 7, -8])
    with pytest.raises(planish.errors.WrongType, match="input `x` is of .*V4"):
        widened(np.zeros(2, "V4"))
    plain = engine_of('graph "g" { input %x: f16[n] %y: f32[n] = Cast(%x) {to=f32} output %y }')
    with pytest.raises(planish.errors.WrongType, match="input `x` is of .*V2"):
        plain(halves.view("V2"))                                              # numpy has a type of its own for it


def test_tensors_lent_by_dlpack_are_freed_without_the_interpreters_lock(relu):
    """As torch does it, also where Rust called what drops the tensor: here the samples of a calibration."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename = ctypes.pythonapi.PyCapsule_SetName
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    taken = ctypes.c_char_p(b"used_dltensor")

    def samples():
        for _ in range(50):
            base = relu(np.ones((3, 4), np.float32)).base
            memory = base[0] if isinstance(base, tuple) else base
            capsule = memory.__dlpack__()
            managed = pointer_of(capsule, b"dltensor")
            rename(capsule, taken)
            del base, memory, capsule                                               # the tensor is the last that has the memory
            deleter = ctypes.c_void_p.from_address(managed + 56).value        # the last of eight fields of DLManagedTensor
            ctypes.CFUNCTYPE(None, ctypes.c_void_p)(deleter)(managed)         # a foreign function: the lock is let go
            yield {"x": np.ones((3, 4), np.float32)}

    model = planish.Model.parse('graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }')
    assert planish.calibrate(model, samples()) is not None
