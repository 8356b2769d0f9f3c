//! Why a pipeline could not run.

use std::fmt;

use planish_ir::GraphError;

/// Wrong letters in a name up to which another one is taken for the one that was meant.
const MAX_TYPOS: usize = 4;

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PassErrorKind {
    /// The options name a pass that there is not.
    UnknownPass { known: Vec<&'static str> },
    /// The caller asked to stop.
    Cancelled,
    /// A patch of the pass does not fit the graph: a fault of the pass.
    BadPatch(GraphError),
    /// The patches of the pass need each other's results: a fault of the pass.
    Cycle { value: String },
    /// The graph that the pass left does not verify: a fault of the pass.
    Broken(GraphError),
}

/// A pipeline that could not run, and the pass where it stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassError {
    pass: String,
    kind: PassErrorKind,
}

impl PassError {
    pub(crate) fn new(pass: &str, kind: PassErrorKind) -> PassError {
        PassError { pass: pass.to_string(), kind }
    }

    /// The pass that is at fault, or was asked for.
    pub fn pass(&self) -> &str {
        &self.pass
    }

    pub fn kind(&self) -> &PassErrorKind {
        &self.kind
    }
}

impl fmt::Display for PassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = &self.pass;
        match &self.kind {
            PassErrorKind::UnknownPass { known } => {
                let distance = |name: &&&str| strsim::damerau_levenshtein(name, pass);
                write!(f, "there is no pass `{pass}`; ")?;
                match known.iter().min_by_key(distance).filter(|name| distance(name) <= MAX_TYPOS) {
                    Some(near) => write!(f, "did you mean `{near}`?"),
                    None => write!(f, "there are {}", known.join(", ")),
                }
            }
            PassErrorKind::Cancelled => write!(f, "pass `{pass}` was stopped"),
            PassErrorKind::BadPatch(error) => {
                write!(f, "pass `{pass}` made a patch that does not fit: {error}; switch the pass off")
            }
            PassErrorKind::Cycle { value } => {
                write!(f, "pass `{pass}` would have `{value}` computed from itself; switch the pass off")
            }
            PassErrorKind::Broken(error) => {
                write!(f, "pass `{pass}` left a graph that does not verify: {error}; switch the pass off")
            }
        }
    }
}

impl std::error::Error for PassError {}
