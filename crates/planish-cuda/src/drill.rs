//! Faults on purpose, for `cargo xtask faults`: an allocation that fails, a device that is lost. Nothing else calls this,
//! and nothing from outside of the process can.

use std::sync::atomic::{AtomicU64, Ordering};

use planish_kernel::{Address, Call, KernelError, Wait};

use crate::backend::Cuda;
use crate::driver::{Module, Stream};
use crate::launch::{Launch, Params};
use crate::nvrtc;
use crate::source::Source;

/// Allocations so far, of device, managed and pinned memory.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The one that is to fail; 0 for none.
static FAILS: AtomicU64 = AtomicU64::new(0);

/// What the driver answers where memory has run out.
const OUT_OF_MEMORY: u32 = 2;

/// The driver's answer to an allocation that is to be made now, where it is to fail without being asked.
pub(crate) fn refusal() -> Option<u32> {
    let own = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    (FAILS.load(Ordering::Relaxed) == own).then_some(OUT_OF_MEMORY)
}

/// How many allocations this process has made.
pub fn n_allocations() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Has the `n`-th allocation from now on fail, counted from 1, as if memory had run out; 0 for none.
pub fn fail_allocation(n: u64) {
    let at = if n == 0 { 0 } else { n_allocations() + n };
    FAILS.store(at, Ordering::Relaxed);
}

/// Launches a kernel that ends in a trap, which loses the device for this process; gives what the driver says to it.
pub fn lose_device(cuda: &Cuda) -> Result<(), KernelError> {
    let source =
        Source::new("drill.cu", "extern \"C\" __global__ void trapped() { asm(\"trap;\"); }\n", "trapped");
    let context = cuda.context()?;
    let module = std::sync::Arc::new(Module::new(context, &nvrtc::compile(&source, cuda.gpu())?)?);
    let launch = Launch::line(module.function("trapped")?, 1, 1, Params::new());
    let stream = Stream::new(context)?;
    context.bind()?;
    let call = Call { inputs: &[], outputs: &[], workspace: Address::NULL, fault: Address::NULL };
    // SAFETY: the kernel takes no arguments and touches no memory; the context is current.
    unsafe { launch.launch(&call, &stream)? };
    Ok(stream.synchronize(Wait::Block)?)
}
