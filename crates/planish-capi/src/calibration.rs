//! `PlanishCalibration`: the ranges of a model's activations, found on batches that a callback gives.

use std::ffi::{CString, c_char, c_void};

use planish::{Calibration, CalibrationBuilder, Calibrator, Error, ErrorKind, Sample, View};

use crate::engine::device_named;
use crate::given::{c_text, end, give, list, optional_text, path, shared, sizes, wrong};
use crate::model::PlanishModel;
use crate::plan::PlanishBytes;
use crate::ports::PlanishType;
use crate::status::{PlanishStatus, guarded};

/// One input of a batch. The library fills in `size`, `name` and `element_type`; the callback `data`, `dims` and `rank`, in
/// memory that stays until it is called again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PlanishBatchInput {
    /// Of this structure.
    pub size: usize,
    pub name: *const c_char,
    /// The batch of this input, in host memory.
    pub data: *const c_void,
    /// Its sizes.
    pub dims: *const i64,
    pub rank: usize,
    pub element_type: PlanishType,
}

/// Gives the next batch: an array of pointers, one for each input of the model. Gives 1 for a batch, 0 at the end, and
/// anything else to stop, which ends in `PLANISH_STATUS_CANCELLED`. Must not throw.
pub type PlanishNextBatch = Option<
    unsafe extern "C" fn(user: *mut c_void, inputs: *const *mut PlanishBatchInput, n_inputs: usize) -> i32,
>;

/// The ranges of a model's activations. It does not change: any number of threads may use it at once.
#[derive(Debug)]
pub struct PlanishCalibration {
    pub(crate) calibration: Calibration,
}

/// Batches of a callback, as samples.
struct Batches<'a> {
    model: &'a PlanishModel,
    names: Vec<CString>,
    next: unsafe extern "C" fn(*mut c_void, *const *mut PlanishBatchInput, usize) -> i32,
    user: *mut c_void,
}

impl Batches<'_> {
    fn next_sample(&mut self) -> Result<Option<Sample>, Error> {
        let inputs = self.model.ports.inputs();
        let empty = |(port, name): (&crate::ports::Port, &CString)| PlanishBatchInput {
            size: size_of::<PlanishBatchInput>(),
            name: name.as_ptr(),
            data: std::ptr::null(),
            dims: std::ptr::null(),
            rank: 0,
            element_type: port.dtype.map_or(PlanishType::None, PlanishType::from),
        };
        let mut batch: Vec<PlanishBatchInput> = inputs.iter().zip(&self.names).map(empty).collect();
        let pointers: Vec<*mut PlanishBatchInput> = batch.iter_mut().map(std::ptr::from_mut).collect();
        // SAFETY: the caller gave the function for this, and keeps `user` valid.
        match unsafe { (self.next)(self.user, pointers.as_ptr(), pointers.len()) } {
            0 => return Ok(None),
            1 => {}
            _ => return Err(Error::new(ErrorKind::Cancelled, "the batches were stopped")),
        }
        let mut tensors = Vec::new();
        for (port, given) in inputs.iter().zip(&batch) {
            let what = port.what();
            let Some(dtype) = port.dtype else {
                return wrong(format!("{what} is not a tensor, so it has no batches"));
            };
            // SAFETY: the header says that there are as many sizes.
            let dims = unsafe { sizes(&format!("the batch of {what}"), given.dims, given.rank)? };
            let n_bytes = dtype.bytes_of(&dims).ok_or_else(|| {
                Error::new(ErrorKind::OutOfMemory, format!("the batch of {what} is larger than any memory"))
            })?;
            // SAFETY: the header says that the batch has the bytes of its sizes.
            let bytes = unsafe { list(&format!("the batch of {what}"), given.data.cast::<u8>(), n_bytes)? };
            tensors.push((port.name.clone(), View::from_bytes(dtype, &dims, bytes)?.to_tensor()));
        }
        let count = tensors.first().and_then(|(_, tensor)| tensor.shape().first().copied());
        Ok(Some(Sample::new(tensors, count.unwrap_or(1).max(1))))
    }
}

impl Iterator for Batches<'_> {
    type Item = Result<Sample, Error>;

    fn next(&mut self) -> Option<Result<Sample, Error>> {
        self.next_sample().transpose()
    }
}

/// Runs a model over batches and finds the ranges of its activations. `calibrator` is `entropy` (as NULL), `minmax`,
/// `percentile:99.99`, `best`, or `auto`, whichever costs the outputs least; `device` is as for `planish_builder_set`.
///
/// # Safety
/// `model` is one; the texts are NULL or end in a NUL; `next` may be called with `user`; `*calibration` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_calibrate(
    model: *const PlanishModel,
    calibrator: *const c_char,
    device: *const c_char,
    next: PlanishNextBatch,
    user: *mut c_void,
    calibration: *mut *mut PlanishCalibration,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let model = shared("the model", model);
        let (calibrator, device) =
            (optional_text("the calibrator", calibrator), optional_text("the device", device));
        give(calibration, || {
            let (model, device) = (model?, device_named(device?)?);
            let calibrator = match calibrator?.unwrap_or("entropy") {
                "auto" => None,
                name => Some(name.parse::<Calibrator>().map_err(|error: planish::CalibrationError| {
                    Error::new(ErrorKind::BadOption, format!("{error}, and auto"))
                })?),
            };
            let Some(next) = next else { return wrong("the function that gives batches is NULL") };
            let names = model.ports.inputs().iter().map(|port| c_text(&port.name)).collect();
            let builder = CalibrationBuilder::from_model(model.model.clone()).device(device);
            let builder = match calibrator {
                Some(calibrator) => builder.calibrator(calibrator),
                None => builder.measured(true),
            };
            let calibration = builder.run(Batches { model, names, next, user })?;
            Ok(PlanishCalibration { calibration })
        })
    })
}

/// Reads a calibration's file: Planish's own, or a calibration cache of TensorRT.
///
/// # Safety
/// `path` ends in a NUL; `*calibration` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_calibration_open(
    path: *const c_char,
    calibration: *mut *mut PlanishCalibration,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let path = self::path(path);
        give(calibration, || Ok(PlanishCalibration { calibration: Calibration::open(path?)? }))
    })
}

/// Reads a calibration from the bytes of such a file.
///
/// # Safety
/// `bytes` are `n_bytes`; `*calibration` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_calibration_from_bytes(
    bytes: *const u8,
    n_bytes: usize,
    calibration: *mut *mut PlanishCalibration,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let bytes = list("the calibration's memory", bytes, n_bytes);
        give(calibration, || {
            let text = std::str::from_utf8(bytes?).map_err(|_| {
                Error::new(ErrorKind::BadFile, "this is no calibration: its bytes are not UTF-8")
            })?;
            Ok(PlanishCalibration { calibration: Calibration::from_text(text)? })
        })
    })
}

/// Writes a calibration's file, in one piece.
///
/// # Safety
/// `calibration` is one; `path` ends in a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_calibration_save(
    calibration: *const PlanishCalibration,
    path: *const c_char,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { shared("the calibration", calibration)?.calibration.save(self::path(path)?) })
}

/// TensorRT's calibration cache of these ranges.
///
/// # Safety
/// `calibration` is one; `*bytes` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_calibration_tensorrt_cache(
    calibration: *const PlanishCalibration,
    bytes: *mut *mut PlanishBytes,
) -> PlanishStatus {
    // SAFETY: the caller's promise.
    guarded(|| unsafe {
        let calibration = shared("the calibration", calibration);
        give(bytes, || Ok(PlanishBytes { bytes: calibration?.calibration.to_tensorrt()?.into_bytes() }))
    })
}

/// Ends a calibration. Builders that were given it live on.
///
/// # Safety
/// `calibration` is one that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn planish_calibration_free(calibration: *mut PlanishCalibration) {
    // SAFETY: the caller's promise.
    unsafe { end(calibration) }
}
