//! What each way to do a step costs: by the cost model, by the timing cache, or measured.

pub(crate) mod cache;
pub(crate) mod measure;
pub(crate) mod policy;
pub(crate) mod trial;
