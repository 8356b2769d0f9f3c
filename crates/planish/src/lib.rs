//! Planish: a trained model in, a tuned and checked plan out, run fast and safely.
//!
//! A [`Model`] is an ONNX file that was read, or a network defined by hand. A [`Builder`] turns it into a [`Plan`]: the
//! same function, optimized, tuned for a [`Device`] and checked. An [`Engine`] is a plan that is open; [`Context`]s run
//! it. This page is the manual: each section is a program that runs.
//!
//! ```no_run
//! use planish::{Builder, Device, Engine, View};
//!
//! let plan = Builder::new("model.onnx")?.threads(2).build()?;
//! plan.save("model.plan")?;
//! let engine = Engine::new(plan, Device::Auto)?;       // Send + Sync, clones share the weights
//! let mut context = engine.context()?;                // or engine.pool(3)
//! let pixels = vec![0.0f32; 3 * 224 * 224];
//! let outputs = context.run(&[("x", View::new(&[1, 3, 224, 224], &pixels)?)])?;
//! println!("{:?}", outputs.at(0).map(|view| view.dims().to_vec()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Networks by hand
//!
//! A [`NetworkBuilder`] defines a network layer by layer; [`Builder::from_network`] builds it with the same options
//! as a model from a file, and [`NetworkBuilder::save_onnx`] writes one.
//!
//! ```
//! # #[cfg(feature = "build")] {
//! use planish::{Builder, DType, Device, Engine, NetworkBuilder, Tensor, View};
//!
//! let mut net = NetworkBuilder::new("perceptron");
//! let x = net.input("x", DType::F32, "batch,2")?;
//! let hidden = net.linear(x, Tensor::new(&[3, 2], vec![1f32, -1., 2., 0., 0., 1.])?, None)?;
//! let hidden = net.relu(hidden)?;
//! let y = net.linear(hidden, Tensor::new(&[1, 3], vec![1f32, 1., 1.])?, Some(0.5.into()))?;
//! net.output("y", y)?;
//!
//! let plan = Builder::from_network(net)?.tune_level(0).build()?;
//! let mut context = Engine::new(plan, Device::Auto)?.context()?;
//! let outputs = context.run(&[("x", View::new(&[1, 2], &[3f32, 1.])?)])?;
//! assert_eq!(outputs.get("y").unwrap().as_slice::<f32>().unwrap(), [2. + 6. + 1. + 0.5]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sizes and profiles
//!
//! Sizes that the model leaves open are symbols. Without a profile a plan runs at any that the model accepts; a
//! [`Profile`] says which are allowed and for which the plan is tuned, and anything else is an error that names the
//! dimension and the range. Several profiles may be given; the first that allows the sizes of a run serves it.
//!
//! ```
//! # #[cfg(feature = "build")] {
//! use planish::{Builder, DType, Device, Engine, NetworkBuilder, Profile, SymbolRange, View};
//!
//! let mut net = NetworkBuilder::new("softmax");
//! let x = net.input("x", DType::F32, "rows,8")?;
//! let y = net.softmax(x, -1)?;
//! net.output("y", y)?;
//! let rows = SymbolRange { symbol: "rows".into(), min: 1, opt: 4, max: 16 };
//! let plan = Builder::from_network(net)?.profile(Profile { ranges: vec![rows] }).tune_level(0).build()?;
//!
//! let mut context = Engine::new(plan, Device::Auto)?.context()?;
//! assert_eq!(context.output_dims(&[("x", &[3, 8])])?, [Some(vec![3, 8])]);     // without running
//! context.resolve(&[("x", &[16, 8])])?;                                        // memory for the largest, now
//! context.run(&[("x", View::new(&[16, 8], &[0f32; 128])?)])?;
//! let error = context.run(&[("x", View::new(&[17, 8], &[0f32; 136])?)]).unwrap_err().to_string();
//! assert!(error.contains("rows") && error.contains("16"), "{error}");
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Plans in files
//!
//! [`Plan::open`] takes a plan from its file and checks every byte; [`Plan::open_trusted`] maps the weights unread.
//! Without the feature `build` that is the only way to a plan: a program that only runs plans links no parser of
//! models and no compiler.
//!
//! ```
//! # #[cfg(feature = "build")] {
//! use planish::{Builder, DType, Device, Engine, NetworkBuilder, Plan};
//!
//! # let mut net = NetworkBuilder::new("saved");
//! # let x = net.input("x", DType::F32, "n")?;
//! # let y = net.exp(x)?;
//! # net.output("y", y)?;
//! # let path = std::env::temp_dir().join(format!("planish-doc-{}.plan", std::process::id()));
//! Builder::from_network(net)?.tune_level(0).build()?.save(&path)?;
//! let engine = Engine::new(Plan::open(&path)?, Device::Auto)?;
//! assert_eq!(engine.inputs()[0].name, "x");
//! # std::fs::remove_file(&path)?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A plan of another machine or of another version of Planish does not run as it is: that is an error of kind
//! [`ErrorKind::NeedsRebuild`], which says why. Nothing is built unasked; with the feature `build`, `Plan::open_for`
//! gives what builds the plan again from the graph that it carries.
//!
//! # Contexts, pools and runs beside the caller
//!
//! An [`Engine`] is shared; a [`Context`] has the memory of a run and serves one caller at a time. A [`ContextPool`]
//! leases contexts to any number of threads.
//!
//! ```
//! # #[cfg(feature = "build")] {
//! use planish::{Builder, DType, Device, Engine, NetworkBuilder, View};
//!
//! # let mut net = NetworkBuilder::new("pooled");
//! # let x = net.input("x", DType::F32, "n")?;
//! # let y = net.add(x, 1.0)?;
//! # net.output("y", y)?;
//! # let plan = Builder::from_network(net)?.tune_level(0).threads(1).build()?;
//! let pool = Engine::new(plan, Device::Auto)?.pool(2)?;
//! std::thread::scope(|scope| {
//!     for caller in 0..4 {
//!         let pool = &pool;
//!         scope.spawn(move || {
//!             let x = [caller as f32; 3];
//!             let mut context = pool.lease();                           // waits for a free one, gives it back
//!             let outputs = context.run(&[("x", View::new(&[3], &x).unwrap())]).unwrap();
//!             assert_eq!(outputs.at(0).unwrap().as_slice::<f32>().unwrap(), [caller as f32 + 1.0; 3]);
//!         });
//!     }
//! });
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Context::run`] blocks and may borrow; [`Context::run_async`] owns: the buffers move into the run and come back
//! when it is waited for, so nobody can change them under it. [`Context::pipeline`] has two runs of a context under way
//! on a GPU: while one computes, the other's inputs and outputs are on the link.
//!
//! ```
//! # #[cfg(feature = "build")] {
//! use planish::{Bindings, Builder, Device, Engine};
//!
//! let graph = r#"graph "g" {
//!     input %x: f32[n,4]
//!     %y: f32[n,4] = Relu(%x)
//!     output %y
//! }"#;
//! let plan = Builder::from_graph(graph.parse()?).tune_level(0).build()?;
//! let mut context = Engine::new(plan, Device::Auto)?.context()?;
//!
//! let mut x = context.input_buffer("x", &[2, 4])?;                  // aligned, typed, owned
//! x.as_mut_slice::<f32>().unwrap().copy_from_slice(&[1., -2., 3., -4., 5., -6., 7., -8.]);
//! let y = context.output_buffer("y", &[2, 4])?;                     // written in place
//! let pending = context.run_async(Bindings::new().input("x", x).output("y", y))?;
//! // ... work of the caller's own ...
//! let done = pending.wait()?;
//! let y = done.get_output("y").unwrap();
//! assert_eq!(y.as_slice::<f32>().unwrap(), [1., 0., 3., 0., 5., 0., 7., 0.]);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Every day
//!
//! A [`Session`] is an engine with a context of its own: inputs by name, results that own their memory, lists of items
//! gathered into batches and split again ([`Session::batch_inference`]), streams of frames with a bounded queue and
//! deadlines ([`Session::stream`]). An [`Ensemble`] asks several of them and gives their mean, or what most say.
//!
//! [`Session::sliding_window`] takes images that are larger than the model's input: it cuts them into overlapping windows
//! and blends the results, with the arguments of MONAI's function ([`SlidingWindow`]).
//!
//! # Inputs and outputs in files
//!
//! With the feature `io`, [`io::Sources`] gathers the inputs of a model from numpy's files, images and random numbers,
//! each checked against the input's type; [`io::npy`] reads and writes single arrays and archives.
//!
//! ```
//! # #[cfg(all(feature = "build", feature = "io"))] {
//! use planish::io::{Sources, npy};
//! use planish::{Builder, DType, Device, Engine, Model, NetworkBuilder};
//!
//! # let mut net = NetworkBuilder::new("halves");
//! # let x = net.input("x", DType::F32, "rows,4")?;
//! # let y = net.mul(x, 0.5)?;
//! # net.output("y", y)?;
//! let model = Model::from_network(net)?;                               // or Model::open("model.onnx")
//! let inputs = Sources { random: Some(7), ..Sources::default() }.gather(model.graph())?;
//! assert_eq!(inputs.notes[1], "sizes chosen, as with --shapes x:1x4");
//! let mut context = Engine::new(Builder::from_model(model).tune_level(0).build()?, Device::Auto)?.context()?;
//! let outputs = context.run_values(&inputs.values())?;
//! let y = outputs[0].as_tensor().unwrap().clone();
//! # let path = std::env::temp_dir().join(format!("planish-doc-{}.npz", std::process::id()));
//! npy::save_archive(&path, &[("y".to_string(), y)])?;                  // numpy.load("out.npz")["y"]
//! # std::fs::remove_file(&path).ok();
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Calibration
//!
//! A [`CalibrationBuilder`] runs a model over samples and finds the ranges of its activations; the [`Calibration`] is a
//! text file that can be read, edited and shared between devices. Samples come from any iterator, or with the feature
//! `io` from images, arrays, TIFF stacks and tables ([`io::Samples`]).
//!
//! # Errors
//!
//! There is one error, [`Error`]: a message that says what went wrong, where, and what to try, and an [`ErrorKind`] to
//! decide by. Only constructors of plain values have errors of their own ([`TensorError`], [`SignatureError`]); `?`
//! turns them into it. Nothing here prints, and nothing here ends the process.
//!
//! ```
//! # #[cfg(feature = "build")] {
//! use planish::{Builder, ErrorKind};
//!
//! let error = Builder::new("no such file.onnx").unwrap_err();
//! assert_eq!(*error.kind(), ErrorKind::Io);
//! assert!(error.to_string().starts_with("cannot read no such file.onnx: "));
//! # }
//! ```
//!
//! # Progress
//!
//! A build tells a callback how far its stages are ([`Builder::progress`]), and stops once `BuildOptions::cancel` is set
//! from another thread.
//!
//! # Features
//!
//! `build` (models and the compiler), `cuda` (NVIDIA GPUs; nothing of CUDA is linked, libraries are found at run time) and
//! `io` (files of inputs and outputs) are on by default. Without them a program opens and runs plans, and links no
//! parser of models and no compiler.

#![warn(missing_docs)]

#[cfg(feature = "build")]
mod accuracy;
#[cfg(feature = "build")]
mod border;
#[cfg(feature = "build")]
mod builder;
mod bundle;
#[cfg(feature = "build")]
mod calibration;
#[cfg(feature = "build")]
mod contract;
mod device;
mod engine;
mod ensemble;
#[cfg(feature = "build")]
mod error;
#[cfg(feature = "io")]
pub mod io;
pub mod machine;
#[cfg(feature = "build")]
mod metadata;
mod metrics;
#[cfg(feature = "build")]
mod model;
#[cfg(feature = "build")]
mod network;
#[cfg(feature = "build")]
pub mod onnx;
mod peaks;
mod pipeline;
mod plan;
#[cfg(feature = "build")]
mod plan_cache;
pub mod plugin;
#[cfg(feature = "build")]
mod rebuild;
#[cfg(feature = "build")]
mod refit;
mod session;
#[cfg(feature = "build")]
pub mod shapes;
mod slide;
#[cfg(feature = "build")]
mod summary;
#[cfg(feature = "build")]
mod target;
#[cfg(feature = "build")]
mod work;

#[cfg(feature = "build")]
pub use accuracy::Accuracy;
#[cfg(feature = "build")]
pub use border::{Border, Labelled, labels_of};
#[cfg(feature = "build")]
pub use builder::{Builder, Pruned, Quantized, Simplified};
pub use bundle::Bundle;
#[cfg(feature = "build")]
pub use calibration::{Calibration, CalibrationBuilder, Sample};
#[cfg(feature = "build")]
pub use contract::{Choice, Contract, ContractData, Labels, Measure, PrecisionCandidate};
pub use device::{Device, tactic_sources};
pub use engine::Engine;
pub use ensemble::Ensemble;
#[cfg(feature = "build")]
pub use metadata::Metadata;
pub use metrics::{LabelCount, Metrics, ValueRange, Worst};
#[cfg(feature = "build")]
pub use model::Model;
#[cfg(feature = "build")]
pub use network::{Body, Heads, IntoShape, NetworkBuilder, Operand, Window, Wire};
pub use pipeline::{HostStage, Pipeline, PipelineBuilder, PipelineLane};
pub use plan::Plan;
#[cfg(feature = "build")]
pub use plan_cache::{Cached, PlanCache};
#[cfg(feature = "build")]
#[doc(inline)]
pub use planish_compile::{
    BuildOptions, Built, Cause, Chosen, Departure, Diagnosis, DynamicRange, Lowered, PassesReport, Precision,
    Priced, Progress, Scheduled, Sparsity, Stage, Stages, StepError, Stopped, TacticLock, TacticSelector,
    TimingCache, TimingDiff, TimingEntry, TimingKey, WeightRange, WeightStorage, name_matches,
};
#[doc(inline)]
pub use planish_op::{DEFAULT_MAX_TRIPS, Limits, TensorType, Value, ValueType};
#[doc(inline)]
pub use planish_plan::{
    Certificate, CertificateState, Check, MAX_SIGNATURE_FILE, Outcome, PlanMetadata, Port, PrivateKey,
    Profile, PublicKey, Signature, SignatureError, SymbolRange,
};
#[cfg(feature = "build")]
#[doc(inline)]
pub use planish_quantize::{CalibrationError, Calibrator, DEFAULT_PERCENTILE, Range};
#[doc(inline)]
pub use planish_runtime::{
    Bindings, Buffer, CodeFrom, Context, ContextMemory, ContextOptions, ContextPool, DEFAULT_STREAMS,
    DeviceBuffer, DeviceTarget, DeviceView, EngineOptions, Error, ErrorKind, HostBuffer, Lease, MemoryInfo,
    MemoryNeeds, Outputs, Pending, Phases, Pipeline as Overlap, PortInfo, Profiled, Proof, Scratch, Sequence,
    StatePair, States, StepTime, TargetNeeds, View, Wait,
};
#[doc(inline)]
pub use planish_tensor::{Bytes, DType, Dim, Element, Shape, Tensor, TensorError, bf16, element_count, f16};
#[cfg(feature = "build")]
pub use rebuild::{Opened, Rebuild};
pub use session::{Batched, Frame, Item, NamedTensors, Session, StreamOptions, StreamReport, WhenFull};
pub use slide::{Blend, Padding, SlidingWindow};
#[cfg(feature = "build")]
pub use summary::{Summary, UnsupportedNode, WeightTotals};
#[cfg(feature = "build")]
pub use work::{Roof, StepWork};

/// What a plan holds, record by record: what [`Plan::record`] and [`Engine::record`] give.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::Builder;
/// use planish::record::StepKind;
///
/// let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
/// let plan = Builder::from_graph(graph.parse()?).tune_level(0).build()?;
/// for step in &plan.record().program.steps {
///     println!("{}: {} by {}", step.name, step.region.ops(), planish::record::kernel_of(step));
///     assert!(matches!(step.kind, StepKind::Kernel { .. }));
/// }
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod record {
    #[doc(inline)]
    pub use planish_kernel::Target;
    #[doc(inline)]
    pub use planish_plan::{
        Control, Evidence, Header, Plan, PlanError, PlanErrorKind, Program, Step, StepKind, Storage, Timing,
        Value, Variant, Weight, is_plan,
    };

    /// The kernel of a step, or how else it is run. [The module](self) has an example.
    pub fn kernel_of(step: &Step) -> String {
        match &step.kind {
            StepKind::Kernel { variants, .. } => {
                variants.first().map_or_else(String::new, |one| one.tactic.to_string())
            }
            StepKind::Transfer => "transfer".to_string(),
            StepKind::Evaluate => "reference".to_string(),
            StepKind::Control(_) => "control flow".to_string(),
        }
    }
}

/// Kernels as builds choose among them: what a [`TacticSelector`] is asked about.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use std::sync::Arc;
///
/// use planish::Builder;
/// use planish::tactic::{Candidate, Problem};
///
/// let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
/// let mut builder = Builder::from_graph(graph.parse()?).tune_level(0);
/// // Asked about every candidate: here, none of the kernels whose name begins so.
/// let takes = |_: &Problem, candidate: &Candidate| !candidate.tactic.to_string().starts_with("winograd");
/// builder.options_mut().selector = Some(Arc::new(takes));
/// builder.build()?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod tactic {
    #[doc(inline)]
    pub use planish_kernel::{
        Arithmetic, Candidate, Code, Layout, Numeric, Operand, PackedWeight, Problem, Ref, Region,
        RegionNode, Tactic, Want,
    };
}

/// A caller's own memory for runs: what [`Engine::allocating`] takes, with an example there.
pub mod memory {
    #[doc(inline)]
    pub use planish_runtime::{Address, Allocator, Memory, MemoryKind};
}

/// A model in memory: values, nodes and symbolic shapes; its text form, and its evaluation by the exact reference.
///
/// ```
/// use planish::graph::{Graph, interpret};
/// use planish::{Tensor, Value};
///
/// let graph: Graph = r#"graph "g" { input %x: f32[n] %y: f32[n] = Relu(%x) output %y }"#.parse()?;
/// assert_eq!(graph.to_string().parse::<Graph>()?.to_string(), graph.to_string()); // the text form holds all of it
/// assert_eq!(graph.work(&|symbol| (symbol == "n").then_some(8)).flops, 8);
/// let outputs = interpret(&graph, vec![Value::from(Tensor::vector(vec![-1f32, 2.0]))])?;
/// assert_eq!(outputs[0].as_tensor(), Some(&Tensor::vector(vec![0f32, 2.0])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "build")]
pub mod graph {
    #[doc(inline)]
    pub use planish_ir::{
        Graph, GraphError, GraphErrorKind, InterpretError, NewNode, NewOutput, Node, NodeId, ParseError,
        ValueId, ValueInfo, Work, interpret, interpret_with,
    };
}

/// How Planish opens, writes and caches files: regular ones only, in one piece, in folders of the user's own.
///
/// ```
/// use std::io::Write;
///
/// # let path = std::env::temp_dir().join(format!("planish-doc-files-{}.txt", std::process::id()));
/// // Whatever ends the process, readers meet the old file or the new one.
/// planish::files::write(&path, |file| file.write_all(b"all of it"))?;
/// assert_eq!(std::io::read_to_string(planish::files::open(&path)?)?, "all of it");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub mod files {
    #[doc(inline)]
    pub use planish_files::*;
}

/// What this machine has of CUDA: libraries, GPUs, and what they do at the moment.
///
/// ```
/// let report = planish::cuda::Report::look();
/// match &report.gpus {
///     Ok(gpus) => gpus.iter().for_each(|(gpu, free)| println!("{}, {free} bytes free", gpu.name)),
///     Err(why) => println!("{why}"),                                   // no driver, or none that works
/// }
/// ```
#[cfg(feature = "cuda")]
pub mod cuda {
    #[doc(inline)]
    pub use planish_cuda::find::{Toolkit, look_in_packages};
    #[doc(inline)]
    pub use planish_cuda::nvml::{Monitor, Sample};
    #[doc(inline)]
    pub use planish_cuda::{CudaError, CudaErrorKind, Gpu, LibraryReport, Report};
}

/// Every operator with its attributes: what [`NetworkBuilder::op`] takes.
///
/// ```
/// use planish::op::{Clip, Op, Relu};
///
/// assert_eq!(Op::from(Relu {}).name(), "Relu");
/// assert!(Op::from(Clip {}).is_pointwise());
/// ```
#[cfg(feature = "build")]
pub mod op {
    #[doc(inline)]
    pub use planish_op::*;
}
