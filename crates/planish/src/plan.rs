//! `Plan`: a built model, in memory or in its file.

use std::path::Path;

use planish_plan::PlanErrorKind;

use crate::error::Error;

/// A model that was optimized for a machine. Cloning shares the weights.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) inner: planish_plan::Plan,
}

impl Plan {
    /// Opens a plan file; every byte that is not harmless is checked against its checksum.
    ///
    /// One whose program only another version of Planish can run is built again for [`crate::Device::Auto`], with a
    /// note on standard error, where the feature `build` is there.
    pub fn open(path: impl AsRef<Path>) -> Result<Plan, Error> {
        match planish_plan::Plan::open(path.as_ref()) {
            #[cfg(feature = "build")]
            Err(error) if is_of_another_version(&error) => {
                crate::rebuild::fitted(Plan::open_for(path, crate::Device::Auto)?)
            }
            opened => Ok(Plan { inner: opened? }),
        }
    }

    /// Opens a plan file by reading all of it into memory, and checks that copy. [`Plan::open`] maps the file and
    /// reads weights from it for as long as the plan lives; this one is for files that may be written in place
    /// meanwhile (`cp new.plan model.plan`, `rsync --inplace`), at the price of the memory.
    pub fn open_copied(path: impl AsRef<Path>) -> Result<Plan, Error> {
        Ok(Plan { inner: planish_plan::Plan::open_copied(path.as_ref())? })
    }

    /// Opens a plan file without reading its weights: for files that nobody else can have changed.
    pub fn open_trusted(path: impl AsRef<Path>) -> Result<Plan, Error> {
        Ok(Plan { inner: planish_plan::Plan::open_trusted(path.as_ref())? })
    }

    /// What the plan's self-check found; its state says whether there was one.
    pub fn certificate(&self) -> &planish_plan::Certificate {
        &self.inner.certificate
    }

    /// Writes the plan's file, at once or not at all, and reads it back; gives its length.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        Ok(self.inner.write_file(path.as_ref())?)
    }

    /// Everything that the plan holds.
    pub fn record(&self) -> &planish_plan::Plan {
        &self.inner
    }
}

/// Whether what a plan runs is of another version, and what it is built from can be read.
pub(crate) fn is_of_another_version(error: &planish_plan::PlanError) -> bool {
    matches!(error.kind(), PlanErrorKind::OtherProgram | PlanErrorKind::Unknown)
}

impl From<planish_plan::Plan> for Plan {
    fn from(inner: planish_plan::Plan) -> Plan {
        Plan { inner }
    }
}
