//! The driver's functions and what their status codes mean.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute,
    CUgraph, CUgraphExec, CUgraphNode, CUlaunchConfig, CUmem_advise, CUmemLocation, CUmemPool_attribute,
    CUmemoryPool, CUmodule, CUstream, CUstreamCaptureMode, CUtensorMap, CUtensorMapDataType,
    CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use crate::error::{CudaError, CudaErrorKind};
use crate::find::{self, Which};
use crate::library::library;

library! {
    /// The driver's functions.
    Driver over sys, status sys::CUresult {
        fn cuInit(c_uint);
        fn cuGetErrorName(sys::CUresult, *mut *const c_char);
        fn cuDeviceGetCount(*mut c_int);
        fn cuDeviceGet(*mut CUdevice, c_int);
        fn cuDeviceGetName(*mut c_char, c_int, CUdevice);
        fn cuDeviceGetPCIBusId(*mut c_char, c_int, CUdevice);
        fn cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
        fn cuDeviceTotalMem_v2(*mut usize, CUdevice);
        fn cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
        fn cuDevicePrimaryCtxRelease_v2(CUdevice);
        fn cuCtxSetCurrent(CUcontext);
        fn cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int);
        fn cuStreamDestroy_v2(CUstream);
        fn cuStreamSynchronize(CUstream);
        fn cuStreamQuery(CUstream);
        fn cuStreamWaitEvent(CUstream, CUevent, c_uint);
        fn cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
        fn cuStreamEndCapture(CUstream, *mut CUgraph);
        fn cuEventCreate(*mut CUevent, c_uint);
        fn cuEventDestroy_v2(CUevent);
        fn cuEventRecord(CUevent, CUstream);
        fn cuEventSynchronize(CUevent);
        fn cuEventQuery(CUevent);
        fn cuMemAlloc_v2(*mut CUdeviceptr, usize);
        fn cuMemFree_v2(CUdeviceptr);
        fn cuMemAllocAsync(*mut CUdeviceptr, usize, CUstream);
        fn cuMemFreeAsync(CUdeviceptr, CUstream);
        fn cuMemAllocManaged(*mut CUdeviceptr, usize, c_uint);
        fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        fn cuMemFreeHost(*mut c_void);
        fn cuMemGetInfo_v2(*mut usize, *mut usize);
        fn cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
        fn cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
        fn cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
        fn cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
        fn cuDeviceGetDefaultMemPool(*mut CUmemoryPool, CUdevice);
        fn cuMemPoolGetAttribute(CUmemoryPool, CUmemPool_attribute, *mut c_void);
        fn cuMemPoolSetAttribute(CUmemoryPool, CUmemPool_attribute, *mut c_void);
        fn cuModuleLoadData(*mut CUmodule, *const c_void);
        fn cuModuleUnload(CUmodule);
        fn cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
        fn cuFuncSetAttribute(CUfunction, CUfunction_attribute, c_int);
        fn cuFuncGetAttribute(*mut c_int, CUfunction_attribute, CUfunction);
        fn cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, CUfunction, c_int, usize);
        fn cuLaunchKernelEx(*const CUlaunchConfig, CUfunction, *mut *mut c_void, *mut *mut c_void);
        fn cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
        fn cuGraphLaunch(CUgraphExec, CUstream);
        fn cuGraphUpload(CUgraphExec, CUstream);
        fn cuGraphGetNodes(CUgraph, *mut CUgraphNode, *mut usize);
        fn cuGraphDestroy(CUgraph);
        fn cuGraphExecDestroy(CUgraphExec);
        fn cuTensorMapEncodeTiled(
            *mut CUtensorMap, CUtensorMapDataType, u32, *mut c_void, *const u64, *const u64, *const u32,
            *const u32, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
            CUtensorMapFloatOOBfill
        );
        fn cuTensorMapEncodeIm2col(
            *mut CUtensorMap, CUtensorMapDataType, u32, *mut c_void, *const u64, *const u64, *const c_int,
            *const c_int, u32, u32, *const u32, CUtensorMapInterleave, CUtensorMapSwizzle,
            CUtensorMapL2promotion, CUtensorMapFloatOOBfill
        );
    } plain {} newer {
        // Since 12.8.
        fn cuEventElapsedTime_v2(*mut f32, CUevent, CUevent);
        // Since 12.2.
        fn cuMemAdvise_v2(CUdeviceptr, usize, CUmem_advise, CUmemLocation);
        fn cuMemPrefetchAsync_v2(CUdeviceptr, usize, CUmemLocation, c_uint, CUstream);
    } older {
        fn cuEventElapsedTime(*mut f32, CUevent, CUevent);
        fn cuMemAdvise(CUdeviceptr, usize, CUmem_advise, CUdevice);
        fn cuMemPrefetchAsync(CUdeviceptr, usize, CUdevice, CUstream);
    }
}

/// The driver, loaded and initialized once in the process.
pub(crate) fn driver() -> Result<&'static Driver, CudaError> {
    static DRIVER: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
    let load = || {
        let found = find::find(Which::Driver)?;
        let driver = Driver::of(Which::Driver)?;
        // SAFETY: cuInit may be called at any time; 0 is the only flag.
        match unsafe { (driver.cuInit)(0) } {
            0 => Ok(driver),
            100 => Err(CudaError::new(
                CudaErrorKind::NoDevice,
                format!(
                    "{found} sees no GPU; if there is one, `nvidia-smi` says more (in a container: --gpus all)"
                ),
            )),
            code => Err(CudaError::new(
                CudaErrorKind::NoDriver,
                format!("{found} could not start ({}); `nvidia-smi` says more", driver.code_name(code)),
            )),
        }
    };
    DRIVER.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// Status codes after which the context is unusable: illegal addresses and instructions, a failed assertion of a kernel
/// (710), a leak of tensor memory (721), an error that the driver has no name for (999), and the like.
const LOST: [u32; 18] =
    [46, 101, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999];

/// What a call that the driver lacks in every form answers: CUDA_ERROR_NOT_SUPPORTED.
const NOT_SUPPORTED: u32 = 801;

impl Driver {
    /// Milliseconds between two events, by whichever form the driver has.
    ///
    /// # Safety
    /// Both events live.
    pub(crate) unsafe fn elapsed_ms(&self, ms: &mut f32, start: CUevent, end: CUevent) -> u32 {
        match self.cuEventElapsedTime_v2.or(self.cuEventElapsedTime) {
            // SAFETY: the caller's promise.
            Some(ask) => unsafe { ask(&raw mut *ms, start, end) },
            None => NOT_SUPPORTED,
        }
    }

    /// Keeps managed memory on a device by preference.
    ///
    /// # Safety
    /// The memory is managed, lives and has this length.
    pub(crate) unsafe fn prefer(&self, address: CUdeviceptr, len: usize, here: CUmemLocation) -> u32 {
        let advice = CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
        // SAFETY: the caller's promise; a location on a device has its number.
        unsafe {
            match (self.cuMemAdvise_v2, self.cuMemAdvise) {
                (Some(advise), _) => advise(address, len, advice, here),
                (None, Some(advise)) => advise(address, len, advice, here.id),
                (None, None) => NOT_SUPPORTED,
            }
        }
    }

    /// Brings managed memory to a device.
    ///
    /// # Safety
    /// As [`Driver::prefer`]; the stream lives.
    pub(crate) unsafe fn bring(
        &self,
        address: CUdeviceptr,
        len: usize,
        here: CUmemLocation,
        stream: CUstream,
    ) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            match (self.cuMemPrefetchAsync_v2, self.cuMemPrefetchAsync) {
                (Some(bring), _) => bring(address, len, here, 0, stream),
                (None, Some(bring)) => bring(address, len, here.id, stream),
                (None, None) => NOT_SUPPORTED,
            }
        }
    }

    /// Nothing, or the error behind a status code.
    pub(crate) fn check(&self, code: u32, what: &str) -> Result<(), CudaError> {
        if code == 0 { Ok(()) } else { Err(self.error(code, what)) }
    }

    /// The error behind a status code that is not 0.
    #[cold]
    pub(crate) fn error(&self, code: u32, what: &str) -> CudaError {
        meaning(code, &self.code_name(code), what)
    }

    /// `CUDA_ERROR_…`, as NVIDIA's pages list them.
    pub(crate) fn code_name(&self, code: u32) -> String {
        // SAFETY: the two types have one size; the driver takes any number and refuses those it does not know.
        let ask: unsafe extern "C" fn(u32, *mut *const c_char) -> u32 =
            unsafe { std::mem::transmute(self.cuGetErrorName) };
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the driver writes a pointer to a string that it keeps.
        let known = unsafe { ask(code, &raw mut name) } == 0 && !name.is_null();
        if !known {
            return format!("code {code}");
        }
        // SAFETY: as above, it ends with a null byte.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// What a status code comes to for whoever asked for `what`.
fn meaning(code: u32, name: &str, what: &str) -> CudaError {
    let (kind, message) = match code {
        2 => (
            CudaErrorKind::OutOfMemory,
            format!(
                "{what}: out of device memory ({name}); lower the batch size, the profile's maximum or the number of \
                 contexts"
            ),
        ),
        code if LOST.contains(&code) => (
            CudaErrorKind::LostDevice,
            format!(
                "{what}: the GPU is lost to this process ({name}), and nothing on it can be used until the process is \
                 started again; if that happens again, `nvidia-smi` and the kernel's log (lines with Xid) say more"
            ),
        ),
        209 | 222 => (
            CudaErrorKind::Unsupported,
            format!("{what}: the kernels are not for this GPU and driver ({name}); rebuild the plan here"),
        ),
        801 => (CudaErrorKind::Unsupported, format!("{what}: not supported here ({name})")),
        _ => (CudaErrorKind::Failed, format!("{what} failed: {name}")),
    };
    CudaError::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_errors_that_say_what_to_do() {
        let lost = meaning(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "waiting for a stream");
        assert_eq!(lost.kind(), CudaErrorKind::LostDevice);
        assert_eq!(
            lost.to_string(),
            "waiting for a stream: the GPU is lost to this process (CUDA_ERROR_ILLEGAL_ADDRESS), and nothing on it can \
             be used until the process is started again; if that happens again, `nvidia-smi` and the kernel's log \
             (lines with Xid) say more"
        );
        for code in LOST {
            assert_eq!(meaning(code, "n", "w").kind(), CudaErrorKind::LostDevice, "{code}");
        }
        let short = meaning(2, "CUDA_ERROR_OUT_OF_MEMORY", "instantiating a graph");
        assert_eq!(short.kind(), CudaErrorKind::OutOfMemory);
        assert!(short.to_string().contains("lower the batch size"), "{short}");
        assert_eq!(meaning(209, "n", "w").kind(), CudaErrorKind::Unsupported);
        assert_eq!(meaning(1, "n", "w").to_string(), "w failed: n");
    }

    /// A driver made of C: all that we need and nothing newer, with `more` beside it and without `lacking`.
    fn stub(name: &str, more: &str, lacking: &str) -> Result<Driver, &'static str> {
        let folder = std::env::temp_dir().join(format!("planish-driver-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let needed = Driver::NEEDED.iter().filter(|function| **function != lacking);
        let mut text: String =
            needed.map(|name| format!("unsigned {name}(void) {{ return 0; }}\n")).collect();
        text.push_str(more);
        let (source, file) = (folder.join("stub.c"), folder.join("libcuda.so.1"));
        std::fs::write(&source, text).unwrap();
        let status = std::process::Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-o"])
            .args([&file, &source])
            .status()
            .expect("what links Rust compiles C");
        assert!(status.success());
        // SAFETY: the library was compiled just now and does nothing when it is loaded.
        let library = unsafe { libloading::Library::new(&file) }.unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        Driver::load(Box::leak(Box::new(library)))
    }

    #[test]
    fn drivers_without_the_newer_calls_are_asked_by_the_older_ones() {
        use cudarc::driver::sys::CUmemLocationType;
        let here = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: 3 };
        let nowhere = std::ptr::null_mut();
        // Of 525: events by their first form, managed memory by the device's number.
        let older = "unsigned cuEventElapsedTime(float* ms, void* a, void* b) { *ms = 1.5f; return 0; }\n\
                     unsigned cuMemAdvise(unsigned long long p, unsigned long n, int what, int device) {\n\
                       return p == 256 && n == 8 && device == 3 ? 0 : 1; }\n\
                     unsigned cuMemPrefetchAsync(unsigned long long p, unsigned long n, int device, void* s) {\n\
                       return p == 256 && n == 8 && device == 3 ? 0 : 1; }\n";
        let driver = stub("older", older, "").unwrap();
        let mut ms = 0.0;
        // SAFETY: the functions above read nothing behind these pointers.
        unsafe {
            assert_eq!((driver.elapsed_ms(&mut ms, nowhere, nowhere), ms), (0, 1.5));
            assert_eq!(driver.prefer(256, 8, here), 0);
            assert_eq!(driver.bring(256, 8, here, nowhere.cast()), 0);
        }
        // The newer form is taken where both are there.
        let newer = format!(
            "{older}unsigned cuEventElapsedTime_v2(float* ms, void* a, void* b) {{ *ms = 2.5f; return 0; }}\n"
        );
        let driver = stub("newer", &newer, "").unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { (driver.elapsed_ms(&mut ms, nowhere, nowhere), ms) }, (0, 2.5));
        let neither = stub("neither", "", "").unwrap();
        // SAFETY: as above.
        assert_eq!(unsafe { neither.bring(256, 8, here, nowhere.cast()) }, NOT_SUPPORTED);
        assert_eq!(stub("broken", "", "cuLaunchKernelEx").unwrap_err(), "cuLaunchKernelEx");
    }
}
