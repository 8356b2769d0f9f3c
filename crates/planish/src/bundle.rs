//! `Bundle`: several plans of one model in one file, each for another target.

use std::io::Read;
use std::path::Path;

use planish_cpu::isa::Isa;
use planish_plan as record;
use planish_plan::{Header, PlanMetadata};

use crate::device::{Device, is_accelerated};
use crate::plan::Plan;
use crate::{Error, ErrorKind};

/// Several plans of one model in one file, each for another target. [`Plan::open`] takes the best of them that fits.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::{Builder, Bundle, Device, Plan};
///
/// # let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
/// # let path = std::env::temp_dir().join(format!("planish-doc-bundle-{}.plan", std::process::id()));
/// let plan = Builder::from_graph(graph.parse()?).device(Device::Cpu).tune_level(0).build()?;
/// let plan = plan.with_plain_weights()?;                               // so that plans share them
/// let n_bytes = Bundle::save(&[plan.clone()], &path)?;                 // and plans of it for other targets
/// assert!(Bundle::is_one(&path));
/// let bundle = Bundle::open(&path)?;                                   // or open_copied
/// assert_eq!((bundle.file_bytes(), bundle.plan(0)?.record()), (n_bytes, plan.record()));
/// assert_eq!(bundle.members().len(), 1);
/// assert_eq!(bundle.best_for(Device::Cpu), Some(0));
/// assert_eq!(Plan::open(&path)?.record(), plan.record());              // the best of them
/// assert_eq!(Plan::open(&path)?.fingerprint()?, bundle.fingerprint()); // a signature speaks for all of them
/// # std::fs::remove_file(&path)?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Bundle {
    inner: record::Bundle,
}

impl Bundle {
    /// Writes a file of these plans, at once or not at all, and gives its length. They must be of one model, and each for
    /// another target.
    pub fn save(plans: &[Plan], path: impl AsRef<Path>) -> Result<u64, Error> {
        let refused = |message: String| Err(Error::new(ErrorKind::BadOption, message));
        let header = |plan: &Plan| plan.inner.header.clone();
        for (idx, plan) in plans.iter().enumerate() {
            let own = header(plan);
            for earlier in plans[..idx].iter().map(header) {
                if (own.source, &own.name) != (earlier.source, &earlier.name) {
                    return refused(format!(
                        "the plans `{}` and `{}` are not of one model; a bundle has plans of one model for several targets",
                        earlier.name, own.name
                    ));
                }
                if needs(&own) == needs(&earlier) {
                    return refused(format!("two plans are for {}; give one for each target", needs(&own)));
                }
            }
        }
        let plans: Vec<record::Plan> = plans.iter().map(|plan| plan.inner.clone()).collect();
        Ok(record::Bundle::write_file(&plans, path.as_ref())?)
    }

    /// Opens a file of several plans. What each says of itself is read, and none is opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Bundle, Error> {
        Ok(Bundle { inner: record::Bundle::open(path.as_ref())? })
    }

    /// The same from a copy of the file in memory.
    pub fn open_copied(path: impl AsRef<Path>) -> Result<Bundle, Error> {
        Ok(Bundle { inner: record::Bundle::open_copied(path.as_ref())? })
    }

    /// Whether a file is one of several plans, by its first bytes; what cannot be read is none.
    pub fn is_one(path: impl AsRef<Path>) -> bool {
        let mut first = [0u8; 8];
        let read = planish_files::open(path.as_ref()).and_then(|mut file| file.read(&mut first));
        read.is_ok_and(|n| record::is_bundle(&first[..n]))
    }

    /// What each plan says of itself.
    pub fn members(&self) -> &[PlanMetadata] {
        self.inner.members()
    }

    /// The number of the plan that suits a device of this machine best: one for its GPU before one for its CPU, and of these
    /// the one with the widest instructions that it has. `None` where none of them runs here.
    pub fn best_for(&self, device: Device) -> Option<usize> {
        let rank = |(idx, member): (usize, &PlanMetadata)| {
            let header = &member.header;
            let runs = member.is_current && runs_on(header, device);
            runs.then(|| ((is_accelerated(&header.targets), width(header)), idx))
        };
        let all = self.members().iter().enumerate().filter_map(rank);
        // Of equals the first.
        all.fold(None, |best: Option<((bool, usize), usize)>, one| match best {
            Some(best) if best.0 >= one.0 => Some(best),
            _ => Some(one),
        })
        .map(|(_, idx)| idx)
    }

    /// One of the plans; all of it is verified.
    pub fn plan(&self, idx: usize) -> Result<Plan, Error> {
        Ok(Plan { inner: self.inner.plan(idx)?, bundle: Some(self.inner.fingerprint()) })
    }

    /// The plan that suits a device best; where none runs here, the first, which tells what it needs.
    pub(crate) fn best_plan(&self, device: Device) -> Result<Plan, Error> {
        self.plan(self.best_for(device).unwrap_or(0))
    }

    /// What a signature of the file speaks for: all plans in it, every byte.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.inner.fingerprint()
    }

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        self.inner.file_bytes()
    }
}

/// What a plan needs, in words.
fn needs(header: &Header) -> String {
    let one = |target: &planish_kernel::Target| format!("{} with {}", target.backend, target.needs.join(" "));
    header.targets.iter().map(one).collect::<Vec<_>>().join(" and ")
}

/// Whether all targets of a plan are here.
fn runs_on(header: &Header, device: Device) -> bool {
    let wanted = device.accelerator();
    header.producer == planish_runtime::VERSION
        && wanted.is_none_or(|name| header.targets.iter().any(|target| target.backend == name))
        && header.targets.iter().all(|target| {
            device.backend_for(target).is_ok_and(|backend| planish_runtime::fits(target, &*backend))
        })
}

/// The place of a plan's instruction set among those of this machine, the widest last.
fn width(header: &Header) -> usize {
    let isa = header.targets.iter().find(|target| target.backend == "cpu");
    let isa = isa.and_then(|target| target.needs.first()).and_then(|name| Isa::named(name));
    isa.map_or(0, |isa| Isa::available().into_iter().filter(|known| known.is_within(isa)).count())
}
