//! The memory that a context is given, and runs on it.

use std::sync::Arc;

use planish::{Context, DType, DeviceTarget, DeviceView, Error, ErrorKind, View};

use crate::engine::Opened;
use crate::ports::Port;

/// Inputs up to which a run keeps its list of them on the stack.
const MAX_STACK_INPUTS: usize = 16;

/// Of memory that kernels write in place.
const ALIGNMENT: usize = 64;

/// Where an input or an output is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Nowhere,
    Host { data: *mut u8, bytes: usize },
    Device { address: u64, bytes: usize },
}

/// What a context knows of an input or an output.
#[derive(Debug)]
struct Slot {
    /// Of inputs, where they are known.
    dims: Option<Vec<usize>>,
    place: Place,
    /// Of outputs: whether runs write there themselves.
    is_in_place: bool,
}

/// A context, and what it is bound to.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) opened: Arc<Opened>,
    pub(crate) context: Context,
    slots: Vec<Slot>,
}

fn refuse<T>(kind: ErrorKind, message: String) -> Result<T, Error> {
    Err(Error::new(kind, message))
}

/// The elements of an input.
fn view<'a>(port: &Port, slot: &'a Slot) -> Result<View<'a>, Error> {
    let (dtype, dims, n_bytes) = asked(port, slot)?;
    let Place::Host { data, bytes } = slot.place else {
        return refuse(ErrorKind::WrongInputs, format!("{} is not bound to memory", port.what()));
    };
    check_room(port, dims, n_bytes, bytes)?;
    let bytes = match n_bytes {
        0 => &[][..],
        // SAFETY: whoever bound the memory vouches for it, and it has as many bytes.
        _ => unsafe { std::slice::from_raw_parts(data.cast_const(), n_bytes) },
    };
    View::from_bytes(dtype, dims, bytes)
}

/// The type, the sizes and the bytes of an input.
fn asked<'a>(port: &Port, slot: &'a Slot) -> Result<(DType, &'a [usize], usize), Error> {
    let Some(dtype) = port.dtype else {
        return refuse(ErrorKind::WrongType, format!("{} is not a tensor; C has tensors alone", port.what()));
    };
    let Some(dims) = &slot.dims else {
        let message = format!("the sizes of {} are open; call planish_context_set_shape first", port.what());
        return refuse(ErrorKind::WrongShape, message);
    };
    match dtype.bytes_of(dims) {
        Some(n_bytes) => Ok((dtype, dims, n_bytes)),
        None => {
            let message = format!("{} of sizes {dims:?} is larger than any memory", port.what());
            refuse(ErrorKind::OutOfMemory, message)
        }
    }
}

fn check_room(port: &Port, dims: &[usize], needs: usize, has: usize) -> Result<(), Error> {
    if needs <= has {
        return Ok(());
    }
    let what = port.what();
    refuse(
        ErrorKind::WrongShape,
        format!("{what} of sizes {dims:?} has {needs} bytes, the memory that it is bound to {has}"),
    )
}

impl Bound {
    pub(crate) fn new(opened: Arc<Opened>, context: Context) -> Bound {
        let slot = |port: &Port| {
            let sizes = port.dims.as_ref().filter(|_| port.is_input);
            let dims = sizes.and_then(|dims| dims.iter().map(|&size| usize::try_from(size).ok()).collect());
            Slot { dims, place: Place::Nowhere, is_in_place: false }
        };
        let slots = opened.ports.all.iter().map(slot).collect();
        Bound { opened, context, slots }
    }

    /// The sizes of an input, where they are known.
    pub(crate) fn input_dims(&self, index: usize) -> Option<&[usize]> {
        self.slots.get(index)?.dims.as_deref()
    }

    pub(crate) fn set_dims(&mut self, index: usize, dims: Vec<usize>) -> Result<(), Error> {
        let port = self.opened.ports.at(index)?;
        if !port.is_input {
            let message = format!("{} has the sizes that follow from the inputs'", port.what());
            return refuse(ErrorKind::WrongShape, message);
        }
        if let Some(known) = &port.dims {
            let fits = known.len() == dims.len()
                && known.iter().zip(&dims).all(|(&known, &given)| known < 0 || known == given as i64);
            if !fits {
                let message = format!("{} takes {known:?} (-1 is any), not {dims:?}", port.what());
                return refuse(ErrorKind::WrongShape, message);
            }
        }
        self.slots[index].dims = Some(dims);
        Ok(())
    }

    /// # Safety
    /// The memory stays valid, and nobody else's while the context runs, until it is bound elsewhere.
    pub(crate) unsafe fn bind(&mut self, index: usize, place: Place) -> Result<(), Error> {
        let port = self.opened.ports.at(index)?;
        if port.dtype.is_none() {
            let message = format!("{} is not a tensor; C has tensors alone", port.what());
            return refuse(ErrorKind::WrongType, message);
        }
        match place {
            Place::Device { .. } if !self.opened.is_on_gpu => {
                let message = format!("{} is on the CPU; bind it to host memory", port.what());
                return refuse(ErrorKind::WrongInputs, message);
            }
            Place::Host { data, bytes } if data.is_null() && bytes > 0 => {
                return refuse(ErrorKind::WrongInputs, format!("{} is bound to NULL", port.what()));
            }
            _ => {}
        }
        if self.slots[index].place == place {
            return Ok(());
        }
        let (is_input, name) = (port.is_input, port.name.clone());
        let was_in_place = std::mem::take(&mut self.slots[index].is_in_place);
        self.slots[index].place = place;
        if is_input {
            return Ok(());
        }
        if was_in_place {
            // Only all of them can be unbound.
            self.context.unbind_outputs();
            for other in self.opened.ports.n_inputs..self.slots.len() {
                if other != index && self.slots[other].is_in_place {
                    let name = self.opened.ports.all[other].name.clone();
                    // SAFETY: the caller's promise of when it was bound.
                    self.slots[other].is_in_place = unsafe { self.write_to(&name, self.slots[other].place) };
                }
            }
        }
        // SAFETY: the caller's promise.
        self.slots[index].is_in_place = unsafe { self.write_to(&name, place) };
        Ok(())
    }

    /// Has runs write an output in place. Gives whether they can; else it is copied after each.
    ///
    /// # Safety
    /// As for [`Bound::bind`].
    unsafe fn write_to(&mut self, name: &str, place: Place) -> bool {
        let Place::Host { data, bytes } = place else { return false };
        // SAFETY: the caller's promise; the alignment was looked at.
        data.addr().is_multiple_of(ALIGNMENT)
            && !data.is_null()
            && unsafe { self.context.bind_output(name, data, bytes) }.is_ok()
    }

    pub(crate) fn is_on_device(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.place, Place::Device { .. }))
    }

    /// Views of all inputs in host memory.
    fn with_views<T>(
        &mut self,
        work: impl FnOnce(&mut Context, &[View<'_>]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Bound { opened, context, slots } = self;
        let inputs = opened.ports.inputs().iter().zip(&*slots);
        if opened.ports.n_inputs > MAX_STACK_INPUTS {
            let views = inputs.map(|(port, slot)| view(port, slot)).collect::<Result<Vec<_>, _>>()?;
            return work(context, &views);
        }
        let mut views = [View::from_bytes(DType::U8, &[0], &[])?; MAX_STACK_INPUTS];
        for (own, (port, slot)) in views.iter_mut().zip(inputs) {
            *own = view(port, slot)?;
        }
        work(context, &views[..opened.ports.n_inputs])
    }

    /// Runs on host memory and waits.
    pub(crate) fn run_host(&mut self) -> Result<(), Error> {
        self.with_views(Context::run_in_order)?;
        self.copy_outputs()
    }

    /// Runs on host memory, by name, to be timed.
    pub(crate) fn profile_host(&mut self) -> Result<planish::Profiled, Error> {
        let opened = self.opened.clone();
        let profiled = self.with_views(|context, views| {
            let names = opened.ports.inputs().iter().map(|port| port.name.as_str());
            let named: Vec<(&str, View<'_>)> = names.zip(views.iter().copied()).collect();
            context.profile(&named)
        })?;
        self.copy_outputs()?;
        Ok(profiled)
    }

    /// Copies the outputs that runs could not write in place.
    fn copy_outputs(&mut self) -> Result<(), Error> {
        let n_inputs = self.opened.ports.n_inputs;
        for (idx, slot) in self.slots[n_inputs..].iter().enumerate() {
            let Place::Host { data, bytes } = slot.place else { continue };
            if slot.is_in_place {
                continue;
            }
            let port = &self.opened.ports.all[n_inputs + idx];
            let Some(made) = self.context.output(idx) else {
                return refuse(ErrorKind::Failed, format!("{} was not made", port.what()));
            };
            check_room(port, made.dims(), made.bytes().len(), bytes)?;
            if !made.bytes().is_empty() {
                // SAFETY: the caller's memory has as many bytes, and is no memory of the context's.
                unsafe { std::ptr::copy_nonoverlapping(made.bytes().as_ptr(), data, made.bytes().len()) };
            }
        }
        Ok(())
    }

    /// Runs on device memory: on a stream, where one is given, and returns at once.
    ///
    /// # Safety
    /// As for [`Context::run_device`], for all that is bound.
    pub(crate) unsafe fn run_device(&mut self, stream: Option<u64>) -> Result<(), Error> {
        let Bound { opened, context, slots } = self;
        let (ports, n_inputs) = (&opened.ports, opened.ports.n_inputs);
        let mut inputs = Vec::with_capacity(n_inputs);
        for (port, slot) in ports.inputs().iter().zip(&*slots) {
            let (dtype, dims, n_bytes) = asked(port, slot)?;
            let Place::Device { address, bytes } = slot.place else {
                let message = format!("{} is not bound to device memory, other tensors are", port.what());
                return refuse(ErrorKind::WrongInputs, message);
            };
            check_room(port, dims, n_bytes, bytes)?;
            // SAFETY: the caller's promise; the memory has the bytes of the sizes.
            inputs.push((port.name.as_str(), unsafe { DeviceView::from_raw(dtype, dims, address) }));
        }
        let mut outputs = Vec::with_capacity(slots.len() - n_inputs);
        for (port, slot) in ports.all[n_inputs..].iter().zip(&slots[n_inputs..]) {
            match slot.place {
                Place::Nowhere => {}
                Place::Device { address, bytes } => {
                    // SAFETY: the caller's promise.
                    outputs.push((port.name.as_str(), unsafe { DeviceTarget::from_raw(address, bytes) }));
                }
                Place::Host { .. } => {
                    let message = format!("{} is bound to host memory, other tensors are not", port.what());
                    return refuse(ErrorKind::WrongInputs, message);
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { context.run_device(&inputs, &outputs, stream) }
    }

    /// The sizes of all outputs, where they follow from those of the inputs; `None` while those are open.
    pub(crate) fn output_dims(&self) -> Result<Option<Vec<Option<Vec<usize>>>>, Error> {
        let inputs = self.opened.ports.inputs().iter().zip(&self.slots);
        let named: Option<Vec<(&str, &[usize])>> =
            inputs.map(|(port, slot)| Some((port.name.as_str(), slot.dims.as_deref()?))).collect();
        named.map(|named| self.context.output_dims(&named)).transpose()
    }
}
