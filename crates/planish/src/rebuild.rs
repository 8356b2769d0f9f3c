//! Plans of other machines and versions, built anew from the graph that they carry.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use planish_compile::{BuildOptions, Built, Progress, TimingCache, recover};
use planish_kernel::Backend;
use planish_plan::{PlanError, Recipe};

use crate::bundle::Bundle;
use crate::device::{Device, is_accelerated, unpack};
use crate::plan::Plan;
use crate::{Error, ErrorKind};

/// A plan that is to be built again for this machine, and why.
///
/// ```
/// use planish::{Builder, Device, Opened, Plan};
///
/// # let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
/// # let path = std::env::temp_dir().join(format!("planish-doc-rebuild-{}.plan", std::process::id()));
/// # Builder::from_graph(graph.parse()?).tune_level(0).device(Device::Cpu).build()?.save(&path)?;
/// let plan = match Plan::open_for(&path, Device::Cpu)? {       // or open_copied_for, or fit of a plan that is open
///     Opened::Fits(plan) => plan,
///     Opened::NeedsRebuild(rebuild) => {
///         println!("{}", rebuild.why());
///         let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
///         let rebuild = rebuild.cancel(stop);                  // which another thread may set
///         rebuild.progress(Some(std::sync::Arc::new(|stage, _, _| println!("{stage}")))).build()?
///     }
/// };
/// assert!(matches!(plan.fit(Device::Cpu)?, Opened::Fits(_)));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rebuild {
    recipe: Recipe,
    why: String,
    device: Device,
    progress: Option<Progress>,
    cancel: Option<Arc<AtomicBool>>,
}

impl fmt::Debug for Rebuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.recipe.header.name;
        f.debug_struct("Rebuild").field("name", name).field("why", &self.why).finish_non_exhaustive()
    }
}

/// A plan file, opened for a device.
/// Given by [`Plan::open_for`] and [`Plan::fit`]; [`Rebuild`] has an example of both cases.
#[derive(Debug)]
pub enum Opened {
    /// It runs as it is.
    Fits(Plan),
    /// It was built for another machine or by another version.
    NeedsRebuild(Rebuild),
}

impl Rebuild {
    /// What differs, as in `built for cpu with avx512, this is cpu with avx2`.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Told about the stages of the build.
    pub fn progress(mut self, progress: Option<Progress>) -> Rebuild {
        self.progress = progress;
        self
    }

    /// Stops the build once it is set from another thread.
    pub fn cancel(mut self, cancel: Arc<AtomicBool>) -> Rebuild {
        self.cancel = Some(cancel);
        self
    }

    /// What a [`crate::PlanCache`] keeps the plan under once it is built.
    pub fn cache_key(&self) -> Result<Option<String>, Error> {
        let recovered = recover(&self.recipe, &unpack)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.recipe.header.source);
        hasher.update(self.recipe.graph.as_bytes());
        self.recipe.weights.iter().for_each(|weight| {
            hasher.update(&weight.bytes);
        });
        let source = *hasher.finalize().as_bytes();
        Ok(crate::plan_cache::key(&source, &recovered.options, &self.device.backends()?))
    }

    /// Builds the plan again, with the options that it was built with.
    pub fn build(self) -> Result<Plan, Error> {
        Ok(self.build_with_report()?.plan.into())
    }

    /// The same, with what the build has to say.
    pub fn build_with_report(self) -> Result<Built, Error> {
        let recovered = recover(&self.recipe, &unpack)?;
        let mut options = BuildOptions { progress: self.progress, ..recovered.options };
        options.cancel = self.cancel.unwrap_or(options.cancel);
        let backends = self.device.backends()?;
        let mut built =
            planish_compile::build(&recovered.graph, &backends, &options, &mut TimingCache::default())?;
        built.plan.header.name = self.recipe.header.name;
        built.notes.splice(0..0, recovered.notes);
        Ok(built)
    }
}

impl Plan {
    /// Opens a plan file for a device: a plan of another machine or another version comes back as what is to be
    /// built again.
    pub fn open_for(path: impl AsRef<Path>, device: Device) -> Result<Opened, Error> {
        let path = path.as_ref();
        if Bundle::is_one(path) {
            return Bundle::open(path)?.best_plan(device)?.fit(device);
        }
        open_for(planish_plan::Plan::open(path), || Recipe::open(path), device)
    }

    /// The same from a copy of the file in memory, as [`Plan::open_copied`] makes it. [`Rebuild`] has an example.
    pub fn open_copied_for(path: impl AsRef<Path>, device: Device) -> Result<Opened, Error> {
        let path = path.as_ref();
        if Bundle::is_one(path) {
            return Bundle::open_copied(path)?.best_plan(device)?.fit(device);
        }
        open_for(planish_plan::Plan::open_copied(path), || Recipe::open_copied(path), device)
    }

    /// Whether the plan fits a device as it is.
    pub fn fit(self, device: Device) -> Result<Opened, Error> {
        let device = device.settled_for(&self.inner.header.targets);
        Ok(match unfit(&self.inner, device)? {
            None => Opened::Fits(self),
            Some(why) => {
                let recipe = self.inner.recipe();
                Opened::NeedsRebuild(Rebuild { recipe, why, device, progress: None, cancel: None })
            }
        })
    }
}

fn open_for(
    opened: Result<planish_plan::Plan, PlanError>,
    recipe: impl FnOnce() -> Result<Recipe, PlanError>,
    device: Device,
) -> Result<Opened, Error> {
    let error = match opened {
        Ok(plan) => return Plan::from(plan).fit(device),
        Err(error) => Error::from(error),
    };
    let ErrorKind::NeedsRebuild { why, .. } = error.kind() else { return Err(error) };
    let why = why.clone();
    let recipe = recipe()?;
    let device = device.settled_for(&recipe.header.targets);
    Ok(Opened::NeedsRebuild(Rebuild { recipe, why, device, progress: None, cancel: None }))
}

/// Why a plan should not run on a device as it is.
fn unfit(plan: &planish_plan::Plan, device: Device) -> Result<Option<String>, Error> {
    if plan.header.producer != planish_runtime::VERSION {
        let (theirs, ours) = (&plan.header.producer, planish_runtime::VERSION);
        return Ok(Some(format!("the plan was built by Planish {theirs}, this is {ours}")));
    }
    planish_runtime::plugins_are_here(&plan.header.targets)?;
    let backends = device.backends()?;
    let fits = plan.header.targets.len() == backends.len()
        && plan.header.targets.iter().zip(&backends).all(|(target, backend)| {
            // What a plan for a GPU leaves to the CPU is not worth a build of its own.
            let is_aside = target.backend == "cpu" && is_accelerated(&plan.header.targets);
            let fits = |backend: &dyn Backend| planish_runtime::fits(target, backend);
            fits(&**backend) || (is_aside && device.backend_for(target).is_ok_and(|own| fits(&*own)))
        });
    if fits {
        return Ok(None);
    }
    let one = |name: &str, needs: &[String]| format!("{name} with {}", needs.join(" "));
    let there: Vec<String> =
        plan.header.targets.iter().map(|target| one(&target.backend, &target.needs)).collect();
    let here = backends.iter().map(|backend| backend.target());
    let here: Vec<String> = here.map(|target| one(&target.backend, &target.needs)).collect();
    Ok(Some(format!("the plan was built for {}, this is {}", there.join(" and "), here.join(" and "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Engine};

    #[test]
    fn nothing_is_built_again_unasked() {
        let text = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
        let builder = Builder::from_graph(text.parse().unwrap()).device(Device::Cpu).tune_level(0);
        let mut record = builder.build().unwrap().record().clone();
        record.header.producer = "0.0.1".to_string();
        let plan = Plan::from(record);
        let error = Engine::new(plan.clone(), Device::Cpu).unwrap_err();
        let ErrorKind::NeedsRebuild { why, command } = error.kind() else { panic!("{error}") };
        assert!(why.contains("0.0.1"), "{why}");
        assert!(command.starts_with("planish build"), "{command}");
        // Who asks for it gets it.
        let Opened::NeedsRebuild(rebuild) = plan.fit(Device::Cpu).unwrap() else { panic!("it fits") };
        assert!(rebuild.why().contains("0.0.1"), "{}", rebuild.why());
        Engine::new(rebuild.build().unwrap(), Device::Cpu).unwrap();
    }
}
