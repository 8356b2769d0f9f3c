//! The C structures by which arrays are exchanged: numpy's array interface, and DLPack.
//!
//! Both are documented and stable: <https://numpy.org/doc/stable/reference/arrays.interface.html>,
//! <https://dmlc.github.io/dlpack/latest/>.

use std::ffi::{CStr, c_char, c_int, c_void};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// What `__array_struct__` points at.
#[repr(C)]
pub(crate) struct ArrayInterface {
    /// 2, so that what is something else is found.
    pub(crate) two: c_int,
    pub(crate) rank: c_int,
    pub(crate) kind: c_char,
    pub(crate) item_bytes: c_int,
    pub(crate) flags: c_int,
    pub(crate) dims: *mut isize,
    /// In bytes.
    pub(crate) strides: *mut isize,
    pub(crate) data: *mut c_void,
    pub(crate) description: *mut ffi::PyObject,
}

/// Flags of [`ArrayInterface`].
pub(crate) const CONTIGUOUS: c_int = 0x1;
pub(crate) const ALIGNED: c_int = 0x100;
pub(crate) const NOT_SWAPPED: c_int = 0x200;
pub(crate) const WRITEABLE: c_int = 0x400;

/// Devices, as DLPack numbers them.
pub(crate) const DL_CPU: i32 = 1;
pub(crate) const DL_CUDA: i32 = 2;
/// Host memory that CUDA pinned.
pub(crate) const DL_CUDA_HOST: i32 = 3;

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DlDevice {
    pub(crate) kind: i32,
    pub(crate) index: i32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct DlType {
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
}

#[repr(C)]
pub(crate) struct DlTensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: DlDevice,
    pub(crate) rank: i32,
    pub(crate) dtype: DlType,
    pub(crate) dims: *mut i64,
    /// In elements; null for a plain tensor.
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

#[repr(C)]
pub(crate) struct DlManagedTensor {
    pub(crate) tensor: DlTensor,
    pub(crate) owner: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// The name of a capsule whose tensor nobody has taken yet.
pub(crate) const DLTENSOR: &CStr = c"dltensor";

/// What a capsule of this name points at.
pub(crate) fn pointer_in<T>(capsule: &Bound<'_, PyAny>, name: Option<&CStr>) -> PyResult<*const T> {
    let name = name.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the object is alive; what is no capsule, or one of another name, is an exception.
    let pointer = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name) };
    if pointer.is_null() {
        let error = PyErr::take(capsule.py());
        return Err(error.unwrap_or_else(|| PyBufferError::new_err("an array gave an empty capsule")));
    }
    Ok(pointer.cast())
}

/// A capsule of this name over a pointer, which the destructor frees.
///
/// # Safety
/// The pointer must be what the destructor expects; it is the capsule's from now on, also where making it fails.
pub(crate) unsafe fn capsule<'py>(
    py: Python<'py>,
    pointer: *mut c_void,
    name: Option<&'static CStr>,
    destructor: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Bound<'py, PyAny>> {
    let name = name.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the name lives for ever, and the caller vouches for the rest; a null result is an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name, Some(destructor))) }
}
