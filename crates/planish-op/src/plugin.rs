//! Operators that plugins bring, as inference and the reference see them: a registry for the whole process.
//!
//! What a plugin is made of (its declaration, its kernels, where it was loaded from) stands in `planish-plugin`. Here is
//! only what the stages below kernels ask, and how a plan's word for a plugin is compared with what is loaded.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use planish_tensor::{DType, Tensor};

use crate::infer::{InferResult, Inference};
use crate::{Custom, Lowering, Op};

/// What tells one implementation of an operator from others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub domain: String,
    pub name: String,
    pub version: i64,
    /// Of the file's bytes, or of the declaration of one that is part of the program: 16 hexadecimal digits.
    pub hash: String,
    /// Where it came from: a path, or words.
    pub origin: String,
}

impl Identity {
    /// What a plan that uses it says that it needs.
    pub fn need(&self) -> String {
        format!("{NEED}{self} {}", self.hash)
    }

    fn is_of(&self, op: &Custom) -> bool {
        (&self.domain, &self.name, self.version) == (&op.domain, &op.name, op.version)
    }
}

/// As `my.ops::Rope@1`.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}@{}", self.domain, self.name, self.version)
    }
}

/// How needs of plans begin that are plugins: `plugin my.ops::Rope@1 0123456789abcdef`.
const NEED: &str = "plugin ";

/// An operator that is not in the table.
pub trait CustomOp: Any + Send + Sync + fmt::Debug {
    fn identity(&self) -> &Identity;

    /// Refuses attributes that it does not have, or of other kinds.
    fn check_attributes(&self, op: &Custom) -> Result<(), String>;

    /// As [`crate::infer()`].
    fn infer(&self, op: &Custom, cx: &mut Inference<'_>) -> InferResult;

    /// Whether [`CustomOp::evaluate`] computes anything.
    fn has_reference(&self) -> bool;

    /// Its own reference.
    fn evaluate(
        &self,
        op: &Custom,
        inputs: &[Option<&Tensor>],
        n_outputs: usize,
    ) -> Result<Vec<Tensor>, String>;

    /// How far results of this type may be from the reference: relative to the result, and as much besides where the
    /// result is below 1.
    fn tolerance(&self, dtype: DType) -> f64;

    /// Whether its kernels go on with pointwise operators while a result is at hand.
    fn takes_epilogue(&self) -> bool;

    /// When it is computed in 16 bits, if that is asked for.
    fn lowering(&self) -> Lowering;
}

/// In the order in which they were registered; never taken out.
static REGISTERED: RwLock<Vec<Arc<dyn CustomOp>>> = RwLock::new(Vec::new());

/// Makes an operator known to the whole process. The same one twice is one.
pub fn register(op: Arc<dyn CustomOp>) {
    let mut all = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let new = op.identity();
    let is_known = |known: &Arc<dyn CustomOp>| {
        let known = known.identity();
        known.to_string() == new.to_string() && known.hash == new.hash
    };
    if !all.iter().any(is_known) {
        all.push(op);
    }
}

/// All that are registered.
pub fn registered() -> Vec<Arc<dyn CustomOp>> {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The implementations of an operator: several where each brings kernels for another device.
pub fn implementations(op: &Custom) -> Vec<Arc<dyn CustomOp>> {
    let mut all = registered();
    all.retain(|known| known.identity().is_of(op));
    all
}

/// Who defines an operator: the first that was registered, one with a reference before those without.
pub fn find(op: &Custom) -> Option<Arc<dyn CustomOp>> {
    let all = implementations(op);
    let with_reference = all.iter().find(|known| known.has_reference());
    with_reference.or(all.first()).cloned()
}

/// Whether an operator is a plugin's that is not loaded: nobody can be asked of it.
pub fn is_missing(op: &Op) -> bool {
    matches!(op, Op::Custom(op) if find(op).is_none())
}

/// The version of an operator that a model of this opset means: the newest that is not newer.
pub fn version_for(domain: &str, name: &str, opset: i64) -> Option<i64> {
    let all = registered();
    let versions = all.iter().map(|known| known.identity());
    versions
        .filter(|known| known.domain == domain && known.name == name && known.version <= opset)
        .map(|known| known.version)
        .max()
}

/// Whether a need of a plan is one for a plugin.
pub fn is_need(need: &str) -> bool {
    need.starts_with(NEED)
}

/// Whether the plugin that a plan needs is here; the error says what is here instead, and what to do.
pub fn provides(need: &str) -> Result<(), String> {
    let bad = || Err(format!("the plan needs {need:?}, which names no plugin: it is damaged"));
    let Some((operator, hash)) = need.strip_prefix(NEED).and_then(|rest| rest.split_once(' ')) else {
        return bad();
    };
    let Some((op, _version)) = operator.split_once('@') else { return bad() };
    let all = registered();
    let same_op = |known: &&Arc<dyn CustomOp>| {
        let identity = known.identity();
        format!("{}::{}", identity.domain, identity.name) == op
    };
    let mut here = all.iter().filter(same_op).map(|known| known.identity()).peekable();
    if here.peek().is_none() {
        return Err(format!(
            "the plan needs the plugin {operator} (hash {hash}), which is not loaded: give its file by `--plugin FILE`"
        ));
    }
    let here: Vec<_> = here.collect();
    if here.iter().any(|known| known.to_string() == operator && known.hash == hash) {
        return Ok(());
    }
    let known = here.iter().find(|known| known.to_string() == operator).unwrap_or(&here[0]);
    let what = match known.to_string() == operator {
        true => format!("another one of this name (hash {})", known.hash),
        false => format!("version {}", known.version),
    };
    Err(format!(
        "the plan was built with the plugin {operator} (hash {hash}), {} is {what}: load the file that it was built with, or \
         build the plan again with this one (`planish build MODEL --plugin FILE`)",
        known.origin
    ))
}
