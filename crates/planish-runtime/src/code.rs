//! `CodeFrom`: where the compiled code of an engine's kernels comes from, and whose plans may bring it.

use planish_kernel::Code;
use planish_plan::{Plan, PublicKey, Signature};

use crate::error::{RunError, RunErrorKind};

/// Where the compiled code of kernels comes from. Kernels of the CPU are part of this program; a plan for a GPU carries
/// machine code, which runs with the rights of the process that opens it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CodeFrom {
    /// From the plan; what it lacks is compiled here. For plans from somebody that you trust.
    #[default]
    Plan,
    /// Compiled here from this program's own sources, whatever the plan carries. Needs NVRTC where the kernels were not
    /// compiled before.
    CompileHere,
    /// From the plan, if its signature is valid and by one of these keys; the engine is not opened otherwise, whether
    /// the plan has code or not.
    Signed { keys: Vec<PublicKey>, signature: Box<Signature> },
}

impl CodeFrom {
    /// Whether a plan may be opened in this way.
    pub fn check(&self, plan: &Plan) -> Result<(), RunError> {
        self.check_fingerprint(&plan.header.name, || Ok(plan.fingerprint()?))
    }

    /// The same of what a plan's signature speaks for; it is asked for only where there is one to be compared.
    pub fn check_fingerprint(
        &self,
        name: &str,
        fingerprint: impl FnOnce() -> Result<[u8; 32], RunError>,
    ) -> Result<(), RunError> {
        let CodeFrom::Signed { keys, signature } = self else { return Ok(()) };
        let untrusted = |why: String| {
            RunError::new(RunErrorKind::Untrusted, format!("the plan `{name}` is not trusted: {why}"))
        };
        let fingerprint = fingerprint().map_err(|error| untrusted(error.to_string()))?;
        signature.verify(&fingerprint, keys).map_err(|why| untrusted(why.to_string()))
    }

    /// The code that an engine of the plan may use.
    pub(crate) fn taken_from<'a>(&self, plan: &'a Plan) -> Result<&'a [Code], RunError> {
        self.check(plan)?;
        Ok(match self {
            CodeFrom::Plan | CodeFrom::Signed { .. } => &plan.code,
            CodeFrom::CompileHere => &[],
        })
    }
}
