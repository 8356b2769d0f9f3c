//! `Builder`: from a model to a plan.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use planish_compile::{BuildOptions, Built, Precision, Progress, TimingCache};
use planish_import::{DeclaredShapes, ImportErrorKind};
use planish_ir::Graph;
use planish_plan::Profile;

use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::network::NetworkBuilder;
use crate::plan::Plan;

/// A build to be.
#[derive(Debug)]
pub struct Builder {
    graph: Graph,
    device: Device,
    options: BuildOptions,
    timings: TimingCache,
    declared: DeclaredShapes,
}

impl Builder {
    /// A build of the model in this ONNX file.
    pub fn new(path: impl AsRef<Path>) -> Result<Builder, Error> {
        let path = path.as_ref();
        let bytes = planish_tensor::Bytes::map_file(path).map_err(|error| {
            Error::new(Error::io_kind(&error), format!("cannot read {}: {error}", path.display()))
        })?;
        // External data lies beside the model; the folder of a bare file name is the current one.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let imported = planish_import::import_bytes(&bytes, Some(folder)).map_err(|error| {
            let file = path.display();
            let message = match error.kind() {
                // It names its file.
                ImportErrorKind::Io { .. } => error.to_string(),
                ImportErrorKind::Onnx(_) => format!("{file} is not a usable ONNX model: {error}"),
                _ => format!("{file}: {error}"),
            };
            Error::new(Error::from(error).kind(), message)
        })?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&bytes);
        // Weights may lie in other files.
        let own = bytes.as_ptr_range();
        let constants = imported.graph.values().filter_map(|(_, value)| value.constant());
        for constant in constants.filter(|constant| !own.contains(&constant.bytes().as_ptr())) {
            hasher.update(constant.bytes());
        }
        let builder = Builder::of_source(imported.graph, *hasher.finalize().as_bytes());
        Ok(Builder { declared: imported.declared, ..builder })
    }

    /// A build of a graph that was made otherwise.
    pub fn from_graph(graph: Graph) -> Builder {
        let printed = graph.print();
        let mut hasher = blake3::Hasher::new();
        hasher.update(printed.text.as_bytes());
        // The text has the number and the length of each.
        printed.constants.iter().for_each(|constant| _ = hasher.update(constant.bytes()));
        Builder::of_source(graph, *hasher.finalize().as_bytes())
    }

    /// `source` is the hash of the model.
    fn of_source(graph: Graph, source: [u8; 32]) -> Builder {
        let options = BuildOptions { source, ..BuildOptions::default() };
        Builder {
            graph,
            device: Device::Auto,
            options,
            timings: TimingCache::default(),
            declared: DeclaredShapes::default(),
        }
    }

    /// A build of a network that was defined by hand.
    ///
    /// ```
    /// use planish::{Builder, DType, NetworkBuilder, Profile, SymbolRange};
    ///
    /// let mut net = NetworkBuilder::new("scale");
    /// let x = net.input("x", DType::F32, "batch,16")?;
    /// let y = net.mul(x, 0.5)?;
    /// net.output("y", y)?;
    /// let batch = SymbolRange { symbol: "batch".into(), min: 1, opt: 8, max: 32 };
    /// let plan = Builder::from_network(net)?
    ///     .profile(Profile { ranges: vec![batch] })
    ///     .threads(2)
    ///     .tune_level(0)
    ///     .build()?;
    /// assert_eq!(plan.record().profiles.len(), 1);
    /// # Ok::<(), planish::Error>(())
    /// ```
    pub fn from_network(network: NetworkBuilder) -> Result<Builder, Error> {
        Ok(Builder::from_graph(network.finish()?))
    }

    /// Lets these symbols of the inputs' shapes differ from place to place, each as `INPUT.AXIS`: files give one name
    /// to sizes that need not be equal.
    pub fn untie(mut self, symbols: &BTreeSet<String>) -> Result<Builder, Error> {
        self.graph = self
            .graph
            .untie(&|dim| dim.as_symbol().is_some_and(|name| symbols.contains(name)))
            .map_err(|error| {
                let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
                let message = format!("the model needs one size for {}: {error}", names.join(", "));
                Error::new(ErrorKind::BadInput, message)
            })?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.options.source);
        symbols.iter().for_each(|symbol| _ = hasher.update(format!("{symbol}\n").as_bytes()));
        self.options.source = *hasher.finalize().as_bytes();
        Ok(self)
    }

    /// Where the plan is going to run.
    pub fn device(mut self, device: Device) -> Builder {
        self.device = device;
        self
    }

    /// What the model is computed in, where its operators allow it.
    pub fn precision(mut self, precision: Precision) -> Builder {
        self.options.precision = precision;
        self
    }

    /// Adds shapes that the plan may run at.
    pub fn profile(mut self, profile: Profile) -> Builder {
        self.options.profiles.push(profile);
        self
    }

    /// Threads to tune for.
    pub fn threads(mut self, threads: usize) -> Builder {
        self.options.threads = threads.max(1);
        self
    }

    /// 0 goes by the cost model, up to 5 measures more and more.
    pub fn tune_level(mut self, level: u32) -> Builder {
        self.options.tune_level = level;
        self
    }

    /// Whether Winograd convolutions may be used.
    pub fn winograd(mut self, winograd: bool) -> Builder {
        self.options.winograd = winograd;
        self
    }

    /// Refuses what only the slow reference can compute, and steps on the CPU in a plan for a GPU.
    pub fn strict(mut self, strict: bool) -> Builder {
        self.options.strict = strict;
        self
    }

    /// Takes sources of tactics in or leaves them out, as in `+own,-cudnn`.
    pub fn tactic_sources(mut self, list: &str) -> Result<Builder, Error> {
        self.options.set_tactic_sources(list)?;
        Ok(self)
    }

    /// How long tactics may be searched for; what is not measured by then goes by the cost model.
    pub fn build_time(mut self, limit: Duration) -> Builder {
        self.options.build_time = Some(limit);
        self
    }

    /// The most workspace bytes that a step may ask for.
    pub fn workspace(mut self, bytes: usize) -> Builder {
        self.options.workspace = Some(bytes);
        self
    }

    /// What a [`crate::PlanCache`] keeps the plan under; `None` where callbacks or a tactic lock decide what is
    /// built.
    pub fn cache_key(&self) -> Result<Option<String>, Error> {
        let backends = self.device.backends()?;
        Ok(crate::plan_cache::key(&self.options.source, &self.options, &backends))
    }

    /// Told about the stages of the build.
    pub fn progress(mut self, progress: Progress) -> Builder {
        self.options.progress = Some(progress);
        self
    }

    /// Times from earlier builds.
    pub fn timings(mut self, timings: TimingCache) -> Builder {
        self.timings = timings;
        self
    }

    /// All options at once, for what has no method here.
    pub fn options_mut(&mut self) -> &mut BuildOptions {
        &mut self.options
    }

    /// The graph that is built.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Builds the plan.
    pub fn build(self) -> Result<Plan, Error> {
        Ok(self.build_with_report()?.0.plan.into())
    }

    /// Builds the plan, and gives what the passes did and the times that are known now.
    pub fn build_with_report(mut self) -> Result<(Built, TimingCache), Error> {
        let backends = self.device.backends()?;
        let mut built = planish_compile::build(&self.graph, &backends, &self.options, &mut self.timings)?;
        let fixed = match &self.options.profiles[..] {
            [only] => only.ranges.iter().filter(|range| range.min == range.max).collect(),
            _ => Vec::new(),
        };
        let size = |name: &str| fixed.iter().find(|range| range.symbol == name).map(|range| range.opt);
        let said = self.declared.disagreement(&self.graph, &built.graph, &size);
        built.notes.splice(0..0, said);
        Ok((built, self.timings))
    }
}
