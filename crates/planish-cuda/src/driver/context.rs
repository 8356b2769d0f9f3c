//! A device's primary context, shared with every library in the process that uses the device.

use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUevent, CUevent_flags, CUmemLocation, CUmemLocationType,
    CUmemPool_attribute, CUmodule, CUstream, CUstream_flags,
};

use super::api::{Driver, driver};
use crate::error::{CudaError, CudaErrorKind};
use crate::gpu::Gpu;

/// A device in use. Released when the last of what was made in it is dropped.
#[derive(Debug)]
pub struct Context {
    pub(crate) api: &'static Driver,
    pub(crate) raw: CUcontext,
    device: CUdevice,
    index: usize,
    gpu: Gpu,
    /// Where memory is taken and freed in order; `None` where the device has no memory pools.
    pub(crate) pool: Option<Pool>,
    streams: Mutex<Streams>,
}

/// The two streams of the memory pool. Taking never waits for what is freed, so they are apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    pub(crate) taking: CUstream,
    freeing: CUstream,
}

/// The streams in use, after which memory is freed.
#[derive(Debug, Default)]
struct Streams {
    open: Vec<CUstream>,
    /// How many of them record a graph, during which they cannot be waited for.
    n_capturing: usize,
    /// Memory to free when none of them captures any more.
    deferred: Vec<u64>,
    /// Modules to unload then.
    modules: Vec<Unused>,
}

/// A module that nobody uses any more.
#[derive(Debug)]
struct Unused(CUmodule);

// SAFETY: modules may be used from any thread.
unsafe impl Send for Unused {}

// SAFETY: a context may be made current in any number of threads.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// How many devices there are.
pub fn count() -> Result<usize, CudaError> {
    let api = driver()?;
    let mut count = 0;
    // SAFETY: the driver is initialized.
    api.check(unsafe { (api.cuDeviceGetCount)(&raw mut count) }, "counting GPUs")?;
    Ok(count.max(0) as usize)
}

impl Context {
    /// The primary context of `cuda:index`.
    pub fn open(index: usize) -> Result<Arc<Context>, CudaError> {
        let api = driver()?;
        let n_devices = count()?;
        if index >= n_devices {
            let message = match n_devices {
                0 => "there is no GPU that CUDA can use".to_string(),
                n => absent(index, &(0..n).map(|idx| name_of(api, idx)).collect::<Vec<_>>()),
            };
            return Err(CudaError::new(CudaErrorKind::NoDevice, message));
        }
        let mut device: CUdevice = 0;
        // SAFETY: the index was checked.
        api.check(unsafe { (api.cuDeviceGet)(&raw mut device, index as i32) }, "opening a GPU")?;
        let gpu = describe(api, device)?;
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: the device exists; the context is released in `drop`.
        api.check(unsafe { (api.cuDevicePrimaryCtxRetain)(&raw mut raw, device) }, "making a context")?;
        let pools = attribute(api, device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?;
        let mut context = Context { api, raw, device, index, gpu, pool: None, streams: Mutex::default() };
        context.bind()?;
        if pools != 0 {
            context.keep_freed_memory()?;
            context.pool = Some(Pool { taking: context.make_stream()?, freeing: context.make_stream()? });
        }
        Ok(Arc::new(context))
    }

    /// Which GPU of this process it is.
    pub(crate) fn device_number(&self) -> usize {
        self.index
    }

    /// A stream that does not wait for the default one.
    pub(crate) fn make_stream(&self) -> Result<CUstream, CudaError> {
        self.bind()?;
        let mut raw: CUstream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current.
        let code = unsafe { (self.api.cuStreamCreateWithPriority)(&raw mut raw, flags, 0) };
        self.api.check(code, "making a stream")?;
        Ok(raw)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // What the lock guards is a list that is never left half changed.
        self.streams.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// From here on memory is freed after this stream's work.
    pub(crate) fn enter_stream(&self, stream: CUstream) {
        self.streams().open.push(stream);
    }

    pub(crate) fn leave_stream(&self, stream: CUstream) {
        self.streams().open.retain(|open| *open != stream);
    }

    /// A graph is being captured from here to [`Context::end_capture`].
    pub(crate) fn begin_capture(&self) {
        self.streams().n_capturing += 1;
    }

    pub(crate) fn end_capture(&self) {
        let mut streams = self.streams();
        streams.n_capturing -= 1;
        if streams.n_capturing == 0 {
            let deferred = std::mem::take(&mut streams.deferred);
            for address in deferred {
                self.free_behind(&streams, address);
            }
            for Unused(module) in std::mem::take(&mut streams.modules) {
                self.unload_now(module);
            }
        }
    }

    /// Unloads a module that nothing uses any more, once no graph is being captured: unloading may wait for the
    /// device, which a stream that captures does not allow.
    pub(crate) fn unload(&self, module: CUmodule) {
        let mut streams = self.streams();
        if streams.n_capturing > 0 {
            streams.modules.push(Unused(module));
        } else {
            self.unload_now(module);
        }
    }

    /// A failure leaves the module loaded, which is all that can be done about it.
    fn unload_now(&self, module: CUmodule) {
        if self.bind().is_ok() {
            // SAFETY: the module is loaded in this context, and whoever had it is gone.
            let _ = unsafe { (self.api.cuModuleUnload)(module) };
        }
    }

    /// Frees memory of the pool after everything that is on this process's streams now, without waiting.
    pub(crate) fn free_pooled(&self, address: u64) {
        let mut streams = self.streams();
        if streams.n_capturing > 0 {
            streams.deferred.push(address);
        } else {
            self.free_behind(&streams, address);
        }
    }

    /// Failures here leave the memory taken, which is all that can be done about them.
    fn free_behind(&self, streams: &Streams, address: u64) {
        let (Some(pool), Ok(())) = (self.pool, self.bind()) else {
            return;
        };
        let mut event: CUevent = std::ptr::null_mut();
        // SAFETY: the context is current.
        let made = unsafe {
            (self.api.cuEventCreate)(&raw mut event, CUevent_flags::CU_EVENT_DISABLE_TIMING as u32)
        };
        if made != 0 {
            return;
        }
        let mut ordered = true;
        for stream in &streams.open {
            // SAFETY: streams leave the list before they are destroyed, under the lock that is held; an event
            // may be captured again once a wait for it was put on a stream.
            let codes = unsafe {
                [
                    (self.api.cuEventRecord)(event, *stream),
                    (self.api.cuStreamWaitEvent)(pool.freeing, event, 0),
                ]
            };
            ordered &= codes == [0, 0];
        }
        // SAFETY: the event was made above. The memory is taken from the pool, freed once, and after all work.
        unsafe {
            (self.api.cuEventDestroy_v2)(event);
            if ordered {
                (self.api.cuMemFreeAsync)(address, pool.freeing);
            }
        }
    }

    /// Bytes of device memory that the pool has, in use or not.
    pub(crate) fn pooled_bytes(&self) -> Result<usize, CudaError> {
        if self.pool.is_none() {
            return Ok(0);
        }
        let mut pool = std::ptr::null_mut();
        // SAFETY: the device is open.
        let code = unsafe { (self.api.cuDeviceGetDefaultMemPool)(&raw mut pool, self.device) };
        self.api.check(code, "asking for the memory pool")?;
        let mut bytes = 0u64;
        let which = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT;
        // SAFETY: this attribute is a 64-bit number.
        let code = unsafe { (self.api.cuMemPoolGetAttribute)(pool, which, (&raw mut bytes).cast()) };
        self.api.check(code, "asking the memory pool")?;
        Ok(bytes as usize)
    }

    /// Memory that is freed stays in the pool for the next to ask, instead of going back at every
    /// synchronization: taking and freeing again costs microseconds instead of milliseconds.
    fn keep_freed_memory(&self) -> Result<(), CudaError> {
        let mut pool = std::ptr::null_mut();
        // SAFETY: the device is open.
        let code = unsafe { (self.api.cuDeviceGetDefaultMemPool)(&raw mut pool, self.device) };
        self.api.check(code, "asking for the memory pool")?;
        let mut threshold = u64::MAX;
        // SAFETY: this attribute is a 64-bit number.
        let code = unsafe {
            (self.api.cuMemPoolSetAttribute)(
                pool,
                CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut threshold).cast(),
            )
        };
        self.api.check(code, "setting the memory pool")
    }

    /// Makes it the context that this thread's calls go to.
    pub fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context lives as long as this value.
        self.api.check(unsafe { (self.api.cuCtxSetCurrent)(self.raw) }, "taking up the context")
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// N of `cuda:N`.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether managed memory may be used by the device while the CPU runs.
    pub(crate) fn has_managed_memory(&self) -> Result<bool, CudaError> {
        let which = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
        Ok(attribute(self.api, self.device, which)? != 0)
    }

    /// The device as a place for managed memory.
    pub(crate) fn location(&self) -> CUmemLocation {
        CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device }
    }

    /// Free and total bytes of device memory.
    pub fn memory_info(&self) -> Result<(usize, usize), CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the context is current.
        let code = unsafe { (self.api.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.api.check(code, "asking for free memory")?;
        Ok((free, total))
    }

    /// The device's place on the bus, by which NVML knows it.
    pub fn pci_bus_id(&self) -> Result<String, CudaError> {
        let mut text = [0 as c_char; 32];
        // SAFETY: the driver writes at most as many bytes as it is told.
        let code =
            unsafe { (self.api.cuDeviceGetPCIBusId)(text.as_mut_ptr(), text.len() as i32, self.device) };
        self.api.check(code, "asking for the bus id")?;
        Ok(string_of(&text))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let (Some(pool), Ok(())) = (self.pool, self.bind()) {
            // SAFETY: made in `open`; what is on them goes on to its end.
            unsafe {
                (self.api.cuStreamDestroy_v2)(pool.taking);
                (self.api.cuStreamDestroy_v2)(pool.freeing);
            }
        }
        // SAFETY: retained once in `open`.
        let _ = unsafe { (self.api.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// A string that the driver wrote.
fn string_of(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().map(|byte| *byte as u8).collect();
    CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

fn attribute(api: &Driver, device: CUdevice, which: CUdevice_attribute) -> Result<i32, CudaError> {
    let mut value = 0;
    // SAFETY: the device exists.
    let code = unsafe { (api.cuDeviceGetAttribute)(&raw mut value, which, device) };
    api.check(code, "asking about the GPU")?;
    Ok(value)
}

/// The clock and the bandwidth of a device that does not tell them.
const USUAL_CLOCK_HZ: f64 = 1.7e9;
const USUAL_BANDWIDTH: f64 = 1e12;

/// Says which GPUs there are instead of the one that was asked for.
fn absent(index: usize, names: &[String]) -> String {
    let listed: Vec<String> =
        names.iter().enumerate().map(|(idx, name)| format!("cuda:{idx} ({name})")).collect();
    format!("there is no cuda:{index}; this machine has {}", listed.join(", "))
}

/// The name of a GPU by its number; an empty one where the driver does not tell.
fn name_of(api: &Driver, index: usize) -> String {
    let mut device: CUdevice = 0;
    let mut name = [0 as c_char; 128];
    // SAFETY: the driver refuses numbers of no GPU, and writes at most as many bytes as it is told.
    let told = unsafe {
        (api.cuDeviceGet)(&raw mut device, index as i32) == 0
            && (api.cuDeviceGetName)(name.as_mut_ptr(), name.len() as i32, device) == 0
    };
    if told { string_of(&name) } else { String::new() }
}

fn describe(api: &Driver, device: CUdevice) -> Result<Gpu, CudaError> {
    use CUdevice_attribute as A;
    let ask = |which| attribute(api, device, which);
    let mut name = [0 as c_char; 128];
    // SAFETY: the driver writes at most as many bytes as it is told.
    let code = unsafe { (api.cuDeviceGetName)(name.as_mut_ptr(), name.len() as i32, device) };
    api.check(code, "asking for the GPU's name")?;
    let mut memory_bytes = 0;
    // SAFETY: the device exists.
    api.check(unsafe { (api.cuDeviceTotalMem_v2)(&raw mut memory_bytes, device) }, "asking for the memory")?;
    let major = ask(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = ask(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    // Not every driver tells these of every device; they only weigh prices against each other.
    let told = |which| ask(which).ok().filter(|value| *value > 0).map(f64::from);
    let clock_hz = told(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE).map_or(USUAL_CLOCK_HZ, |khz| khz * 1e3);
    let memory_khz = told(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    let bus_bits = told(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    // Two transfers a clock.
    let bandwidth =
        memory_khz.zip(bus_bits).map_or(USUAL_BANDWIDTH, |(khz, bits)| 2.0 * khz * 1e3 * bits / 8.0);
    Ok(Gpu {
        name: string_of(&name),
        sm: (major * 10 + minor) as u32,
        n_sms: ask(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        smem_per_block: ask(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize,
        smem_per_sm: ask(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR)? as usize,
        l2_bytes: ask(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? as usize,
        memory_bytes,
        clock_hz,
        bandwidth,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_is_not_there_is_told_with_those_that_are() {
        let names = ["NVIDIA H200".to_string(), "NVIDIA L4".to_string()];
        assert_eq!(
            absent(99, &names),
            "there is no cuda:99; this machine has cuda:0 (NVIDIA H200), cuda:1 (NVIDIA L4)"
        );
    }
}
