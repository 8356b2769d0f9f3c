//! What convolutions and matrix products share: tiles, splits of the sum, prices, launches, and what follows each
//! sum.
//!
//! Both run the block of `kernels/product.cuh`, each with its own loaders. A [`Way`] is all that tells one
//! tactic from another; its name in a tactic's name can be read back.

mod apart;
pub(crate) mod epilogue;
mod price;
mod tile;

#[cfg(test)]
mod tests;

pub(crate) use apart::Apart;
pub(crate) use epilogue::{GELU_IN_F8, gelu_is_fast};
pub(crate) use price::Work as Amount;
pub(crate) use tile::{Math, Split, Way, has_few_rows};

use std::sync::Arc;

use planish_gpu::args::{self, Field};
use planish_gpu::kernel_args;
use planish_gpu::operands::candidate;
use planish_kernel::{Budget, Candidate, KernelError, KernelErrorKind, Tactic, Want};

use crate::driver::Module;
use crate::family::Work;
use crate::launch::{Launch, Launches, Params};
use crate::source::Source;

/// The block that both kernels run.
const BLOCK: &str =
    concat!(include_str!("../../kernels/epilogue.cuh"), "\n", include_str!("../../kernels/product.cuh"));

/// Raised when kernels or packings change.
pub(crate) const REVISION: u32 = 4;

/// Threads of the kernel that adds parts up, as `REDUCE_THREADS` in product.cuh.
const REDUCE_THREADS: u32 = 128;

/// The best of the candidates, at most so many, in the order of their prices.
pub(crate) fn best_of(mut candidates: Vec<Candidate>, most: usize, budget: &Budget) -> Vec<Candidate> {
    candidates.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns));
    let slowest = candidates.first().map_or(0.0, |best| best.predicted_ns * budget.device_ratio);
    candidates.retain(|candidate| candidate.predicted_ns <= slowest);
    candidates.truncate(most);
    candidates
}

fn no_such(tactic: &Tactic) -> KernelError {
    let message = format!("no tactic is called `{}`; rebuild the plan", tactic.name);
    KernelError::new(KernelErrorKind::NoSuchTactic, message)
}

/// The way that a tactic's name tells, after the family's own part.
pub(crate) fn way_of(tactic: &Tactic, own: &str) -> Result<Way, KernelError> {
    tactic.name.strip_prefix(own).and_then(Way::named).ok_or_else(|| no_such(tactic))
}

/// The type of at most 16 bits that a tactic's name tells after the family's own part, and what `named` reads in the rest.
pub(crate) fn half_way_of<T>(
    tactic: &Tactic,
    own: &str,
    named: impl Fn(&str) -> Option<T>,
) -> Result<(Math, T), KernelError> {
    let read = || {
        let (math, rest) = tactic.name.strip_prefix(own)?.split_once('_')?;
        let known = [Math::F16, Math::BF16, Math::I8, Math::F8];
        let math = known.into_iter().find(|known| known.name() == math)?;
        Some((math, named(rest)?))
    };
    read().ok_or_else(|| no_such(tactic))
}

/// The name that [`half_way_of`] reads.
pub(crate) fn half_name(own: &str, math: Math, rest: &str) -> String {
    format!("{own}{}_{rest}", math.name())
}

/// What all of a family's candidates for a problem have in common.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) inputs: Vec<Want>,
    pub(crate) outputs: Vec<Want>,
    pub(crate) packed: Vec<Option<String>>,
}

impl Offer {
    pub(crate) fn candidate(&self, name: String, revision: u32, predicted_ns: f64) -> Candidate {
        let packed = self.packed.clone();
        let made = candidate(name, revision, self.inputs.clone(), self.outputs.clone(), predicted_ns);
        Candidate { packed, ..made }
    }
}

kernel_args! {
    /// How the products of a launch (groups, batches) are cut: tiles along rows and columns, and parts of k.
    pub(crate) struct Cut {
        tiles_m: i32,
        tiles_n: i32,
        split: i32,
    }
}

/// So many products of `m` by `n`, a way to compute them, and its kernels' parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Products<'a> {
    pub(crate) way: &'a Way,
    pub(crate) count: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
}

impl Products<'_> {
    fn tiles(&self) -> (usize, usize) {
        (self.way.tile.rows(self.m), self.way.tile.columns(self.n))
    }

    /// Refused where there are more blocks than a grid has.
    pub(crate) fn cut(&self) -> Result<Cut, KernelError> {
        let (tiles_m, tiles_n) = self.tiles();
        if self.blocks() >= 1 << 31 {
            return Err(KernelError::unsupported("a product of 2^31 blocks or more"));
        }
        Ok(Cut { tiles_m: tiles_m as i32, tiles_n: tiles_n as i32, split: self.way.split.parts() as i32 })
    }

    fn blocks(&self) -> usize {
        let (tiles_m, tiles_n) = self.tiles();
        tiles_m * tiles_n * self.count * self.way.split.parts() as usize
    }

    /// The launch of the kernel `entry`, and of the one that adds up what it leaves in memory.
    pub(crate) fn launch(
        &self,
        module: &Arc<Module>,
        entry: &str,
        params: Params,
    ) -> Result<Box<dyn Work>, KernelError> {
        let Way { tile, split, .. } = self.way;
        let launch = Launch::line(module.function(entry)?, self.blocks(), tile.threads(), params.clone())
            .with_shared(tile.shared_bytes())?
            .programmatic();
        Ok(match *split {
            Split::None => Launches::one(launch),
            Split::Cluster(parts) => Launches::one(launch.with_cluster([parts, 1, 1])),
            Split::Memory(parts) => {
                let rows = self.count * self.m;
                let columns = self.tiles().1 * tile.bn as usize;
                let blocks = (rows * self.n.div_ceil(8)).div_ceil(REDUCE_THREADS as usize);
                let function = module.function(&reducing(entry))?;
                let reduce = Launch::line(function, blocks, REDUCE_THREADS, params).programmatic();
                let workspace = parts as usize * rows * columns * 4;
                Box::new(Launches { launches: vec![launch, reduce], workspace })
            }
        })
    }
}

/// The kernel that adds up what `entry` leaves in memory.
fn reducing(entry: &str) -> String {
    format!("{entry}_reduce")
}

/// The source of the kernel `entry`, which takes an `A`, with a way's settings; `epilogue` is the
/// text of what follows the accumulators.
pub(crate) fn source<A: Field + Default>(
    file: &'static str,
    kernel: &str,
    entry: &str,
    epilogue: &str,
    way: &Way,
) -> Source {
    let source = Source::new(file, [&*args::text_of::<A>(), BLOCK, epilogue, kernel].join("\n"), entry);
    let source = match way.split {
        Split::Memory(_) => source.entry(&reducing(entry)),
        Split::None | Split::Cluster(_) => source,
    };
    let tile = way.tile;
    let (cluster, memory) = match way.split {
        Split::None => (0, 0),
        Split::Cluster(_) => (1, 0),
        Split::Memory(_) => (0, 1),
    };
    source
        .define("SIMT", u32::from(way.math == Math::F32))
        .define("MATH", way.math.name_in_c())
        .define("ELEM", way.math.element_in_c())
        .define("ACC", way.math.accumulator_in_c())
        .define("BM", tile.bm)
        .define("BN", tile.bn)
        .define("CHUNKS", tile.chunks)
        .define("WM", tile.wm)
        .define("WN", tile.wn)
        .define("WK", tile.wk)
        .define("STAGES", tile.stages)
        .define("SPLIT_CLUSTER", cluster)
        .define("SPLIT_MEMORY", memory)
}
