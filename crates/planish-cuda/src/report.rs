//! What this machine has of CUDA, for `planish doctor`.

use crate::driver::{self, Context};
use crate::error::CudaError;
use crate::find::{self, Which};
use crate::gpu::Gpu;

/// A library: where it is and its version, or what is missing and what installs it.
#[derive(Clone, Debug)]
pub struct LibraryReport {
    pub which: Which,
    pub found: Result<find::Found, CudaError>,
}

impl LibraryReport {
    /// The name of the file that was found, or of the newest that the driver runs.
    pub fn file(&self) -> &'static str {
        match &self.found {
            Ok(found) => found.toolkit.map_or(self.which.file(), |toolkit| self.which.file_for(toolkit)),
            Err(_) => self.which.file(),
        }
    }
}

/// What there is.
#[derive(Clone, Debug)]
pub struct Report {
    pub libraries: Vec<LibraryReport>,
    /// Every device with its free bytes, or why there is none.
    pub gpus: Result<Vec<(Gpu, usize)>, CudaError>,
}

impl Report {
    /// Looks for every library, and asks the driver for its devices.
    pub fn look() -> Report {
        let libraries = Which::ALL
            .into_iter()
            .map(|which| LibraryReport { which, found: find::find(which).cloned() })
            .collect();
        Report { libraries, gpus: gpus() }
    }
}

fn gpus() -> Result<Vec<(Gpu, usize)>, CudaError> {
    (0..driver::count()?)
        .map(|index| {
            let context = Context::open(index)?;
            Ok((context.gpu().clone(), context.memory_info()?.0))
        })
        .collect()
}
