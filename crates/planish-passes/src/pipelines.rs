//! The order of the passes, and why each stands where it does. Nothing else knows the order.

use crate::driver::{Pass, Pipeline};
use crate::passes::remove_identity::RemoveIdentity;

/// The passes that every build runs.
pub fn standard() -> Pipeline {
    Pipeline::new(vec![
        // First, so that no later pattern has to look through nodes that do nothing.
        Pass::rule(RemoveIdentity),
    ])
}
