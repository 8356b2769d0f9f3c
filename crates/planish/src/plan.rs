//! `Plan`: a built model, in memory or in its file.

use std::path::Path;

use crate::error::Error;

/// A model that was optimized for a machine. Cloning shares the weights.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) inner: planish_plan::Plan,
}

impl Plan {
    /// Opens a plan file; every byte that is not harmless is checked against its checksum.
    pub fn open(path: impl AsRef<Path>) -> Result<Plan, Error> {
        Ok(Plan { inner: planish_plan::Plan::open(path.as_ref())? })
    }

    /// Opens a plan file without reading its weights: for files that nobody else can have changed.
    pub fn open_trusted(path: impl AsRef<Path>) -> Result<Plan, Error> {
        Ok(Plan { inner: planish_plan::Plan::open_trusted(path.as_ref())? })
    }

    /// Writes the plan's file, at once or not at all; gives its length.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<u64, Error> {
        Ok(self.inner.write_file(path.as_ref())?)
    }

    /// Everything that the plan holds.
    pub fn record(&self) -> &planish_plan::Plan {
        &self.inner
    }
}

impl From<planish_plan::Plan> for Plan {
    fn from(inner: planish_plan::Plan) -> Plan {
        Plan { inner }
    }
}
