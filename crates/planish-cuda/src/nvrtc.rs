//! NVRTC: CUDA C++ to machine code for one architecture, remembered on disk.

use std::ffi::{CString, c_char, c_int};
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcProgram};

use crate::cache::Cache;
use crate::error::{CudaError, CudaErrorKind};
use crate::find::{self, Which};
use crate::gpu::Gpu;
use crate::library::library;
use crate::source::{OPTIONS, Source};

library! {
    /// NVRTC's functions.
    Functions over sys, status sys::nvrtcResult {
        fn nvrtcCreateProgram(
            *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
        );
        fn nvrtcCompileProgram(nvrtcProgram, c_int, *const *const c_char);
        fn nvrtcDestroyProgram(*mut nvrtcProgram);
        fn nvrtcGetCUBINSize(nvrtcProgram, *mut usize);
        fn nvrtcGetCUBIN(nvrtcProgram, *mut c_char);
        fn nvrtcGetProgramLogSize(nvrtcProgram, *mut usize);
        fn nvrtcGetProgramLog(nvrtcProgram, *mut c_char);
        fn nvrtcGetNumSupportedArchs(*mut c_int);
        fn nvrtcGetSupportedArchs(*mut c_int);
    } plain {}
}

/// NVRTC's functions, taken once.
pub(crate) fn functions() -> Result<&'static Functions, CudaError> {
    static FUNCTIONS: OnceLock<Result<Functions, CudaError>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Functions::of(Which::Nvrtc)).as_ref().map_err(Clone::clone)
}

/// The version of NVRTC that compiles here.
pub fn version() -> Result<String, CudaError> {
    Ok(find::find(Which::Nvrtc)?.version.clone())
}

/// Whether it compiles for a GPU's architecture: NVRTC 12.6 knows none that came after Hopper.
pub fn knows(gpu: &Gpu) -> Result<bool, CudaError> {
    static KNOWN: OnceLock<Result<Vec<c_int>, CudaError>> = OnceLock::new();
    let ask = || {
        let nvrtc = functions()?;
        let mut count: c_int = 0;
        // SAFETY: NVRTC writes one number.
        let code = unsafe { (nvrtc.nvrtcGetNumSupportedArchs)(&raw mut count) };
        let mut list = vec![0; usize::try_from(count).unwrap_or(0)];
        if code == 0 && !list.is_empty() {
            // SAFETY: the list has as many places as NVRTC asked for.
            let code = unsafe { (nvrtc.nvrtcGetSupportedArchs)(list.as_mut_ptr()) };
            if code == 0 {
                return Ok(list);
            }
        }
        Err(CudaError::new(CudaErrorKind::Compile, "NVRTC does not say what it compiles for"))
    };
    let known = KNOWN.get_or_init(ask).as_ref().map_err(Clone::clone)?;
    Ok(known.contains(&(gpu.sm as c_int)))
}

/// The machine code of a source, from the user's cache if it was compiled before by this version of NVRTC.
pub fn compile_cached(source: &Source, gpu: &Gpu) -> Result<Vec<u8>, CudaError> {
    compile_through(Cache::of_user().as_ref(), source, gpu)
}

pub(crate) fn compile_through(
    cache: Option<&Cache>,
    source: &Source,
    gpu: &Gpu,
) -> Result<Vec<u8>, CudaError> {
    let Some(cache) = cache else {
        return compile(source, gpu);
    };
    let key = blake3::hash(format!("{} {}", source.key(gpu), version()?).as_bytes()).to_hex();
    if let Some(code) = cache.get(&key) {
        return Ok(code);
    }
    let code = compile(source, gpu)?;
    cache.put(&key, &code);
    Ok(code)
}

/// Compiles a source for a GPU's architecture; the error holds the compiler's log.
pub fn compile(source: &Source, gpu: &Gpu) -> Result<Vec<u8>, CudaError> {
    let nvrtc = functions()?;
    if !knows(gpu)? {
        let message = format!(
            "NVRTC {} does not know {} ({}); a newer one does: pip install 'nvidia-cuda-nvrtc==13.0.*' (driver 580), or \
             'nvidia-cuda-nvrtc-cu12>=12.8' for older drivers",
            version()?,
            gpu.architecture(),
            gpu.name
        );
        return Err(CudaError::new(CudaErrorKind::Compile, message));
    }
    let failed = |what: &str, code: u32| {
        CudaError::new(
            CudaErrorKind::Compile,
            format!("{}: {what} failed with NVRTC's code {code}", source.file),
        )
    };
    let with_null = |text: String| {
        CString::new(text).map_err(|_| CudaError::new(CudaErrorKind::Compile, "a source holds a null byte"))
    };
    let text = with_null(source.full_text())?;
    let name = with_null(source.file.to_string())?;
    let mut options = vec![with_null(format!("--gpu-architecture={}", gpu.architecture()))?];
    for option in OPTIONS {
        options.push(with_null(option.to_string())?);
    }
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = Program { nvrtc, raw: std::ptr::null_mut() };
    // SAFETY: the strings live through the call and end with a null byte; there are no headers.
    let code = unsafe {
        (nvrtc.nvrtcCreateProgram)(
            &raw mut program.raw,
            text.as_ptr(),
            name.as_ptr(),
            0,
            std::ptr::null(),
            std::ptr::null(),
        )
    };
    if code != 0 {
        return Err(failed("making a program", code));
    }
    // SAFETY: the program was made above; the options live through the call.
    let code =
        unsafe { (nvrtc.nvrtcCompileProgram)(program.raw, pointers.len() as c_int, pointers.as_ptr()) };
    if code != 0 {
        let message =
            format!("{} for {} does not compile:\n{}", source.file, gpu.architecture(), program.log());
        return Err(CudaError::new(CudaErrorKind::Compile, message));
    }
    let mut size = 0usize;
    // SAFETY: the program was compiled.
    let code = unsafe { (nvrtc.nvrtcGetCUBINSize)(program.raw, &raw mut size) };
    if code != 0 || size == 0 {
        return Err(failed("asking for the code's size", code));
    }
    let mut cubin = vec![0u8; size];
    // SAFETY: the buffer has the size that NVRTC asked for.
    let code = unsafe { (nvrtc.nvrtcGetCUBIN)(program.raw, cubin.as_mut_ptr().cast()) };
    match code {
        0 => Ok(cubin),
        code => Err(failed("taking the code", code)),
    }
}

/// An NVRTC program; destroyed when dropped.
struct Program {
    nvrtc: &'static Functions,
    raw: nvrtcProgram,
}

impl Program {
    fn log(&self) -> String {
        let mut size = 0usize;
        // SAFETY: the program lives.
        let code = unsafe { (self.nvrtc.nvrtcGetProgramLogSize)(self.raw, &raw mut size) };
        if code != 0 || size == 0 {
            return String::new();
        }
        let mut log = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC asked for.
        let code = unsafe { (self.nvrtc.nvrtcGetProgramLog)(self.raw, log.as_mut_ptr().cast()) };
        if code != 0 {
            return String::new();
        }
        String::from_utf8_lossy(&log).trim_end_matches('\0').to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: it was made by NVRTC and is destroyed once.
            let _ = unsafe { (self.nvrtc.nvrtcDestroyProgram)(&raw mut self.raw) };
        }
    }
}
