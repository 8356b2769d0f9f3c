//! What a run is given: its inputs, and the caller's memory for outputs.

use planish_kernel::{Address, MemoryKind};
use planish_op::Value;
use planish_plan::{Program, Storage};
use planish_tensor::Tensor;

use crate::bind::tensor_type;
use crate::device::DeviceView;
use crate::engine::{Core, Unit};
use crate::error::{RunError, RunErrorKind};
use crate::memory::{FrameMemory, Own};
use crate::run::Run;
use crate::view::View;

/// What is fed to one input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Feed<'a> {
    /// Not given yet; no run begins with one.
    Absent,
    View(View<'a>),
    /// In pinned memory that stays as it is until the run is over.
    Pinned(View<'a>),
    Value(&'a Value),
    /// In the memory of the plan's device.
    Device(DeviceView<'a>),
}

impl Feed<'_> {
    pub(crate) fn dims(&self) -> Option<&[usize]> {
        match self {
            Feed::Absent => None,
            Feed::View(view) | Feed::Pinned(view) => Some(view.dims()),
            Feed::Device(view) => Some(view.dims()),
            Feed::Value(value) => value.as_tensor().map(Tensor::shape),
        }
    }
}

/// The caller's memory for one output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) to: Address,
    pub(crate) bytes: usize,
    pub(crate) site: Site,
}

/// Where a caller's memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Site {
    Host,
    /// In host memory that a device's queue may write.
    Pinned,
    Device,
}

impl FrameMemory {
    /// Whether output `idx` can be written to the caller's memory: outputs whose size only a run can tell, that are
    /// another output too, or on a device have memory of their own.
    pub(crate) fn can_bind(core: &Core, unit: &Unit, idx: usize, site: Site) -> bool {
        let value = unit.program.outputs[idx] as usize;
        let record = &unit.program.values[value];
        let direct = matches!(record.storage, Storage::Arena)
            && !unit.outline.own[value]
            && unit.outline.output[value] == Some(idx)
            && core.backends[record.target as usize].memory_kind() == MemoryKind::Host;
        // Device memory is bound where a transfer to the host would write: nothing else can write there.
        direct && (site != Site::Device || unit.outline.transferred[value])
    }

    /// Has output `idx` written to the caller's memory from now on, or not. Gives whether that can be. What the last
    /// run left in or beside the caller's memory can no longer be looked at.
    pub(crate) fn bind(&mut self, core: &Core, unit: &Unit, idx: usize, bound: Option<Bound>) -> bool {
        self.prepare(core, unit);
        let bound = bound.filter(|bound| FrameMemory::can_bind(core, unit, idx, bound.site));
        self.is_gone[idx] |= bound.is_some() || self.bound[idx].is_some();
        self.bound[idx] = bound;
        bound.is_some()
    }

    /// Keeps inputs that are host values (sequences, optionals) where steps find them, and copies tensors that
    /// are not aligned, or on a device and read by the host.
    pub(crate) fn take_inputs(&mut self, run: &mut Run<'_, '_>) -> Result<(), RunError> {
        let Run { core, unit, feeds, .. } = *run;
        for (idx, (&value, feed)) in unit.program.inputs.iter().zip(feeds).enumerate() {
            self.aligned[idx].clear();
            let bytes: &[u8] = match feed {
                Feed::Absent => continue,
                Feed::View(view) | Feed::Pinned(view) => view.bytes(),
                Feed::Value(Value::Tensor(tensor)) => tensor.bytes(),
                Feed::Value(other) => {
                    self.own[value as usize] = Own::Host((*other).clone());
                    continue;
                }
                Feed::Device(_) if !unit.outline.host_read[idx] => continue,
                Feed::Device(view) => {
                    let n_bytes = view.dtype.bytes_of(view.dims);
                    let n_bytes = n_bytes.unwrap_or(0);
                    self.aligned[idx].resize(n_bytes.div_ceil(size_of::<u64>()), 0);
                    // SAFETY: the words were just made, as many as hold the bytes; any bits are words.
                    let bytes = unsafe {
                        std::slice::from_raw_parts_mut(self.aligned[idx].as_mut_ptr().cast::<u8>(), n_bytes)
                    };
                    let queue = run.queues.get(core.device()?);
                    // SAFETY: the caller vouches for the view.
                    unsafe { queue.download(bytes, view.address)? };
                    continue;
                }
            };
            if !bytes.as_ptr().addr().is_multiple_of(size_of::<u64>()) {
                self.aligned[idx].extend(bytes.chunks(size_of::<u64>()).map(|chunk| {
                    let mut word = [0; size_of::<u64>()];
                    word[..chunk.len()].copy_from_slice(chunk);
                    u64::from_ne_bytes(word)
                }));
            }
        }
        Ok(())
    }
}

pub(crate) fn check_types(program: &Program, feeds: &[Feed<'_>]) -> Result<(), RunError> {
    if program.inputs.len() != feeds.len() {
        let message = format!("the model takes {} inputs, {} were given", program.inputs.len(), feeds.len());
        return Err(RunError::new(RunErrorKind::WrongInputs, message));
    }
    for (&value, feed) in program.inputs.iter().zip(feeds) {
        let value = &program.values[value as usize];
        let given = match feed {
            Feed::Absent => None,
            Feed::View(view) | Feed::Pinned(view) => Some(view.dtype()),
            Feed::Value(value) => value.as_tensor().map(Tensor::dtype),
            Feed::Device(view) => Some(view.dtype),
        };
        let wanted = tensor_type(&value.ty).map(|(dtype, _)| dtype);
        if given != wanted {
            let name = |dtype: Option<planish_tensor::DType>| dtype.map_or("no tensor", |dtype| dtype.name());
            let message =
                format!("input `{}` is {}, the model takes {}", value.name, name(given), name(wanted));
            return Err(RunError::new(RunErrorKind::WrongType, message));
        }
    }
    Ok(())
}
