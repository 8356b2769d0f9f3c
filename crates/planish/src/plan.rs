//! `Plan`: a built model, in memory or in its file.

use std::path::Path;

use planish_plan as record;

use crate::Error;

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
}

impl Plan {
    /// Opens a plan file; every byte that is not harmless is checked against its checksum.
    ///
    /// A plan whose program only another version of Planish can run is an error of kind
    /// [`crate::ErrorKind::NeedsRebuild`]; `Plan::open_for` gives what builds it again.
    pub fn open(path: impl AsRef<Path>) -> Result<Plan, Error> {
        Ok(Plan { inner: record::Plan::open(path.as_ref())? })
    }

    /// Opens a plan file by reading all of it into memory, and checks that copy. [`Plan::open`] maps the file and
    /// reads weights from it for as long as the plan lives; this one is for files that may be written in place
    /// meanwhile (`cp new.plan model.plan`, `rsync --inplace`), at the price of the memory.
    pub fn open_copied(path: impl AsRef<Path>) -> Result<Plan, Error> {
        Ok(Plan { inner: record::Plan::open_copied(path.as_ref())? })
    }

    /// Opens a plan file without reading its weights: for files that nobody else can have changed.
    pub fn open_trusted(path: impl AsRef<Path>) -> Result<Plan, Error> {
        Ok(Plan { inner: record::Plan::open_trusted(path.as_ref())? })
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

    /// What a signature of the plan speaks for: [`crate::PrivateKey::sign`] takes it.
    pub fn fingerprint(&self) -> Result<[u8; 32], Error> {
        Ok(self.inner.fingerprint()?)
    }

    /// Everything that the plan holds.
    pub fn record(&self) -> &record::Plan {
        &self.inner
    }
}

impl From<record::Plan> for Plan {
    fn from(inner: record::Plan) -> Plan {
        Plan { inner }
    }
}
