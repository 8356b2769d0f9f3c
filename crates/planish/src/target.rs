//! `BuildTarget`: what a plan is built for that is not this machine, or not all of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use planish_compile::BuildOptions;
#[cfg(feature = "cuda")]
use planish_compile::TimingCache;
use planish_cpu::Cpu;
use planish_cpu::isa::Isa;
use planish_kernel::Backend;
use planish_plan::{Check, NOT_RUN, Outcome};

use crate::{Error, ErrorKind};

/// What a plan is built for, by name.
#[derive(Clone, Debug)]
pub(crate) enum BuildTarget {
    /// A CPU with this instruction set, which this one has.
    Cpu(Isa),
    /// A GPU that need not be here.
    #[cfg(feature = "cuda")]
    Gpu(Box<planish_cuda::Gpu>),
}

/// Architectures, and a GPU of each by its short name: kernels are made for the architecture, prices for the GPU.
#[cfg(feature = "cuda")]
const ARCHITECTURES: [(&str, &str); 9] = [
    ("sm_75", "t4"),
    ("sm_80", "a100"),
    ("sm_86", "a10"),
    ("sm_89", "l4"),
    ("sm_90", "h200"),
    ("sm_90a", "h200"),
    ("sm_100", "b200"),
    ("sm_100a", "b200"),
    ("sm_120", "rtx5090"),
];

impl BuildTarget {
    pub(crate) fn named(name: &str) -> Result<BuildTarget, Error> {
        let wrong = |message: String| Err(Error::new(ErrorKind::BadOption, message));
        if let Some(isa) = Isa::named(name) {
            return Ok(BuildTarget::Cpu(isa));
        }
        if matches!(name, "avx2" | "avx512") {
            return wrong(format!(
                "this CPU has no {name}, so nothing could be checked; build for it where it is"
            ));
        }
        #[cfg(feature = "cuda")]
        {
            let short = ARCHITECTURES.iter().find(|(architecture, _)| *architecture == name);
            if let Some(gpu) = planish_cuda::Gpu::known(short.map_or(name, |(_, short)| short)) {
                return Ok(BuildTarget::Gpu(Box::new(gpu)));
            }
        }
        wrong(format!(
            "`{name}` is not a target; give portable, avx2, avx512, sm_75 to sm_120 (sm_90a for Hopper), or a GPU's short \
             name as in a100, l4, h100, h200, b200"
        ))
    }

    /// Who plans for it: a CPU runs what it plans, a GPU that is taken not to be here only compiles. With a timing cache of
    /// such a GPU its times are taken.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))] // A CPU runs what it plans: it needs no other's times.
    pub(crate) fn backends(&self, timings: Option<&Path>) -> Result<Vec<Arc<dyn Backend>>, Error> {
        match self {
            BuildTarget::Cpu(isa) => Ok(vec![Arc::new(Cpu::with_isa(*isa))]),
            #[cfg(feature = "cuda")]
            BuildTarget::Gpu(gpu) => {
                let compiler = planish_cuda::offline::functions_of(planish_cuda::find::Which::Nvrtc);
                compiler.map_err(|error| {
                    let message = format!(
                        "kernels for {} cannot be compiled here: {error}; `pip install nvidia-cuda-nvrtc` brings it",
                        gpu.name
                    );
                    Error::new(ErrorKind::Lacking, message)
                })?;
                let times = timings.filter(|path| path.exists()).map(TimingCache::load).transpose()?;
                let measured = times.as_ref().and_then(|times| {
                    times
                        .devices()
                        .into_keys()
                        .find(|device| device.starts_with(&gpu.name))
                        .map(str::to_string)
                });
                let planner = planish_cuda::Cuda::compiling(gpu.as_ref().clone(), measured.as_deref());
                Ok(vec![Arc::new(Cpu::new()), Arc::new(planner)])
            }
        }
    }

    /// Whether its kernels cannot be run here.
    pub(crate) fn is_elsewhere(&self) -> bool {
        !matches!(self, BuildTarget::Cpu(_))
    }

    /// Takes out of the options what only a device that is here can do; gives what is to be said of it.
    pub(crate) fn settle(&self, options: &mut BuildOptions) -> Option<String> {
        if !self.is_elsewhere() {
            return None;
        }
        options.verify = false;
        let by = match options.timing_cache {
            // What the cache does not have goes by the cost model: nothing is measured.
            Some(_) => {
                options.build_time = Some(Duration::ZERO);
                "the timing cache"
            }
            None => {
                options.tune_level = 0;
                "the cost model (--timing-cache FILE takes times)"
            }
        };
        Some(format!("the GPU is not asked: kernels go by {by}, and nobody ran them"))
    }
}

/// The one check of a plan whose kernels nobody ran.
pub(crate) fn not_run() -> Check {
    let why = "built without the GPU; `planish check` runs the self-check where it is";
    Check {
        subject: NOT_RUN.to_string(),
        n_points: 0,
        worst: 0.0,
        outcome: Outcome::Skipped(why.to_string()),
    }
}

/// The options that a plan names, as they were asked for: who builds it again has a device to ask.
pub(crate) fn as_asked(options: &str, asked: &BuildOptions) -> String {
    let lines = options.lines().filter(|line| !line.starts_with("build_time_ms="));
    let mut lines: Vec<String> = lines.map(str::to_string).collect();
    for line in lines.iter_mut().filter(|line| line.starts_with("tune_level=")) {
        *line = format!("tune_level={}", asked.tune_level);
    }
    lines.extend(asked.build_time.map(|time| format!("build_time_ms={}", time.as_millis())));
    lines.sort();
    lines.iter().map(|line| format!("{line}\n")).collect()
}
