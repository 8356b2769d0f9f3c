//! Lists of items in batches: gathered into the inputs of one run, and its outputs split again.
//!
//! What is left over at the end of a list runs as a smaller batch where the plan takes one. Where it does not (a fixed
//! batch, or a profile that begins above), the batch is filled up to the smallest size that the plan takes by repeating
//! the last item, and what comes of the repetitions is dropped.

use std::collections::VecDeque;

use planish_op::TensorType;
use planish_runtime::{Bindings, HostBuffer, Pipeline, View};

use super::{Item, NamedTensors, Session, item};
use crate::{Error, ErrorKind};

/// What [`Session::batch_inference`] made, and what it took. That has an example.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Batched {
    /// The results, one for each item, in the order of the items.
    pub results: Vec<NamedTensors>,
    /// Batches that went to the device and back, each as one copy of every input and output; on the CPU, runs.
    pub transfers: usize,
    /// Places that were filled with repetitions of a last item because the plan takes no smaller batch.
    pub n_filled: usize,
}

/// The buffers of a batch, for inputs of these sizes.
#[derive(Debug)]
pub(super) struct Buffers {
    dims: Vec<Vec<usize>>,
    bindings: Bindings,
}

/// Writes an input of an item, both by their numbers, to its place in a batch.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(usize, usize, &mut [u8]) -> Result<(), Error>;

/// Is given the outputs of an item, by its number, without the batch axis.
pub(crate) type Take<'a> = &'a mut dyn FnMut(usize, &[View<'_>]) -> Result<(), Error>;

/// What a list took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) transfers: usize,
    pub(crate) n_filled: usize,
}

/// One run: some items of the list, and the size of the batch that they go into.
#[derive(Clone, Debug)]
struct Run {
    n_items: usize,
    size: usize,
    dims: Vec<Vec<usize>>,
}

/// The form that all items of a list have.
struct Form {
    /// For each input its sizes in one item, without the batch axis.
    sizes: Vec<Vec<usize>>,
    /// Whether items come with a batch axis of 1, and results are to have it.
    has_batch_axis: bool,
}

impl Session {
    /// Runs the model on a list of items, as many at a time as [`Session::batch_size`] says, and gives a result for
    /// each. [`Session`] has an example.
    pub fn infer_all<I: Item>(&mut self, items: &[I]) -> Result<Vec<NamedTensors>, Error> {
        Ok(self.batch_inference(items, self.batch_size())?.results)
    }

    /// The batch that the plan was tuned for: the first axis of its first input.
    pub fn batch_size(&self) -> usize {
        let first = self.engine.inputs().into_iter().next();
        let dims = first.and_then(|port| self.tuned_dims(&port).ok());
        dims.and_then(|dims| dims.first().copied()).unwrap_or(1).max(1)
    }

    /// Runs the model on a list of items, `batch_size` at a time, and counts what went to the device. An item has the
    /// sizes of the inputs without their first axis, or with a 1 there, and its results have the same form. On a GPU,
    /// items are gathered and results split while another batch computes.
    ///
    /// A remainder runs as a smaller batch, or filled up where the plan takes none: `n_filled` counts the places.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use planish::{Builder, DType, Device, Engine, NetworkBuilder, Session, Tensor};
    ///
    /// # let session = |sizes: &str| -> Result<Session, planish::Error> {
    /// #     let mut net = NetworkBuilder::new("squares");
    /// #     let x = net.input("x", DType::F32, sizes)?;
    /// #     let y = net.mul(x, x)?;
    /// #     net.output("y", y)?;
    /// #     let plan = Builder::from_network(net)?.tune_level(0).threads(1).build()?;
    /// #     Session::new(&Engine::new(plan, Device::Auto)?)
    /// # };
    /// let items: Vec<Tensor> = (0..100).map(|idx| Tensor::vector(vec![idx as f32; 3])).collect();
    /// let mut open = session("batch,3")?;
    /// let batched = open.batch_inference(&items, 32)?;                     // 32 + 32 + 32 + 4
    /// assert_eq!((batched.transfers, batched.n_filled), (4, 0));
    /// assert_eq!(batched.results[99].get("y"), Some(&Tensor::vector(vec![9801f32; 3])));
    ///
    /// let mut fixed = session("32,3")?;
    /// let filled = fixed.batch_inference(&items, 32)?;                     // the last batch has 28 places too many
    /// assert_eq!((filled.transfers, filled.n_filled), (4, 28));
    /// assert_eq!(filled.results, batched.results);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn batch_inference<I: Item>(&mut self, items: &[I], batch_size: usize) -> Result<Batched, Error> {
        if batch_size == 0 {
            return Err(Error::new(ErrorKind::BadOption, "a batch of 0 items runs nothing; give 1 or more"));
        }
        let mut results = Vec::with_capacity(items.len());
        if items.is_empty() {
            return Ok(Batched { results, transfers: 0, n_filled: 0 });
        }
        let form = self.form_of(items)?;
        let (input_names, output_names) = (self.input_names.clone(), self.output_names.clone());
        let mut fill = |at: usize, input: usize, place: &mut [u8]| {
            let one = items[at].input(&input_names[input]).filter(|view| view.bytes().len() == place.len());
            let one = one.ok_or_else(|| Error::internal("an item changed while it was read"))?;
            place.copy_from_slice(one.bytes());
            Ok(())
        };
        let mut take = |_: usize, outputs: &[View<'_>]| {
            let tensor = |view: &View<'_>| {
                let dims =
                    if form.has_batch_axis { [&[1], view.dims()].concat() } else { view.dims().to_vec() };
                Ok(View::from_bytes(view.dtype(), &dims, view.bytes())?.to_tensor())
            };
            let tensors = outputs.iter().map(tensor).collect::<Result<_, Error>>()?;
            results.push(NamedTensors::new(output_names.clone(), tensors));
            Ok(())
        };
        let counts = self.in_batches(&form.sizes, items.len(), batch_size, &mut fill, &mut take)?;
        Ok(Batched { results, transfers: counts.transfers, n_filled: counts.n_filled })
    }

    /// Runs the model on `n_items` items of these sizes, `batch_size` at a time: `fill` writes an item's input, by their
    /// numbers, to its place in a batch; `take` is given the outputs of each item, without the batch axis, in order.
    pub(crate) fn in_batches(
        &mut self,
        sizes: &[Vec<usize>],
        n_items: usize,
        batch_size: usize,
        fill: Fill<'_>,
        take: Take<'_>,
    ) -> Result<Counts, Error> {
        let (n_full, rest) = (n_items / batch_size, n_items % batch_size);
        let mut runs = Vec::new();
        if n_full > 0 {
            runs.push(self.run_of(sizes, batch_size, batch_size)?);
        }
        if rest > 0 {
            runs.push(self.run_of(sizes, rest, batch_size)?);
        }
        let mut free = self.buffers_for(&runs, n_full)?;
        let mut under_way: VecDeque<(usize, Run)> = VecDeque::new();
        let mut counts = Counts::default();
        let output_names = self.output_names.clone();
        let mut pipeline = self.context.pipeline()?;
        let mut finish = |bindings: Bindings, (first, run): (usize, Run)| -> Result<Buffers, Error> {
            split(&bindings, first, &run, &output_names, take)?;
            Ok(Buffers { dims: run.dims, bindings })
        };
        for first in (0..n_items).step_by(batch_size) {
            let run = if n_items - first >= batch_size { &runs[0] } else { &runs[runs.len() - 1] };
            let mut buffers = loop {
                if let Some(at) = free.iter().position(|buffers| buffers.dims == run.dims) {
                    break free.swap_remove(at);
                }
                let (Some(bindings), Some(run)) = (pipeline.pop()?, under_way.pop_front()) else {
                    return Err(Error::internal("a batch has no buffers"));
                };
                free.push(finish(bindings, run)?);
            };
            gather(&mut buffers.bindings, first, run, &self.input_names, fill)?;
            counts.transfers += 1;
            counts.n_filled += run.size - run.n_items;
            under_way.push_back((first, run.clone()));
            if let Some(bindings) = pipeline.push(buffers.bindings)?
                && let Some(run) = under_way.pop_front()
            {
                free.push(finish(bindings, run)?);
            }
        }
        while let (Some(bindings), Some(run)) = (pipeline.pop()?, under_way.pop_front()) {
            free.push(finish(bindings, run)?);
        }
        drop(pipeline);
        self.spare = free;
        Ok(counts)
    }

    /// The form of all items, which must be one.
    fn form_of<I: Item>(&self, items: &[I]) -> Result<Form, Error> {
        let ports = self.engine.inputs();
        let mut form: Option<Form> = None;
        for (idx, one) in items.iter().enumerate() {
            let at = |error: Error| error.within(format!("item {idx}"));
            let views = item::views(one, &self.input_names).map_err(at)?;
            let mut sizes = Vec::with_capacity(views.len());
            let mut has_batch_axis = false;
            for (port, view) in ports.iter().zip(&views) {
                let ty = port.ty.as_tensor().ok_or_else(|| no_batch(&port.name, "it is no tensor"))?;
                let (dims, has_axis) = item_sizes(&port.name, ty, view).map_err(at)?;
                has_batch_axis |= has_axis;
                sizes.push(dims.to_vec());
            }
            match &form {
                None => form = Some(Form { sizes, has_batch_axis }),
                Some(form) if form.sizes == sizes && form.has_batch_axis == has_batch_axis => {}
                Some(form) => {
                    let (own, first) = (&sizes, &form.sizes);
                    let message =
                        format!("item {idx} has sizes {own:?}, item 0 has {first:?}; a list has one");
                    return Err(Error::new(ErrorKind::WrongShape, message));
                }
            }
        }
        form.ok_or_else(|| Error::internal("a list without items has no form"))
    }

    /// The smallest batch that the plan takes and these items go into.
    fn run_of(&self, sizes: &[Vec<usize>], n_items: usize, batch_size: usize) -> Result<Run, Error> {
        let mut refused = None;
        for size in n_items..=batch_size {
            let dims: Vec<Vec<usize>> =
                sizes.iter().map(|sizes| [&[size], sizes.as_slice()].concat()).collect();
            let inputs: Vec<(&str, &[usize])> =
                self.input_names.iter().map(String::as_str).zip(dims.iter().map(Vec::as_slice)).collect();
            match self.context.output_dims(&inputs) {
                Ok(outputs) => {
                    for (name, sizes) in self.output_names.iter().zip(&outputs) {
                        match sizes.as_ref().map(|sizes| sizes.first()) {
                            Some(Some(&first)) if first == size => {}
                            Some(_) => return Err(no_batch(name, "its first axis is not the batch")),
                            None => return Err(no_batch(name, "only a run can tell its sizes")),
                        }
                    }
                    return Ok(Run { n_items, size, dims });
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| Error::internal("a batch without a size")))
    }

    /// Buffers for these runs: of earlier lists where they fit. On a GPU one set is filled while others are under way.
    fn buffers_for(&mut self, runs: &[Run], n_full: usize) -> Result<Vec<Buffers>, Error> {
        let at_once = if self.engine.record().device().is_some() { Pipeline::DEPTH + 1 } else { 1 };
        let mut spare = std::mem::take(&mut self.spare);
        let mut ready = Vec::new();
        for (idx, run) in runs.iter().enumerate() {
            let n = if idx == 0 { at_once.min(n_full.max(1)) } else { 1 };
            for _ in 0..n {
                ready.push(match spare.iter().position(|buffers| buffers.dims == run.dims) {
                    Some(at) => spare.swap_remove(at),
                    None => self.new_buffers(run)?,
                });
            }
        }
        Ok(ready)
    }

    fn new_buffers(&self, run: &Run) -> Result<Buffers, Error> {
        let inputs: Vec<(&str, &[usize])> =
            self.input_names.iter().map(String::as_str).zip(run.dims.iter().map(Vec::as_slice)).collect();
        let outputs = self.context.output_dims(&inputs)?;
        let mut bindings = Bindings::new();
        for (name, dims) in inputs {
            bindings = bindings.input(name, self.context.input_buffer(name, dims)?);
        }
        for (name, dims) in self.output_names.iter().zip(outputs) {
            bindings = bindings.output(name, self.context.output_buffer(name, &dims.unwrap_or_default())?);
        }
        Ok(Buffers { dims: run.dims.clone(), bindings })
    }
}

fn no_batch(name: &str, why: &str) -> Error {
    let message =
        format!("`{name}` cannot be gathered or split by items: {why}; run items one by one with `infer`");
    Error::new(ErrorKind::WrongShape, message)
}

/// The sizes of an item without its batch axis, and whether it had one.
fn item_sizes<'a>(name: &str, ty: &TensorType, view: &View<'a>) -> Result<(&'a [usize], bool), Error> {
    let dims = view.dims();
    if view.dtype() != ty.dtype {
        let (given, wanted) = (view.dtype(), ty.dtype);
        let message = format!("input `{name}` is {wanted}, {given} is given");
        return Err(Error::new(ErrorKind::WrongType, message));
    }
    if !(view.bytes().len() * 8).is_multiple_of(dims.iter().product::<usize>().max(1) * ty.dtype.bits()) {
        return Err(no_batch(name, "elements of its items do not end with a byte"));
    }
    match (ty.shape.as_ref().map(|shape| shape.rank()), dims) {
        (None, dims) => Ok((dims, false)),
        (Some(0), _) => Err(no_batch(name, "it is a single number")),
        (Some(rank), dims) if dims.len() + 1 == rank => Ok((dims, false)),
        (Some(rank), [1, rest @ ..]) if rest.len() + 1 == rank => Ok((rest, true)),
        (Some(_), dims) => {
            let message = format!(
                "input `{name}` is {ty}; an item has these sizes without the first, or with 1 there, not {dims:?}"
            );
            Err(Error::new(ErrorKind::WrongShape, message))
        }
    }
}

/// Has items written into the inputs of a run, and the last one repeated in the places that are left over.
fn gather(
    bindings: &mut Bindings,
    first: usize,
    run: &Run,
    names: &[String],
    fill: Fill<'_>,
) -> Result<(), Error> {
    for (input, name) in names.iter().enumerate() {
        let buffer = bindings.input_mut(name).ok_or_else(|| Error::internal("a batch lost an input"))?;
        let bytes = buffer.bytes_mut();
        let each = bytes.len() / run.size;
        for place in 0..run.n_items {
            fill(first + place, input, &mut bytes[place * each..(place + 1) * each])?;
        }
        for place in run.n_items..run.size {
            bytes.copy_within((run.n_items - 1) * each..run.n_items * each, place * each);
        }
    }
    Ok(())
}

/// Takes the outputs of a run apart.
fn split(
    bindings: &Bindings,
    first: usize,
    run: &Run,
    names: &[String],
    take: Take<'_>,
) -> Result<(), Error> {
    let whole = |name: &String| {
        bindings
            .get_output(name)
            .map(HostBuffer::view)
            .ok_or_else(|| Error::internal("a batch lost an output"))
    };
    let outputs: Vec<View<'_>> = names.iter().map(whole).collect::<Result<_, _>>()?;
    for place in 0..run.n_items {
        let mut item = Vec::with_capacity(outputs.len());
        for whole in &outputs {
            let each = whole.bytes().len() / run.size;
            let bytes = &whole.bytes()[place * each..(place + 1) * each];
            item.push(View::from_bytes(whole.dtype(), &whole.dims()[1..], bytes)?);
        }
        take(first + place, &item)?;
    }
    Ok(())
}
