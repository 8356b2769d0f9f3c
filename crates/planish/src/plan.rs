//! `Plan`: a built model, in memory or in its file.

use std::path::Path;

use planish_plan as record;

use crate::Error;
use crate::bundle::Bundle;
use crate::device::Device;

/// A model that was optimized for a machine. Cloning shares the weights.
///
/// ```
/// # #[cfg(feature = "build")] {
/// use planish::{Builder, CertificateState, Plan};
///
/// # let graph = r#"graph "g" { input %x: f32[4] %y: f32[4] = Relu(%x) output %y }"#;
/// # let path = std::env::temp_dir().join(format!("planish-doc-plan-{}.plan", std::process::id()));
/// let plan = Builder::from_graph(graph.parse()?).tune_level(0).build()?;
/// assert_eq!(plan.certificate().state(), CertificateState::Checked);
/// assert_eq!(plan.save(&path)?, plan.file_bytes()?);
/// for opened in [Plan::open(&path)?, Plan::open_copied(&path)?, Plan::open_trusted(&path)?] {
///     assert_eq!(opened.fingerprint()?, plan.fingerprint()?);          // the same plan
///     assert_eq!(opened.record().program.steps.len(), 1);
/// }
/// # std::fs::remove_file(&path)?;
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) inner: record::Plan,
    /// The fingerprint of the file of several plans that it was taken from.
    pub(crate) bundle: Option<[u8; 32]>,
}

impl Plan {
    /// Opens a plan file; every byte that is not harmless is checked against its checksum. Of a file of several plans
    /// ([`Bundle`]) it is the one that suits this machine best.
    ///
    /// A plan whose program only another version of Planish can run is an error of kind
    /// [`crate::ErrorKind::NeedsRebuild`]; `Plan::open_for` gives what builds it again.
    pub fn open(path: impl AsRef<Path>) -> Result<Plan, Error> {
        if Bundle::is_one(&path) {
            return Bundle::open(path)?.best_plan(Device::Auto);
        }
        Ok(record::Plan::open(path.as_ref())?.into())
    }

    /// Opens a plan file by reading all of it into memory, and checks that copy. [`Plan::open`] maps the file and
    /// reads weights from it for as long as the plan lives; this one is for files that may be written in place
    /// meanwhile (`cp new.plan model.plan`, `rsync --inplace`), at the price of the memory.
    pub fn open_copied(path: impl AsRef<Path>) -> Result<Plan, Error> {
        if Bundle::is_one(&path) {
            return Bundle::open_copied(path)?.best_plan(Device::Auto);
        }
        Ok(record::Plan::open_copied(path.as_ref())?.into())
    }

    /// Opens a plan file without reading its weights: for files that nobody else can have changed.
    pub fn open_trusted(path: impl AsRef<Path>) -> Result<Plan, Error> {
        if Bundle::is_one(&path) {
            return Bundle::open(path)?.best_plan(Device::Auto);
        }
        Ok(record::Plan::open_trusted(path.as_ref())?.into())
    }

    /// What a plan file says of itself: versions, devices, shapes, precision, and pairs of the user's own. Nothing else of
    /// the file is read, and it need not be one that can run here.
    ///
    /// ```
    /// # #[cfg(feature = "build")] {
    /// use planish::{Builder, Plan};
    ///
    /// # let graph = r#"graph "g" { input %x: f32[n,4] %y: f32[n,4] = Relu(%x) output %y }"#;
    /// # let path = std::env::temp_dir().join(format!("planish-doc-metadata-{}.plan", std::process::id()));
    /// Builder::from_graph(graph.parse()?).metadata("labels", "cat,dog").tune_level(0).build()?.save(&path)?;
    /// let metadata = Plan::metadata(&path)?;
    /// assert_eq!((metadata.header.name.as_str(), metadata.precision()), ("g", "fp32"));
    /// assert_eq!(metadata.inputs[0].ty.to_string(), "f32[n,4]");
    /// assert_eq!(metadata.header.metadata, [("labels".to_string(), "cat,dog".to_string())]);
    /// # std::fs::remove_file(&path)?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metadata(path: impl AsRef<Path>) -> Result<record::PlanMetadata, Error> {
        Ok(record::PlanMetadata::read(path.as_ref())?)
    }

    /// Whether its weights were left out (`Plan::strip`).
    pub fn is_stripped(&self) -> bool {
        self.inner.stripped.is_some()
    }

    /// What the plan's self-check found; its state says whether there was one.
    pub fn certificate(&self) -> &record::Certificate {
        &self.inner.certificate
    }

    /// Writes the plan's file, at once or not at all, and reads it back; gives its length.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        Ok(self.inner.write_file(path.as_ref())?)
    }

    /// Bytes that the plan's file has.
    pub fn file_bytes(&self) -> Result<u64, Error> {
        Ok(self.inner.file_bytes()?)
    }

    /// What a signature of the plan speaks for: [`crate::PrivateKey::sign`] takes it. Of a plan from a file of several that is
    /// the file's, with all plans in it.
    pub fn fingerprint(&self) -> Result<[u8; 32], Error> {
        self.bundle.map_or_else(|| Ok(self.inner.fingerprint()?), Ok)
    }

    /// Everything that the plan holds.
    pub fn record(&self) -> &record::Plan {
        &self.inner
    }
}

impl From<record::Plan> for Plan {
    fn from(inner: record::Plan) -> Plan {
        Plan { inner, bundle: None }
    }
}
