//! The passes, one file each, named verb and object.

pub(crate) mod remove_identity;
