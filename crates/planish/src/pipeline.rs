//! `Pipeline`: several engines one after the other, in one piece of memory, with branches and loops.
//!
//! - `script`: from what was said to stages, values and when each is needed, at given sizes.

mod script;
#[cfg(all(test, feature = "build"))]
mod tests;

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use planish_runtime::{ContextOptions, Lane, Proof, Wait};
use planish_tensor::Tensor;

use crate::{Engine, Error, ErrorKind, View};
use script::{Act, Script};

/// Lanes of each pipeline, as many as are under way at the same time: one computes, one waits for it, one is filled.
const DEFAULT_CONTEXTS: usize = 3;

/// Sizes of inputs for which memory is kept.
const MAX_SIZES: usize = 4;

/// Work on the host between stages: the number of the trip of the innermost loop, and tensors in; tensors out.
/// [`Pipeline`] has an example.
pub type HostStage = Arc<dyn Fn(usize, &[Tensor]) -> Result<Vec<Tensor>, Error> + Send + Sync>;

/// What a pipeline does, in order.
#[derive(Clone)]
enum Item {
    Stage { name: String, engine: Engine, feeds: Vec<(String, String)> },
    Host { name: String, reads: Vec<String>, gives: Vec<(String, String)>, work: HostStage },
    Repeat { n: usize, items: Vec<Item>, carries: Vec<(String, String)> },
}

/// Says what a pipeline does: [`Pipeline`] has an example.
#[derive(Clone, Default)]
pub struct PipelineBuilder {
    inputs: Vec<String>,
    items: Vec<Item>,
    carries: Vec<(String, String)>,
    outputs: Vec<(String, String)>,
    n_contexts: Option<usize>,
    is_resident: bool,
}

impl fmt::Debug for PipelineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineBuilder")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish()
    }
}

impl PipelineBuilder {
    /// A value that every run is given.
    pub fn input(mut self, name: &str) -> PipelineBuilder {
        self.inputs.push(name.to_string());
        self
    }

    /// A run of an engine: each of its inputs by name, and the value that it is. Its outputs are values `NAME.OUTPUT`.
    pub fn stage(mut self, name: &str, engine: &Engine, feeds: &[(&str, &str)]) -> PipelineBuilder {
        let feeds = feeds.iter().map(|(input, value)| (input.to_string(), value.to_string())).collect();
        self.items.push(Item::Stage { name: name.to_string(), engine: engine.clone(), feeds });
        self
    }

    /// Work in Rust over values; what it gives are values `NAME.OUTPUT`, each of the type and sizes of another one. On a
    /// device, what it reads is copied to the host and what it gives is copied back.
    pub fn host(
        mut self,
        name: &str,
        reads: &[&str],
        gives: &[(&str, &str)],
        work: impl Fn(usize, &[Tensor]) -> Result<Vec<Tensor>, Error> + Send + Sync + 'static,
    ) -> PipelineBuilder {
        let reads = reads.iter().map(|name| name.to_string()).collect();
        let gives = gives.iter().map(|(name, like)| (name.to_string(), like.to_string())).collect();
        self.items.push(Item::Host { name: name.to_string(), reads, gives, work: Arc::new(work) });
        self
    }

    /// Does something `n` times.
    pub fn repeat(
        mut self,
        n: usize,
        body: impl FnOnce(PipelineBuilder) -> PipelineBuilder,
    ) -> PipelineBuilder {
        let PipelineBuilder { items, carries, .. } = body(PipelineBuilder::default());
        self.items.push(Item::Repeat { n, items, carries });
        self
    }

    /// In a loop: at the end of each trip a value from before the loop becomes what another one of the trip is, without a copy.
    pub fn carry(mut self, value: &str, from: &str) -> PipelineBuilder {
        self.carries.push((value.to_string(), from.to_string()));
        self
    }

    /// A value that every run gives.
    pub fn output(mut self, name: &str, value: &str) -> PipelineBuilder {
        self.outputs.push((name.to_string(), value.to_string()));
        self
    }

    /// Contexts of each engine, and so runs at the same time: 3 if not said.
    pub fn contexts(mut self, n: usize) -> PipelineBuilder {
        self.n_contexts = Some(n.max(1));
        self
    }

    /// Keeps inputs and outputs on the device as well, for callers that write and read them seldom ([`Pipeline::lane`]).
    pub fn resident(mut self) -> PipelineBuilder {
        self.is_resident = true;
        self
    }

    /// The pipeline; names and types are looked at now, sizes when a run has them.
    pub fn build(self) -> Result<Pipeline, Error> {
        script::check(&self)?;
        Ok(Pipeline { said: self, shelves: Mutex::default(), returned: Condvar::new() })
    }
}

/// Several engines one after the other: what one writes the next reads where it lies, on a GPU in its memory. Runs of
/// several threads go beside each other on lanes of their own. On a GPU stages are ordered by events and only the last one
/// is waited for, never the device.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::{Builder, Device, Engine, Pipeline, Tensor, View};
///
/// let engine = |graph: &str| -> Result<Engine, Box<dyn std::error::Error>> {
///     let plan = Builder::from_graph(graph.parse()?).device(Device::Cpu).tune_level(0).threads(1).build()?;
///     Ok(Engine::new(plan, Device::Cpu)?)
/// };
/// let encoder = engine(r#"graph "e" { input %x: f32[n,4] %z: f32[n,4] = Neg(%x) output %z }"#)?;
/// let denoiser = engine(r#"graph "u" { input %z: f32[n,4] input %x: f32[n,4] %e: f32[n,4] = Add(%z, %x) output %e }"#)?;
/// let decoder = engine(r#"graph "d" { input %z: f32[n,4] %y: f32[n,4] = Abs(%z) output %y }"#)?;
///
/// let pipeline = Pipeline::builder()
///     .input("image")
///     .stage("encoder", &encoder, &[("x", "image")])
///     .repeat(3, |trip| {
///         trip.stage("denoiser", &denoiser, &[("z", "encoder.z"), ("x", "image")])      // reads two earlier values
///             .host("scheduler", &["denoiser.e"], &[("z", "encoder.z")], |step, read| {
///                 let scaled = read[0].to_f64s().iter().map(|x| (x * (step + 1) as f64) as f32).collect();
///                 Ok(vec![Tensor::new(read[0].shape(), scaled)?])
///             })
///             .carry("encoder.z", "scheduler.z")
///     })
///     .stage("decoder", &decoder, &[("z", "encoder.z")])
///     .output("picture", "decoder.y")
///     .build()?;
/// let outputs = pipeline.run(&[("image", View::new(&[1, 4], &[1f32, 2., 3., 4.])?)])?;  // from any thread
/// // z: -x, then (z + x) * 1 = 0, (0 + x) * 2, (2x + x) * 3
/// assert_eq!(outputs[0], ("picture".to_string(), Tensor::new(&[1, 4], vec![9f32, 18., 27., 36.])?));
/// for proof in pipeline.proofs(&[("image", &[1, 4])])? {
///     println!("{proof}");                                             // what lies where, and that nothing overlaps
/// }
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pipeline {
    said: PipelineBuilder,
    /// Lanes by the sizes of the inputs, the sizes met last at the end.
    shelves: Mutex<Vec<Shelf>>,
    returned: Condvar,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("said", &self.said).finish_non_exhaustive()
    }
}

/// Lanes at one size.
struct Shelf {
    sizes: Vec<Vec<usize>>,
    script: Arc<Script>,
    free: Vec<Lane>,
    n_made: usize,
}

/// A lane of a pipeline on loan, for callers that fill, run and read it by themselves; it goes back when dropped.
/// Given by [`Pipeline::lane`], which has an example.
pub struct PipelineLane<'a> {
    pipeline: &'a Pipeline,
    script: Arc<Script>,
    /// Absent only while it goes back.
    lane: Option<Lane>,
}

impl fmt::Debug for PipelineLane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineLane").finish_non_exhaustive()
    }
}

impl Pipeline {
    /// Says what a pipeline does.
    pub fn builder() -> PipelineBuilder {
        PipelineBuilder::default()
    }

    /// Runs all stages on these inputs and gives the outputs, in the order in which they were said.
    pub fn run(&self, inputs: &[(&str, View<'_>)]) -> Result<Vec<(String, Tensor)>, Error> {
        let sizes: Vec<(&str, &[usize])> = inputs.iter().map(|(name, view)| (*name, view.dims())).collect();
        let mut lane = self.lane(&sizes)?;
        for (name, view) in inputs {
            lane.write(name, *view)?;
        }
        lane.run()?;
        let names: Vec<String> = self.said.outputs.iter().map(|(name, _)| name.clone()).collect();
        names.into_iter().map(|name| lane.read(&name).map(|tensor| (name, tensor))).collect()
    }

    /// A lane for inputs of these sizes; waits until there is one.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use planish::{Builder, Device, Engine, Pipeline, View};
    ///
    /// # let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Neg(%x) output %y }"#;
    /// # let plan = Builder::from_graph(graph.parse()?).device(Device::Cpu).tune_level(0).build()?;
    /// # let engine = Engine::new(plan, Device::Cpu)?;
    /// let said = Pipeline::builder().input("x").stage("only", &engine, &[("x", "x")]).output("y", "only.y");
    /// let pipeline = said.contexts(1).resident().build()?;             // inputs and outputs stay on the device
    /// let mut lane = pipeline.lane(&[("x", &[1, 4])])?;
    /// lane.write("x", View::new(&[1, 4], &[1f32, 2., 3., 4.])?)?;
    /// for _ in 0..3 {
    ///     lane.run()?;                                                 // on what the lane holds
    /// }
    /// lane.wait()?;
    /// assert_eq!(lane.read("y")?.to_f64s(), [-1., -2., -3., -4.]);
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lane(&self, sizes: &[(&str, &[usize])]) -> Result<PipelineLane<'_>, Error> {
        let sizes = self.in_order(sizes)?;
        let mut shelves = self.lock();
        loop {
            let at = match shelves.iter().position(|shelf| shelf.sizes == sizes) {
                Some(at) => at,
                None => {
                    let script = Arc::new(Script::new(&self.said, &sizes)?);
                    if shelves.len() == MAX_SIZES {
                        shelves.remove(0);
                    }
                    shelves.push(Shelf { sizes: sizes.clone(), script, free: Vec::new(), n_made: 0 });
                    shelves.len() - 1
                }
            };
            let shelf = &mut shelves[at];
            let script = shelf.script.clone();
            if let Some(lane) = shelf.free.pop() {
                return Ok(PipelineLane { pipeline: self, script, lane: Some(lane) });
            }
            if shelf.n_made < self.said.n_contexts.unwrap_or(DEFAULT_CONTEXTS) {
                // Under the lock, so that captured graphs and memory come one after the other.
                let lane = script.lane()?;
                shelf.n_made += 1;
                return Ok(PipelineLane { pipeline: self, script, lane: Some(lane) });
            }
            shelves = self.returned.wait(shelves).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What lies where in the memory of a lane at these sizes, and that nothing overlaps: one for each memory.
    pub fn proofs(&self, sizes: &[(&str, &[usize])]) -> Result<Vec<Proof>, Error> {
        let lane = self.lane(sizes)?;
        Ok(lane.lane.as_ref().map_or(Vec::new(), |lane| lane.proofs().to_vec()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Shelf>> {
        // Whoever panicked left whole shelves.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_order(&self, given: &[(&str, &[usize])]) -> Result<Vec<Vec<usize>>, Error> {
        let wrong = |message: String| Error::new(ErrorKind::WrongInputs, message);
        let names = &self.said.inputs;
        if let Some((name, _)) = given.iter().find(|(name, _)| !names.iter().any(|known| known == name)) {
            return Err(wrong(format!("the pipeline has no input `{name}`; it has {}", names.join(", "))));
        }
        let sizes = |name: &String| {
            let mut found = given.iter().filter(|(known, _)| known == name);
            match (found.next(), found.next()) {
                (Some((_, sizes)), None) => Ok(sizes.to_vec()),
                (None, _) => Err(wrong(format!("the pipeline's input `{name}` is missing"))),
                _ => Err(wrong(format!("the pipeline's input `{name}` was given twice"))),
            }
        };
        names.iter().map(sizes).collect()
    }
}

impl PipelineLane<'_> {
    fn parts(&mut self) -> Result<(&Script, &mut Lane), Error> {
        match &mut self.lane {
            Some(lane) => Ok((&self.script, lane)),
            None => Err(Error::new(ErrorKind::Failed, "the lane was given back")),
        }
    }

    /// Copies a tensor into an input.
    pub fn write(&mut self, name: &str, from: View<'_>) -> Result<(), Error> {
        let (script, lane) = self.parts()?;
        let value = script.input(name)?;
        lane.write(value, from)
    }

    /// Queues all stages on what the inputs hold; returns before they are done where they are on a device.
    pub fn run(&mut self) -> Result<(), Error> {
        let (script, lane) = self.parts()?;
        act(&script.acts, script, lane, 0)
    }

    /// Waits for what was queued.
    pub fn wait(&mut self) -> Result<(), Error> {
        let (script, lane) = self.parts()?;
        lane.wait().map_err(|(stage, error)| error.within(script.stage_text(stage)))
    }

    /// A copy of an output, once its run is done.
    pub fn read(&mut self, name: &str) -> Result<Tensor, Error> {
        let (script, lane) = self.parts()?;
        let value = script.output(name)?;
        read(script, lane, value)
    }
}

impl Drop for PipelineLane<'_> {
    fn drop(&mut self) {
        let Some(mut lane) = self.lane.take() else { return };
        // The next one to have it writes its inputs; an error was told to whoever waited.
        let _ = lane.wait();
        let mut shelves = self.pipeline.lock();
        if let Some(shelf) = shelves.iter_mut().find(|shelf| Arc::ptr_eq(&shelf.script, &self.script)) {
            shelf.free.push(lane);
        }
        drop(shelves);
        self.pipeline.returned.notify_all();
    }
}

fn read(script: &Script, lane: &mut Lane, value: usize) -> Result<Tensor, Error> {
    lane.read(value).map_err(|(stage, error)| match stage {
        Some(stage) => error.within(script.stage_text(stage)),
        None => error,
    })
}

/// Does what a script says, in order; `trip` is that of the innermost loop.
fn act(acts: &[Act], script: &Script, lane: &mut Lane, trip: usize) -> Result<(), Error> {
    for one in acts {
        match one {
            Act::Stage(stage) => {
                lane.run(*stage).map_err(|error| error.within(script.stage_text(*stage)))?;
            }
            Act::Host { name, reads, gives, work } => {
                let at = |error: Error| error.within(format!("stage `{name}`"));
                let given =
                    reads.iter().map(|&value| read(script, lane, value)).collect::<Result<Vec<_>, _>>()?;
                let made = work(trip, &given).map_err(at)?;
                if made.len() != gives.len() {
                    let message = format!("gives {} tensors instead of {}", made.len(), gives.len());
                    return Err(at(Error::new(ErrorKind::WrongInputs, message)));
                }
                for (&value, tensor) in gives.iter().zip(&made) {
                    lane.write(value, View::from(tensor)).map_err(at)?;
                }
            }
            Act::Repeat { n, acts, carries } => {
                for trip in 0..*n {
                    act(acts, script, lane, trip)?;
                    carries.iter().for_each(|&(value, from)| lane.swap(value, from));
                }
            }
        }
    }
    Ok(())
}

/// How the contexts of a lane run: as their plans were made, and awake while they wait for a GPU.
fn options(engine: &planish_runtime::Engine) -> ContextOptions {
    let plan = engine.plan();
    let wait = if plan.device().is_some() { Wait::Spin } else { Wait::default() };
    ContextOptions { wait, ..ContextOptions::new(plan.header.threads.max(1) as usize) }
}
