//! Modules: compiled kernels on a device, and the functions in them.

use std::ffi::CString;
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};

use super::context::Context;
use super::image;
use crate::error::{CudaError, CudaErrorKind};

/// What a kernel has of shared memory without asking for more.
const SHARED_WITHOUT_ASKING: usize = 48 << 10;

/// Compiled code, loaded; unloaded when the last function of it is gone.
#[derive(Debug)]
pub struct Module {
    pub(crate) context: Arc<Context>,
    raw: CUmodule,
}

// SAFETY: modules may be used from any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads machine code. The code may do anything that a kernel can: whoever calls this trusts where it is from.
    pub fn new(context: &Arc<Context>, cubin: &[u8]) -> Result<Module, CudaError> {
        // The driver reads the length out of the image.
        if let Some(flaw) = image::flaw(cubin) {
            let message = format!("compiled code cannot be loaded: {flaw}; rebuild the plan");
            return Err(CudaError::new(CudaErrorKind::Failed, message));
        }
        context.bind()?;
        let mut raw: CUmodule = std::ptr::null_mut();
        // SAFETY: all that the image's headers name lies inside of it.
        let code = unsafe { (context.api.cuModuleLoadData)(&raw mut raw, cubin.as_ptr().cast()) };
        context.api.check(code, "loading kernels")?;
        Ok(Module { context: Arc::clone(context), raw })
    }

    /// One kernel of it.
    pub fn function(self: &Arc<Module>, name: &str) -> Result<Function, CudaError> {
        self.context.bind()?;
        let text = CString::new(name)
            .map_err(|_| CudaError::new(CudaErrorKind::Failed, "a kernel's name holds a null byte"))?;
        let mut raw: CUfunction = std::ptr::null_mut();
        // SAFETY: the module is loaded, the name ends with a null byte.
        let code = unsafe { (self.context.api.cuModuleGetFunction)(&raw mut raw, self.raw, text.as_ptr()) };
        self.context.api.check(code, &format!("looking for the kernel {name}"))?;
        Ok(Function { module: Arc::clone(self), raw })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Functions hold the module, so nothing uses it any more.
        self.context.unload(self.raw);
    }
}

/// A kernel on a device.
#[derive(Clone, Debug)]
pub struct Function {
    pub(crate) module: Arc<Module>,
    pub(crate) raw: CUfunction,
}

// SAFETY: functions may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    fn set(&self, attribute: CUfunction_attribute, value: i32, what: &str) -> Result<(), CudaError> {
        let context = &self.module.context;
        context.bind()?;
        // SAFETY: the function lives.
        context.api.check(unsafe { (context.api.cuFuncSetAttribute)(self.raw, attribute, value) }, what)
    }

    /// Lets it have this much dynamic shared memory.
    pub fn allow_shared(&self, bytes: usize) -> Result<(), CudaError> {
        if bytes <= SHARED_WITHOUT_ASKING {
            return Ok(());
        }
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        self.set(attribute, bytes as i32, &format!("asking for {bytes} bytes of shared memory"))
    }

    /// Lets it run in clusters of 16 blocks, which not every device has.
    pub fn allow_large_clusters(&self) -> Result<(), CudaError> {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        self.set(attribute, 1, "asking for large clusters")
    }

    /// How many blocks of this kind one multiprocessor holds.
    pub fn blocks_per_sm(&self, threads: u32, shared: usize) -> Result<u32, CudaError> {
        let context = &self.module.context;
        context.bind()?;
        let mut blocks = 0;
        // SAFETY: the function lives.
        let code = unsafe {
            (context.api.cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                &raw mut blocks,
                self.raw,
                threads as i32,
                shared,
            )
        };
        context.api.check(code, "asking for the occupancy")?;
        Ok(blocks.max(0) as u32)
    }

    /// Registers of one thread, and bytes that it spills to memory.
    pub fn registers_and_spills(&self) -> Result<(u32, u32), CudaError> {
        let context = &self.module.context;
        context.bind()?;
        let ask = |attribute| {
            let mut value = 0;
            // SAFETY: the function lives.
            let code = unsafe { (context.api.cuFuncGetAttribute)(&raw mut value, attribute, self.raw) };
            context.api.check(code, "asking about a kernel").map(|()| value.max(0) as u32)
        };
        Ok((
            ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            ask(CUfunction_attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
        ))
    }
}
