//! The order of the passes, and why each stands where it does. Nothing else knows the order.

use crate::driver::{Pass, Pipeline};
use crate::passes::fold_constants::FoldConstants;
use crate::passes::fold_shapes::FoldShapes;
use crate::passes::remove_dead::RemoveDead;
use crate::passes::remove_identity::RemoveIdentity;
use crate::passes::share_common_subexpressions::ShareCommonSubexpressions;

/// The passes that every build runs.
pub fn standard() -> Pipeline {
    Pipeline::new(vec![
        // First, so that no later pass spends time on what nothing reads.
        Pass::sweep(RemoveDead),
        // Early, so that no later pattern has to look through nodes that do nothing.
        Pass::rule(RemoveIdentity),
        // Sizes become constants before anything asks whether an operand is one.
        Pass::rule(FoldShapes),
        // Behind the sizes, which are among the constants that it needs.
        Pass::sweep(FoldConstants),
        // Patterns ask whether two values are the same one.
        Pass::sweep(ShareCommonSubexpressions),
    ])
}
