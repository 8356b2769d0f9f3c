//! `PlanishModel`: an ONNX model that was read.

use std::ffi::c_char;

use planish::{Bytes, Model};

use crate::given::{end, give, list, path, shared};
use crate::ports::{PlanishTensorInfo, Ports};
use crate::status::{PlanishStatus, answered, guarded};

/// A model that was read. It does not change: any number of threads may use it at once.
#[derive(Debug)]
pub struct PlanishModel {
    pub(crate) model: Model,
    pub(crate) ports: Ports,
}

impl PlanishModel {
    fn new(model: Model) -> PlanishModel {
        let ports = Ports::of_graph(model.graph());
        PlanishModel { model, ports }
    }
}

/// Reads an ONNX file; its external data is looked for beside it.
///
/// # Safety
/// `path` ends in a NUL; `*model` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_model_open(
    path: *const c_char,
    model: *mut *mut PlanishModel,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let path = self::path(path);
        give(model, || Ok(PlanishModel::new(Model::open(path?)?)))
    })
}

/// Reads a model from the bytes of an ONNX file, which are copied. It has no external data.
///
/// # Safety
/// `bytes` are `n_bytes`; `*model` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_model_from_bytes(
    bytes: *const u8,
    n_bytes: usize,
    model: *mut *mut PlanishModel,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let bytes = list("the model's memory", bytes, n_bytes);
        give(model, || Ok(PlanishModel::new(Model::from_bytes(&Bytes::from_vec(bytes?.to_vec()))?)))
    })
}

/// How many inputs the model has: those of the tensors 0 and on.
///
/// # Safety
/// `model` is one, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_model_input_count(model: *const PlanishModel) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(shared("the model", model)?.ports.n_inputs) })
}

/// How many inputs and outputs the model has.
///
/// # Safety
/// `model` is one, or NULL, which has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_model_tensor_count(model: *const PlanishModel) -> usize {
    // SAFETY: the caller's promise.
    answered(0, || unsafe { Ok(shared("the model", model)?.ports.all.len()) })
}

/// What an input or an output is, by its number: inputs come first.
///
/// # Safety
/// `model` is one; `info` has as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_model_tensor(
    model: *const PlanishModel,
    index: usize,
    info: *mut PlanishTensorInfo,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { shared("the model", model)?.ports.tell(index, info) })
}

/// Ends a model. Builders of it live on.
///
/// # Safety
/// `model` is one that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_model_free(model: *mut PlanishModel) {
    // SAFETY: the caller's promise.
    unsafe { end(model) }
}
