//! One way for each step, with the layout changes between steps priced, and others for other sizes.

pub(crate) mod select;
pub(crate) mod tactic_lock;
pub(crate) mod variants;
pub(crate) mod vet;
