//! cuDNN's functions, and the descriptors that its graph interface is made of.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, cudnnBackendDescriptor_t,
    cudnnBackendDescriptorType_t, cudnnHandle_t,
};

use crate::error::{CudaError, CudaErrorKind};
use crate::library::library;

library! {
    /// cuDNN's functions.
    Functions over sys, status sys::cudnnStatus_t {
        fn cudnnCreate(*mut cudnnHandle_t);
        fn cudnnDestroy(cudnnHandle_t);
        fn cudnnSetStream(cudnnHandle_t, sys::cudaStream_t);
        fn cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t, *mut cudnnBackendDescriptor_t);
        fn cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t);
        fn cudnnBackendFinalize(cudnnBackendDescriptor_t);
        fn cudnnBackendSetAttribute(
            cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, i64, *const c_void
        );
        fn cudnnBackendGetAttribute(
            cudnnBackendDescriptor_t, cudnnBackendAttributeName_t, cudnnBackendAttributeType_t, i64, *mut i64,
            *mut c_void
        );
        fn cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t);
    } plain {
        fn cudnnGetLastErrorString(*mut c_char, usize) -> ();
    }
}

impl Functions {
    /// Nothing, or the error behind a status code, with what the library says of it.
    pub(super) fn check(&self, code: u32, what: &str) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut text = [0 as c_char; 512];
        // SAFETY: the library writes at most as many bytes as it is told.
        unsafe { (self.cudnnGetLastErrorString)(text.as_mut_ptr(), text.len()) };
        let said: Vec<u8> = text.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        let said = String::from_utf8_lossy(&said).into_owned();
        // cuDNN 9 groups its codes: 2xxx bad parameters, 3xxx not supported, 4xxx internal, 5xxx execution.
        let kind = match code {
            3000..4000 => CudaErrorKind::Unsupported,
            _ => CudaErrorKind::Failed,
        };
        Err(CudaError::new(kind, format!("{what} by cuDNN failed with code {code}: {}", said.trim())))
    }
}

/// One part of a graph, or what is made from it; destroyed when dropped, with what it was made of kept until then.
#[derive(Debug)]
pub(super) struct Descriptor {
    functions: Arc<Functions>,
    pub(super) raw: cudnnBackendDescriptor_t,
    /// Descriptors that this one refers to.
    parts: Vec<Arc<Descriptor>>,
}

// SAFETY: a descriptor that is finalized is only read.
unsafe impl Send for Descriptor {}
// SAFETY: as above; only `Making`, which is not shared, changes one.
unsafe impl Sync for Descriptor {}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: made in `Making::new`.
        let _ = unsafe { (self.functions.cudnnBackendDestroyDescriptor)(self.raw) };
    }
}

/// A descriptor that is not finished.
#[derive(Debug)]
pub(super) struct Making(Descriptor);

impl Making {
    pub(super) fn new(
        functions: &Arc<Functions>,
        kind: cudnnBackendDescriptorType_t,
    ) -> Result<Making, CudaError> {
        let mut raw: cudnnBackendDescriptor_t = std::ptr::null_mut();
        // SAFETY: writes a descriptor.
        let code = unsafe { (functions.cudnnBackendCreateDescriptor)(kind, &raw mut raw) };
        functions.check(code, "making a descriptor")?;
        Ok(Making(Descriptor { functions: Arc::clone(functions), raw, parts: Vec::new() }))
    }

    /// Sets an attribute to numbers, enums or addresses of the C type that goes with `kind`.
    pub(super) fn set<T: Copy>(
        self,
        name: cudnnBackendAttributeName_t,
        kind: cudnnBackendAttributeType_t,
        values: &[T],
    ) -> Result<Making, CudaError> {
        let functions = &self.0.functions;
        // SAFETY: the list has as many values as are told, of the type that the attribute's kind has.
        let code = unsafe {
            let (count, values) = (values.len() as i64, values.as_ptr().cast());
            (functions.cudnnBackendSetAttribute)(self.0.raw, name, kind, count, values)
        };
        functions.check(code, &format!("setting {name:?}"))?;
        Ok(self)
    }

    /// Whole numbers.
    pub(super) fn integers(
        self,
        name: cudnnBackendAttributeName_t,
        values: &[i64],
    ) -> Result<Making, CudaError> {
        self.set(name, cudnnBackendAttributeType_t::CUDNN_TYPE_INT64, values)
    }

    /// Other descriptors, which stay as long as this one.
    pub(super) fn parts(
        mut self,
        name: cudnnBackendAttributeName_t,
        parts: &[&Arc<Descriptor>],
    ) -> Result<Making, CudaError> {
        let raw: Vec<cudnnBackendDescriptor_t> = parts.iter().map(|part| part.raw).collect();
        self.0.parts.extend(parts.iter().map(|part| Arc::clone(part)));
        self.set(name, cudnnBackendAttributeType_t::CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw)
    }

    pub(super) fn finish(self, what: &str) -> Result<Arc<Descriptor>, CudaError> {
        // SAFETY: the descriptor lives.
        let code = unsafe { (self.0.functions.cudnnBackendFinalize)(self.0.raw) };
        self.0.functions.check(code, what)?;
        Ok(Arc::new(self.0))
    }

    /// As it is, to be filled by [`Descriptor::fill`].
    fn empty(self) -> Arc<Descriptor> {
        Arc::new(self.0)
    }
}

impl Descriptor {
    /// Up to `most` values of an attribute.
    pub(super) fn get<T: Copy>(
        &self,
        name: cudnnBackendAttributeName_t,
        kind: cudnnBackendAttributeType_t,
        most: usize,
        nothing: T,
    ) -> Result<Vec<T>, CudaError> {
        let mut values = vec![nothing; most];
        let mut count = 0i64;
        // SAFETY: the list has room for as many values as are asked for, of the kind's own type.
        let code = unsafe {
            let to = values.as_mut_ptr().cast();
            (self.functions.cudnnBackendGetAttribute)(self.raw, name, kind, most as i64, &raw mut count, to)
        };
        self.functions.check(code, &format!("asking for {name:?}"))?;
        values.truncate(count.max(0) as usize);
        Ok(values)
    }

    pub(super) fn integer(&self, name: cudnnBackendAttributeName_t) -> Result<i64, CudaError> {
        let values = self.get(name, cudnnBackendAttributeType_t::CUDNN_TYPE_INT64, 1, 0i64)?;
        values
            .first()
            .copied()
            .ok_or_else(|| CudaError::new(CudaErrorKind::Failed, format!("cuDNN does not tell {name:?}")))
    }

    /// Up to `most` descriptors of an attribute, which the library fills.
    pub(super) fn fill(
        &self,
        name: cudnnBackendAttributeName_t,
        kind: cudnnBackendDescriptorType_t,
        most: usize,
    ) -> Result<Vec<Arc<Descriptor>>, CudaError> {
        let mut made: Vec<Arc<Descriptor>> = Vec::with_capacity(most);
        for _ in 0..most {
            made.push(Making::new(&self.functions, kind)?.empty());
        }
        let mut raw: Vec<cudnnBackendDescriptor_t> = made.iter().map(|one| one.raw).collect();
        let mut count = 0i64;
        // SAFETY: the list holds `most` descriptors of the kind that the attribute has.
        let code = unsafe {
            (self.functions.cudnnBackendGetAttribute)(
                self.raw,
                name,
                cudnnBackendAttributeType_t::CUDNN_TYPE_BACKEND_DESCRIPTOR,
                most as i64,
                &raw mut count,
                raw.as_mut_ptr().cast(),
            )
        };
        self.functions.check(code, &format!("asking for {name:?}"))?;
        made.truncate(count.max(0) as usize);
        Ok(made)
    }
}
