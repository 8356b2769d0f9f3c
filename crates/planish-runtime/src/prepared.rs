//! The segments of a program at the sizes that were met: prepared once, kept while they are used.

use std::sync::Arc;

use planish_kernel::Operand;

use crate::bind::Symbols;
use crate::engine::{Core, Unit};
use crate::error::RunError;
use crate::faults::Faults;
use crate::feed::Feed;
use crate::resolve::{Resolved, resolve};
use crate::run::Mode;

/// Segments at distinct sizes that a frame keeps prepared. A thousand distinct shapes in a row then cost a
/// resolve each, and memory stays bounded.
const MAX_RESOLVED: usize = 32;

/// Beyond them, steps on the host that are kept: the body of a loop that grows a sequence meets as many sizes in each run
/// as it has turns, and to prepare it anew takes as long as to run it. A step takes about a kilobyte.
const MAX_STEPS: usize = 8192;

/// The segments of one program at the sizes that it met.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Each with the number of its segment, most recently used first.
    cache: Vec<(usize, Arc<Resolved>)>,
    /// The segments of the last run, and the input sizes it had.
    current: Vec<Arc<Resolved>>,
    last_dims: Vec<Vec<usize>>,
    n_resolved: usize,
}

impl Prepared {
    /// The only segment of the last run, if it had inputs of these sizes.
    pub(crate) fn same_again(&self, feeds: &[Feed<'_>]) -> Option<Arc<Resolved>> {
        let same = self.last_dims.len() == feeds.len()
            && feeds.iter().zip(&self.last_dims).all(|(feed, last)| feed.dims().unwrap_or(&[]) == *last);
        match &self.current[..] {
            [only] if same => Some(only.clone()),
            _ => None,
        }
    }

    /// A segment at these sizes, prepared now if it is not known. Notes its steps that may tell of faults.
    pub(crate) fn find(
        &mut self,
        core: &Core,
        unit: &Unit,
        segment: usize,
        symbols: &Symbols,
        mode: Mode,
        faults: &mut Faults,
    ) -> Result<Arc<Resolved>, RunError> {
        let found = self.cache.iter().position(|(at, known)| *at == segment && known.symbols == *symbols);
        let resolved = match found {
            Some(at) => self.cache.remove(at).1,
            None => {
                self.n_resolved += 1;
                let resolved = resolve(core, unit, segment, symbols, mode.threads, mode.streams)?;
                resolved.steps.iter().filter_map(|step| step.fault).for_each(|step| faults.note(step));
                self.make_room(resolved.steps.len());
                Arc::new(resolved)
            }
        };
        self.cache.insert(0, (segment, resolved.clone()));
        Ok(resolved)
    }

    /// Drops what was not used for longest, so that a segment of so many steps fits.
    fn make_room(&mut self, mut n_steps: usize) {
        let is_kept = |(place, (_, known)): &(usize, &(usize, Arc<Resolved>))| {
            n_steps += known.steps.len();
            // A device's graphs take memory there.
            place + 1 < MAX_RESOLVED || (n_steps <= MAX_STEPS && known.spans.is_empty())
        };
        let n_kept = self.cache.iter().enumerate().take_while(is_kept).count();
        self.cache.truncate(n_kept);
    }

    /// This segment is a part of the run that is under way.
    pub(crate) fn enter(&mut self, resolved: Arc<Resolved>) {
        self.current.push(resolved);
    }

    /// The run that was under way is done; it had inputs of these sizes.
    pub(crate) fn done(&mut self, dims: &[Option<&[usize]>]) {
        self.last_dims = dims.iter().map(|dims| dims.unwrap_or(&[]).to_vec()).collect();
    }

    /// Nothing is prepared any more: what kernels were prepared with is another one's now.
    pub(crate) fn clear(&mut self) {
        self.forget();
        self.cache.clear();
    }

    /// There is no last run any more: the next one starts anew.
    pub(crate) fn forget(&mut self) {
        self.last_dims.clear();
        self.current.clear();
    }

    /// Whether there is a last run.
    pub(crate) fn has_run(&self) -> bool {
        !self.current.is_empty()
    }

    /// What the last run knew of a value.
    pub(crate) fn last_operand(&self, value: u32) -> Option<&Operand> {
        self.current.iter().rev().find_map(|resolved| resolved.operands[value as usize].as_ref())
    }

    /// All that is kept.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Resolved> {
        self.cache.iter().map(|(_, resolved)| &**resolved)
    }

    /// How often sizes were met that had to be resolved.
    pub(crate) fn n_resolved(&self) -> usize {
        self.n_resolved
    }
}
