//! `Memory`: an output's memory, lent to numpy by its array interface and to others through DLPack, never copied.

use std::ffi::{c_int, c_void};

use planish::{DType, DeviceBuffer, ErrorKind, HostBuffer, Tensor};
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use crate::borrowed::{Framework, unpacked};
use crate::element_type;
use crate::errors::{OrRaise, wrong};
use crate::protocols::{
    ALIGNED, ArrayInterface, CONTIGUOUS, DL_CPU, DL_CUDA, DLTENSOR, DlDevice, DlManagedTensor, DlTensor,
    DlType, NOT_SWAPPED, WRITEABLE, capsule,
};

/// The memory of one output: what numpy, torch and others make their arrays of, on the host or on a GPU.
#[pyclass(frozen, module = "planish")]
pub(crate) struct Memory {
    dtype: DType,
    dims: Vec<usize>,
    start: *mut u8,
    device: DlDevice,
    _buffer: Owned,
}

/// Whose memory it is; nothing here looks at it again.
#[expect(dead_code, reason = "kept for as long as the memory is lent")]
enum Owned {
    Host(HostBuffer),
    Device(DeviceBuffer),
}

// SAFETY: the memory is the buffer's own and stays where it is; nothing here reads or writes it, and those to whom it is
// lent share it under Python's rules.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(mut buffer: HostBuffer) -> Memory {
        let start = buffer.bytes_mut().as_mut_ptr();
        let (dtype, dims) = (buffer.dtype(), buffer.dims().to_vec());
        let device = DlDevice { kind: DL_CPU, index: 0 };
        Memory { dtype, dims, start, device, _buffer: Owned::Host(buffer) }
    }

    /// In the memory of the GPU of this number.
    pub(crate) fn on_device(buffer: DeviceBuffer, index: i32) -> Memory {
        let (dtype, dims) = (buffer.dtype(), buffer.dims().to_vec());
        let start = std::ptr::with_exposed_provenance_mut(buffer.address() as usize);
        let device = DlDevice { kind: DL_CUDA, index };
        Memory { dtype, dims, start, device, _buffer: Owned::Device(buffer) }
    }

    /// Sizes or strides in C's integers.
    fn dims_as<T: TryFrom<usize>>(&self) -> Vec<T> {
        // No size is beyond `isize`: the memory is there.
        self.dims.iter().filter_map(|&dim| T::try_from(dim).ok()).collect()
    }
}

/// What an `__array_struct__` points at, with what it points at in turn.
struct Lent {
    interface: ArrayInterface,
    dims: Vec<isize>,
    strides: Vec<isize>,
    _owner: Py<Memory>,
}

/// What a DLPack capsule points at, likewise.
#[repr(C)]
struct LentTensor {
    managed: DlManagedTensor,
    dims: Vec<i64>,
    owner: Py<Memory>,
}

#[pymethods]
impl Memory {
    #[getter]
    fn __array_struct__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let memory = slf.get();
        if memory.device.kind != DL_CPU {
            return Err(PyAttributeError::new_err("the memory is a GPU's"));
        }
        let item = element_type::item_bytes(memory.dtype);
        let dims: Vec<isize> = memory.dims_as();
        let mut strides = vec![0; dims.len()];
        let mut next = item as isize;
        for (stride, dim) in strides.iter_mut().zip(&dims).rev() {
            *stride = next;
            next *= dim;
        }
        let interface = ArrayInterface {
            two: 2,
            rank: dims.len() as c_int,
            kind: element_type::kind(memory.dtype) as _,
            item_bytes: item as c_int,
            flags: CONTIGUOUS | ALIGNED | NOT_SWAPPED | WRITEABLE,
            dims: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            data: memory.start.cast(),
            description: std::ptr::null_mut(),
        };
        let mut lent = Box::new(Lent { interface, dims, strides, _owner: slf.clone().unbind() });
        lent.interface.dims = lent.dims.as_mut_ptr();
        lent.interface.strides = lent.strides.as_mut_ptr();
        // SAFETY: the interface is the box's first field in memory order or not, so its own address is taken; the
        // destructor gets the box back from the capsule's context.
        unsafe {
            let lent = Box::into_raw(lent);
            let made = capsule(py, (&raw mut (*lent).interface).cast(), None, drop_lent)?;
            ffi::PyCapsule_SetContext(made.as_ptr(), lent.cast());
            Ok(made)
        }
    }

    /// Version 3, with nothing to wait for: the run is over.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.device.kind != DL_CUDA {
            return Err(PyAttributeError::new_err("the memory is the host's"));
        }
        let interface = PyDict::new(py);
        let (kind, item) = (element_type::kind(self.dtype), element_type::item_bytes(self.dtype));
        let order = if item == 1 { '|' } else { '<' };
        interface.set_item("shape", PyTuple::new(py, &self.dims)?)?;
        interface.set_item("typestr", format!("{order}{}{item}", char::from(kind)))?;
        interface.set_item("data", (self.start.expose_provenance(), false))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("stream", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    #[pyo3(signature = (**_options))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        _options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let memory = slf.get();
        if memory.dtype.is_sub_byte() {
            return Err(PyBufferError::new_err("elements below a byte are not lent through DLPack"));
        }
        let (code, bits) = element_type::to_dlpack(memory.dtype);
        let tensor = DlTensor {
            data: memory.start.cast(),
            device: memory.device,
            rank: memory.dims.len() as i32,
            dtype: DlType { code, bits, lanes: 1 },
            dims: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = DlManagedTensor { tensor, owner: std::ptr::null_mut(), deleter: Some(delete_tensor) };
        let mut lent = Box::new(LentTensor { managed, dims: memory.dims_as(), owner: slf.clone().unbind() });
        lent.managed.tensor.dims = lent.dims.as_mut_ptr();
        let lent = Box::into_raw(lent);
        // SAFETY: the managed tensor is the first field of a C structure, so both have one address; whoever takes the
        // tensor calls its deleter, and the capsule's destructor does where nobody took it.
        unsafe {
            (*lent).managed.owner = lent.cast();
            capsule(py, lent.cast(), Some(DLTENSOR), drop_untaken)
        }
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (self.device.kind, self.device.index)
    }
}

/// Frees a [`Lent`] with its capsule.
unsafe extern "C" fn drop_lent(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this once, with the interpreter's lock, for a capsule of `__array_struct__`.
    unsafe {
        let lent: *mut c_void = ffi::PyCapsule_GetContext(capsule);
        if !lent.is_null() {
            drop(Box::from_raw(lent.cast::<Lent>()));
        }
    }
}

/// Frees a [`LentTensor`]; whoever took it calls this, from any thread, with the interpreter's lock or without.
///
/// The lock is asked for, not inferred: torch lets go of it to free a tensor, also where Rust called the Python that drops
/// it, and then all that we know of the thread says that it is held.
unsafe extern "C" fn delete_tensor(managed: *mut DlManagedTensor) {
    // SAFETY: it is the first field of a `LentTensor` that `__dlpack__` made, and this is called once. `Ensure` may be called
    // with the lock and without, as long as there is an interpreter; after its end the owner is left to the process's end.
    unsafe {
        let lent = *Box::from_raw(managed.cast::<LentTensor>());
        let owner = lent.owner.into_ptr();
        if ffi::Py_IsInitialized() != 0 {
            let state = ffi::PyGILState_Ensure();
            ffi::Py_DECREF(owner);
            ffi::PyGILState_Release(state);
        }
    }
}

/// Frees a tensor that nobody took: the capsule still has its first name then.
unsafe extern "C" fn drop_untaken(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this once for a capsule of `__dlpack__`, which points at a `LentTensor`.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, DLTENSOR.as_ptr()) == 1 {
            delete_tensor(ffi::PyCapsule_GetPointer(capsule, DLTENSOR.as_ptr()).cast());
        }
    }
}

/// Whether outputs of this type can be made for this framework; says what to install where not.
pub(crate) fn check_possible(
    py: Python<'_>,
    dtype: DType,
    output: &str,
    framework: Framework,
) -> PyResult<()> {
    if element_type::is_numpys(dtype) || framework != Framework::Numpy && !dtype.is_sub_byte() {
        return Ok(());
    }
    small_type(py, dtype).map(drop).map_err(|_| {
        let name = element_type::name(dtype);
        let message =
            format!("output `{output}` is {name}, which numpy does not have; pip install ml_dtypes");
        wrong(py, ErrorKind::Lacking, message)
    })
}

/// A type of `ml_dtypes`.
fn small_type(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "ml_dtypes"))?.getattr(element_type::name(dtype))
}

/// Functions of others, looked up once.
static AS_ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static FROM_DLPACK_TORCH: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static FROM_DLPACK_JAX: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// A copy of a tensor as an array of the caller's framework.
pub(crate) fn copy_to_python<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    framework: Framework,
) -> PyResult<Bound<'py, PyAny>> {
    let mut buffer = HostBuffer::zeros(tensor.dtype(), tensor.shape()).or_raise(py)?;
    buffer.bytes_mut().copy_from_slice(tensor.bytes());
    to_python(py, buffer, framework)
}

/// An output as an array of the caller's framework, over its own memory.
pub(crate) fn to_python<'py>(
    py: Python<'py>,
    buffer: HostBuffer,
    framework: Framework,
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = buffer.dtype();
    let buffer = match dtype.is_sub_byte() {
        true => spread(py, &buffer)?,
        false => buffer,
    };
    let memory = Bound::new(py, Memory::new(buffer))?;
    match framework {
        Framework::Torch => FROM_DLPACK_TORCH.import(py, "torch", "from_dlpack")?.call1((memory,)),
        Framework::Jax => FROM_DLPACK_JAX.import(py, "jax.dlpack", "from_dlpack")?.call1((memory,)),
        Framework::Numpy => {
            let array = AS_ARRAY.import(py, "numpy", "asarray")?.call1((memory,))?;
            match element_type::is_numpys(dtype) {
                true => Ok(array),
                false => array.call_method1(intern!(py, "view"), (small_type(py, dtype)?,)),
            }
        }
    }
}

/// Elements below a byte, one a byte, as `ml_dtypes` has them: typed as bytes until numpy is told.
fn spread(py: Python<'_>, packed: &HostBuffer) -> PyResult<HostBuffer> {
    let mut buffer = HostBuffer::zeros(DType::U8, packed.dims()).or_raise(py)?;
    let n = buffer.bytes().len();
    buffer.bytes_mut().copy_from_slice(&unpacked(packed.dtype(), packed.bytes(), n));
    Ok(buffer)
}
