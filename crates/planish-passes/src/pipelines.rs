//! The order of the passes, and why each stands where it does. Nothing else knows the order.

use crate::driver::{Pass, Pipeline};
use crate::passes::canonicalize::Canonicalize;
use crate::passes::fold_batch_norm::FoldBatchNorm;
use crate::passes::fold_constants::FoldConstants;
use crate::passes::fold_scale_into_conv::FoldScaleIntoConv;
use crate::passes::fold_shapes::FoldShapes;
use crate::passes::merge_parallel_gemms::MergeParallelGemms;
use crate::passes::merge_reshapes::MergeReshapes;
use crate::passes::push_transposes::PushTransposes;
use crate::passes::remove_dead::RemoveDead;
use crate::passes::remove_identity::RemoveIdentity;
use crate::passes::share_common_subexpressions::ShareCommonSubexpressions;
use crate::passes::simplify_powers::SimplifyPowers;
use crate::passes::spell_global_pools::SpellGlobalPools;

/// The passes that every build runs.
pub fn standard() -> Pipeline {
    Pipeline::new(vec![
        // Cleaning: what is left is what the model means.
        // First, so that no later pass spends time on what nothing reads.
        Pass::sweep(RemoveDead),
        // Early, so that no later pattern has to look through nodes that do nothing.
        Pass::rule(RemoveIdentity),
        // Sizes become constants before anything asks whether an operand is one.
        Pass::rule(FoldShapes),
        // Behind the sizes, which are among the constants that it needs.
        Pass::sweep(FoldConstants),
        // One spelling, now that constants can be told from values.
        Pass::rule(Canonicalize),
        // Reshapes with constant targets can be told from those that change something.
        Pass::rule(RemoveIdentity),
        // Behind the spelling of Squeeze and the like as Reshape.
        Pass::rule(MergeReshapes),
        // Patterns ask whether two values are the same one.
        Pass::sweep(ShareCommonSubexpressions),
        // Folding into layers. Before patterns, none of which has a BatchNormalization in it.
        Pass::rule(FoldBatchNorm),
        // Behind patterns, which have transposes of their own (attention), and before whatever looks for the
        // neighbours of a layer.
        Pass::sweep(PushTransposes),
        // Behind patterns, which begin with such sums and products: HardSigmoid adds 3 to a convolution.
        Pass::rule(FoldScaleIntoConv),
        // Behind patterns, which know a square as Pow.
        Pass::rule(SimplifyPowers),
        // Behind patterns, which know means as ReduceMean.
        Pass::rule(SpellGlobalPools),
        // Transposes that moved nothing have become Reshapes.
        Pass::rule(MergeReshapes),
        // Behind all folding: what is to be one layer must look the same.
        Pass::sweep(MergeParallelGemms),
        // Cleaning up: folded weights that became equal, nodes that lost their readers.
        Pass::sweep(FoldConstants),
        Pass::rule(RemoveIdentity),
        Pass::sweep(ShareCommonSubexpressions),
        Pass::sweep(RemoveDead),
    ])
}
