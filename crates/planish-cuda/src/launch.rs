//! Launches: a kernel with its grid and arguments, settled when it is prepared but for the addresses.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1, CUlaunchConfig, CUtensorMap,
};
use planish_gpu::args::ArgBytes;
pub use planish_gpu::plan::Slot;
use planish_kernel::{Address, Call, KernelError, KernelErrorKind};

use crate::driver::{Function, Stream, TensorMap};
use crate::error::CudaError;
use crate::family::Work;
use crate::gpu::Gpu;

#[derive(Clone, Debug)]
enum Patch {
    /// The slot's address and so many bytes.
    Address { at: usize, slot: Slot, offset: usize },
    /// The descriptor of the value there.
    Map { at: usize, slot: Slot, offset: usize, map: Box<TensorMap> },
}

/// A tensor map must lie at a multiple of this, the most that anything asks for.
const BLOCK: usize = 128;
/// The driver takes 4 KiB of arguments at most on every architecture.
const MAX_BYTES: usize = 4096;
const MAX_PARAMS: usize = 96;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Block([u8; BLOCK]);

/// A kernel's arguments in order. Values are fixed; addresses and what hangs on them are filled in at launch.
#[derive(Clone, Debug, Default)]
pub struct Params {
    storage: Vec<Block>,
    len: usize,
    /// Where each argument begins.
    starts: Vec<usize>,
    patches: Vec<Patch>,
}

impl Params {
    pub fn new() -> Params {
        Params::default()
    }

    fn place(&mut self, size: usize, align: usize) -> usize {
        let at = self.len.next_multiple_of(align);
        self.len = at + size;
        self.storage.resize(self.len.div_ceil(BLOCK), Block([0; BLOCK]));
        self.starts.push(at);
        at
    }

    /// A number, or a `#[repr(C)]` struct of numbers that is laid out as the kernel's.
    pub fn value<T: Copy + 'static>(mut self, value: T) -> Params {
        let (size, align) = (size_of::<T>(), align_of::<T>());
        let at = self.place(size, align);
        // SAFETY: the storage holds `size` bytes from `at` on, aligned as T asks (blocks are aligned to 128).
        unsafe { self.storage.as_mut_ptr().cast::<u8>().add(at).cast::<T>().write(value) };
        self
    }

    /// A structure that is laid out as the kernel's.
    pub(crate) fn structure(mut self, args: &ArgBytes) -> Params {
        let at = self.place(args.bytes.len(), args.align);
        // SAFETY: the storage holds as many bytes from `at` on, and blocks lie side by side.
        let to = unsafe { self.storage.as_mut_ptr().cast::<u8>().add(at) };
        // SAFETY: as above; the bytes are elsewhere.
        unsafe { to.copy_from_nonoverlapping(args.bytes.as_ptr(), args.bytes.len()) };
        self
    }

    /// The address of an operand or of the workspace, so many bytes on.
    pub fn address(mut self, slot: Slot, offset: usize) -> Params {
        let at = self.place(8, 8);
        self.patches.push(Patch::Address { at, slot, offset });
        self
    }

    pub fn input(self, idx: usize) -> Params {
        self.address(Slot::Input(idx), 0)
    }

    /// The address of an input that may be missing: null then.
    pub fn optional_input(self, idx: Option<usize>) -> Params {
        match idx {
            Some(idx) => self.input(idx),
            None => self.value(0u64),
        }
    }

    pub fn output(self, idx: usize) -> Params {
        self.address(Slot::Output(idx), 0)
    }

    /// Whether the kernel is told where faults go.
    fn may_fault(&self) -> bool {
        let is_fault = |patch: &Patch| matches!(patch, Patch::Address { slot: Slot::Fault, .. });
        self.patches.iter().any(is_fault)
    }

    pub fn workspace(self, offset: usize) -> Params {
        self.address(Slot::Workspace, offset)
    }

    /// A `const __grid_constant__ CUtensorMap` over the value in the slot.
    pub fn tensor_map(mut self, slot: Slot, offset: usize, map: TensorMap) -> Params {
        // As the kernel's type is aligned to 64; 128 satisfies that too, and arguments are found by pointer.
        let at = self.place(128, 128);
        self.patches.push(Patch::Map { at, slot, offset, map: Box::new(map) });
        self
    }
}

/// A kernel, how many blocks of how many threads, and its arguments.
#[derive(Clone, Debug)]
pub struct Launch {
    pub function: Function,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: usize,
    /// Blocks that run together and see each other's shared memory (sm_90 on).
    pub cluster: [u32; 3],
    /// It may begin before the launch in front of it has ended (sm_90 on; elsewhere this says nothing). The kernel
    /// itself calls `wait_for_inputs` before it reads what others wrote, and before it writes at all: what it
    /// writes may lie where a kernel that still runs reads. Every kernel between two others must do so, because
    /// each waits only for the one in front of it.
    pub programmatic: bool,
    pub params: Params,
}

impl Launch {
    pub fn new(function: Function, grid: [u32; 3], block: [u32; 3], params: Params) -> Launch {
        Launch { function, grid, block, shared: 0, cluster: [1, 1, 1], programmatic: false, params }
    }

    /// A grid of one dimension.
    pub fn line(function: Function, blocks: usize, threads: u32, params: Params) -> Launch {
        Launch::new(function, [blocks as u32, 1, 1], [threads, 1, 1], params)
    }

    /// With dynamic shared memory, asked for if it is more than a kernel has without.
    pub fn with_shared(mut self, bytes: usize) -> Result<Launch, CudaError> {
        self.function.allow_shared(bytes)?;
        self.shared = bytes;
        Ok(self)
    }

    pub fn with_cluster(mut self, cluster: [u32; 3]) -> Launch {
        self.cluster = cluster;
        self
    }

    pub fn programmatic(mut self) -> Launch {
        self.programmatic = true;
        self
    }

    /// Puts it on a stream. Allocates nothing.
    ///
    /// # Safety
    /// As [`planish_kernel::Kernel::launch`]; the arguments must be those that the kernel takes, and the
    /// context of the stream must be current.
    pub unsafe fn launch(&self, call: &Call<'_>, stream: &Stream) -> Result<(), KernelError> {
        if self.grid.contains(&0) {
            // Nothing to compute; the driver refuses empty grids.
            return Ok(());
        }
        let api = stream.context().api;
        let Params { storage, len, starts, patches } = &self.params;
        if *len > MAX_BYTES || starts.len() > MAX_PARAMS {
            return Err(KernelError::unsupported("a kernel has more than 4 KiB of arguments"));
        }
        let mut blocks = [const { std::mem::MaybeUninit::<Block>::uninit() }; MAX_BYTES / BLOCK];
        for (to, from) in blocks.iter_mut().zip(storage) {
            to.write(*from);
        }
        let base = blocks.as_mut_ptr().cast::<u8>();
        for patch in patches {
            match patch {
                Patch::Address { at, slot, offset } => {
                    let address = resolve(call, *slot)?.0 + *offset as u64;
                    // SAFETY: `place` made room for 8 aligned bytes there.
                    unsafe { base.add(*at).cast::<u64>().write(address) };
                }
                Patch::Map { at, slot, offset, map } => {
                    let map = map.encode(api, resolve(call, *slot)?.0 + *offset as u64)?;
                    // SAFETY: `place` made room for a descriptor there, aligned.
                    unsafe { base.add(*at).cast::<CUtensorMap>().write(map) };
                }
            }
        }
        let mut pointers = [std::ptr::null_mut::<c_void>(); MAX_PARAMS];
        for (pointer, start) in pointers.iter_mut().zip(starts) {
            // SAFETY: inside of the copied storage.
            *pointer = unsafe { base.add(*start) }.cast();
        }
        let mut attributes = [const { std::mem::MaybeUninit::<CUlaunchAttribute>::zeroed() }; 2];
        let mut n_attributes = 0;
        let mut add = |id, value| {
            attributes[n_attributes].write(CUlaunchAttribute { id, pad: [0; 4], value });
            n_attributes += 1;
        };
        if self.cluster != [1, 1, 1] {
            let [x, y, z] = self.cluster;
            let dims = CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            add(
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                CUlaunchAttributeValue { clusterDim: dims },
            );
        }
        if self.programmatic && stream.context().gpu().sm >= 90 {
            add(
                CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            );
        }
        let config = CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared as u32,
            hStream: stream.raw,
            attrs: attributes.as_mut_ptr().cast(),
            numAttrs: n_attributes as u32,
        };
        // SAFETY: the pointers lead to arguments as the kernel takes them, the addresses are the caller's to
        // grant; the driver copies all of it before it returns.
        let code = unsafe {
            (api.cuLaunchKernelEx)(
                &raw const config,
                self.function.raw,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        api.check(code, "launching a kernel")?;
        Ok(())
    }
}

/// Blocks of a kernel that the GPU runs at once, one a multiprocessor at least.
pub(crate) fn room(gpu: &Gpu, function: &Function, threads: u32, shared: usize) -> Result<usize, CudaError> {
    function.allow_shared(shared)?;
    Ok(gpu.n_sms as usize * function.blocks_per_sm(threads, shared)?.max(1) as usize)
}

fn resolve(call: &Call<'_>, slot: Slot) -> Result<Address, KernelError> {
    let found = match slot {
        Slot::Input(idx) => call.inputs.get(idx).copied(),
        Slot::Output(idx) => call.outputs.get(idx).copied(),
        Slot::Workspace => Some(call.workspace),
        Slot::Fault => Some(call.fault),
    };
    found.ok_or_else(|| KernelError::new(KernelErrorKind::Failed, format!("a launch without its {slot:?}")))
}

/// Launches one after the other: what most families prepare.
#[derive(Debug)]
pub(crate) struct Launches {
    pub(crate) launches: Vec<Launch>,
    pub(crate) workspace: usize,
}

impl Launches {
    pub(crate) fn one(launch: Launch) -> Box<dyn Work> {
        Box::new(Launches { launches: vec![launch], workspace: 0 })
    }
}

impl Work for Launches {
    fn workspace_bytes(&self) -> usize {
        self.workspace
    }

    fn may_fault(&self) -> bool {
        self.launches.iter().any(|launch| launch.params.may_fault())
    }

    fn waits_for_weights(&mut self) {
        self.launches.iter_mut().take(1).for_each(|first| first.programmatic = false);
    }

    unsafe fn launch(&self, call: &Call<'_>, stream: &Stream) -> Result<(), KernelError> {
        for launch in &self.launches {
            // SAFETY: the caller grants what each of them asks for.
            unsafe { launch.launch(call, stream)? };
        }
        Ok(())
    }
}
