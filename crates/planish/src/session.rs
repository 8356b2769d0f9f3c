//! `Session`: an engine and a context in one, for every day: inputs by name, results that own their memory, lists of
//! items in batches, streams of frames.

mod batch;
mod item;
mod stream;

use std::path::Path;
use std::sync::Arc;

use planish_runtime::{Bindings, Context, ContextOptions};
use planish_tensor::Tensor;

use crate::{Device, Engine, Error, ErrorKind, Plan};
pub use batch::Batched;
pub use item::Item;
pub(crate) use item::views;
pub use stream::{Frame, StreamOptions, StreamReport, WhenFull};

/// Tensors by name: what a run made.
///
/// Given by [`Session::infer`], which has an example.
#[derive(Clone, PartialEq, Debug)]
pub struct NamedTensors {
    names: Arc<[String]>,
    tensors: Vec<Tensor>,
}

impl NamedTensors {
    pub(crate) fn new(names: Arc<[String]>, tensors: Vec<Tensor>) -> NamedTensors {
        NamedTensors { names, tensors }
    }

    /// Other tensors under the same names.
    pub(crate) fn with_tensors(&self, tensors: Vec<Tensor>) -> NamedTensors {
        NamedTensors::new(self.names.clone(), tensors)
    }

    /// The names, in the model's order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The tensors, in the same order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(self.names.iter().position(|known| known == name)?)
    }

    /// The tensors without their names.
    pub fn into_tensors(self) -> Vec<Tensor> {
        self.tensors
    }
}

/// A model to call: an [`Engine`] with a [`Context`] of its own, one caller at a time.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::{Builder, DType, Device, Engine, NetworkBuilder, Session, Tensor, View};
///
/// # let mut net = NetworkBuilder::new("halves");
/// # let x = net.input("x", DType::F32, "batch,4")?;
/// # let y = net.mul(x, 0.5)?;
/// # net.output("y", y)?;
/// # let plan = Builder::from_network(net)?.tune_level(0).threads(1).build()?;
/// let engine = Engine::new(plan, Device::Auto)?;                      // Session::open("model.plan") does both
/// let mut session = Session::new(&engine)?;
/// session.warm_up(3)?;                                                // so that the first call is as fast as others
/// session.warm_up_at(&[("x", &[8, 4])], 2)?;                          // likewise, at these sizes
///
/// let outputs = session.infer(&[("x", View::new(&[1, 4], &[2f32, 4., 6., 8.])?)])?;
/// assert_eq!(outputs.names(), ["y"]);
/// assert_eq!(outputs.get("y"), Some(&Tensor::new(&[1, 4], vec![1f32, 2., 3., 4.])?));
/// let x = Tensor::new(&[2, 4], vec![2f32; 8])?;
/// let outputs = session.infer(&x)?;                                   // a model of one input needs no name
/// assert_eq!(outputs.tensors()[0].shape(), [2, 4]);
/// assert_eq!(outputs.into_tensors().len(), 1);
///
/// // A list of items, each without a batch axis: gathered into batches, and the results split again.
/// let items: Vec<Tensor> = (0..10).map(|idx| Tensor::vector(vec![idx as f32; 4])).collect();
/// let results = session.infer_all(&items)?;
/// assert_eq!(results[9].get("y"), Some(&Tensor::vector(vec![4.5f32; 4])));
/// assert_eq!(session.engine().inputs().len() + session.batch_size(), 2);
/// session.context().run(&[("x", View::from(&x))])?;                   // the context below, for everything else
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    context: Context,
    input_names: Vec<String>,
    output_names: Arc<[String]>,
    /// Buffers of batches that were met, kept for the next.
    spare: Vec<batch::Buffers>,
}

impl Session {
    /// A session over an engine, with as many threads as its plan was built for.
    pub fn new(engine: &Engine) -> Result<Session, Error> {
        Session::over(engine, engine.context()?)
    }

    /// As [`Session::new`], with the context's options.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use planish::{Builder, ContextOptions, Device, Engine, Session};
    ///
    /// # let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
    /// # let plan = Builder::from_graph(graph.parse()?).tune_level(0).build()?;
    /// # let path = std::env::temp_dir().join(format!("planish-doc-session-{}.plan", std::process::id()));
    /// # plan.save(&path)?;
    /// let mut session = Session::open(&path)?;                            // a plan's file, on the device it is for
    /// let mut second = Session::with_options(session.engine(), ContextOptions::new(1))?;
    /// # let x = planish::Tensor::vector(vec![1f32; 4]);
    /// assert_eq!(session.infer(&x)?, second.infer(&x)?);
    /// # std::fs::remove_file(&path)?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_options(engine: &Engine, options: ContextOptions) -> Result<Session, Error> {
        Session::over(engine, engine.context_with(options)?)
    }

    /// A session over the plan in a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Session, Error> {
        Session::new(&Engine::new(Plan::open(path)?, Device::Auto)?)
    }

    fn over(engine: &Engine, context: Context) -> Result<Session, Error> {
        let input_names = engine.inputs().into_iter().map(|port| port.name).collect();
        let output_names = engine.outputs().into_iter().map(|port| port.name).collect();
        Ok(Session { engine: engine.clone(), context, input_names, output_names, spare: Vec::new() })
    }

    /// The engine, to be shared with others.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The context, for what a session has no words for: profiles, buffers, runs beside the caller.
    pub fn context(&mut self) -> &mut Context {
        &mut self.context
    }

    /// Runs the model once and gives copies of its outputs. [`Context::run`] copies nothing.
    pub fn infer(&mut self, inputs: &(impl Item + ?Sized)) -> Result<NamedTensors, Error> {
        let views = item::views(inputs, &self.input_names)?;
        self.context.run_in_order(&views)?;
        let tensor = |idx: usize| {
            self.context.output(idx).map(|view| view.to_tensor()).ok_or_else(|| {
                let name = &self.output_names[idx];
                let message = format!("output `{name}` is no tensor; `Context::run_values` gives it");
                Error::new(ErrorKind::WrongType, message)
            })
        };
        let tensors = (0..self.output_names.len()).map(tensor).collect::<Result<_, _>>()?;
        Ok(self.named(tensors))
    }

    /// Runs the model `n` times on zeros of the sizes that it was tuned for, so that memory, kernels and, on a GPU, CUDA
    /// graphs are there before the first call that counts. Two runs do, three leave caches warm too.
    pub fn warm_up(&mut self, n: usize) -> Result<(), Error> {
        let ports = self.engine.inputs();
        let mut dims = Vec::new();
        for port in &ports {
            dims.push(self.tuned_dims(port)?);
        }
        let sizes: Vec<(&str, &[usize])> =
            ports.iter().zip(&dims).map(|(port, dims)| (port.name.as_str(), dims.as_slice())).collect();
        self.warm_up_at(&sizes, n)
    }

    /// As [`Session::warm_up`], at these sizes of the inputs.
    pub fn warm_up_at(&mut self, sizes: &[(&str, &[usize])], n: usize) -> Result<(), Error> {
        let mut bindings = Bindings::new();
        for (name, dims) in sizes {
            bindings = bindings.input(name, self.context.input_buffer(name, dims)?);
        }
        (0..n).try_for_each(|_| self.context.run_bound(&mut bindings))
    }

    /// Tensors under the names of the outputs.
    pub(crate) fn named(&self, tensors: Vec<Tensor>) -> NamedTensors {
        NamedTensors::new(self.output_names.clone(), tensors)
    }

    /// The sizes that an input has where the plan was tuned.
    pub(crate) fn tuned_dims(&self, port: &planish_runtime::PortInfo) -> Result<Vec<usize>, Error> {
        let unknown = || {
            let message = format!("input `{}` is {}; give its sizes to `warm_up_at`", port.name, port.ty);
            Error::new(ErrorKind::WrongShape, message)
        };
        let shape = port.ty.as_tensor().and_then(|ty| ty.shape.as_ref()).ok_or_else(unknown)?;
        let dims = shape.dims().iter().map(|dim| {
            let size = dim.eval(&|symbol| self.tuned_size(symbol))?;
            usize::try_from(size).ok()
        });
        dims.collect::<Option<_>>().ok_or_else(unknown)
    }

    /// The size of a symbol that the plan was tuned for: the largest `opt` of its profiles, or where it was built
    /// without one.
    fn tuned_size(&self, symbol: &str) -> Option<i64> {
        let header = &self.engine.record().header;
        let ranges = header.profiles.iter().flat_map(|profile| &profile.ranges);
        let opt = ranges.filter(|range| range.symbol == symbol).map(|range| range.opt).max();
        let tuned = || header.tuned_at.iter().find(|(known, _)| known == symbol).map(|(_, size)| *size);
        opt.or_else(tuned)
    }
}

#[cfg(all(test, feature = "build"))]
mod tests;
