//! The passes, one file each, named verb and object.

pub(crate) mod fold_batch_norm;
pub(crate) mod fold_constants;
pub(crate) mod fold_scale_into_conv;
pub(crate) mod fold_shapes;
pub(crate) mod remove_dead;
pub(crate) mod remove_identity;
pub(crate) mod share_common_subexpressions;
