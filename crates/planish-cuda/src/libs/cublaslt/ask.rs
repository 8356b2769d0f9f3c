//! cuBLASLt's functions, descriptors that free themselves, and algorithms as names.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t, cublasLtHandle_t, cublasLtMatmulAlgo_t,
    cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, cublasLtMatmulHeuristicResult_t,
    cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t,
    cublasLtMatrixLayoutAttribute_t, cudaDataType,
};
use planish_kernel::Problem;
use planish_tensor::DType;

use super::shape::{Activation, Matrix, Shape};
use crate::error::{CudaError, CudaErrorKind};
use crate::library::library;

library! {
    /// cuBLASLt's functions.
    Functions over sys, status sys::cublasStatus_t {
        fn cublasLtCreate(*mut cublasLtHandle_t);
        fn cublasLtDestroy(cublasLtHandle_t);
        fn cublasLtMatmulDescCreate(*mut cublasLtMatmulDesc_t, cublasComputeType_t, sys::cudaDataType_t);
        fn cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t);
        fn cublasLtMatmulDescSetAttribute(
            cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, *const c_void, usize
        );
        fn cublasLtMatrixLayoutCreate(*mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64);
        fn cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t);
        fn cublasLtMatrixLayoutSetAttribute(
            cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, *const c_void, usize
        );
        fn cublasLtMatmulPreferenceCreate(*mut cublasLtMatmulPreference_t);
        fn cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t);
        fn cublasLtMatmulPreferenceSetAttribute(
            cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, *const c_void, usize
        );
        fn cublasLtMatmulAlgoGetHeuristic(
            cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
            cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, c_int,
            *mut cublasLtMatmulHeuristicResult_t, *mut c_int
        );
        fn cublasLtMatmul(
            cublasLtHandle_t, cublasLtMatmulDesc_t, *const c_void, *const c_void, cublasLtMatrixLayout_t,
            *const c_void, cublasLtMatrixLayout_t, *const c_void, *const c_void, cublasLtMatrixLayout_t,
            *mut c_void, cublasLtMatrixLayout_t, *const cublasLtMatmulAlgo_t, *mut c_void, usize,
            sys::cudaStream_t
        );
    } plain {}
}

/// What an algorithm may use: what NVIDIA recommends for Hopper, and more than others ask for.
static MAX_WORKSPACE: u64 = 32 << 20;
/// Operands lie at multiples of 64 bytes, batches at multiples of their rows.
static ALIGNMENT: u32 = 16;
/// An address that bias vectors could have, for questions; nothing is read there.
const SOME_ADDRESS: u64 = 1 << 20;

/// Nothing, or the error behind a status code.
pub(super) fn check(code: u32, what: &str) -> Result<(), CudaError> {
    match code {
        0 => Ok(()),
        3 => {
            Err(CudaError::new(CudaErrorKind::OutOfMemory, format!("{what}: cuBLASLt could not take memory")))
        }
        15 => {
            Err(CudaError::new(CudaErrorKind::Unsupported, format!("{what}: cuBLASLt does not support it")))
        }
        code => {
            Err(CudaError::new(CudaErrorKind::Failed, format!("{what} failed with cuBLASLt's code {code}")))
        }
    }
}

/// What the heuristic says of an algorithm, laid out as the library's own type; the state stays a number.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Proposed {
    algorithm: cublasLtMatmulAlgo_t,
    workspace: usize,
    state: u32,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Proposed>() == size_of::<cublasLtMatmulHeuristicResult_t>());

const NOTHING: Proposed = Proposed {
    algorithm: cublasLtMatmulAlgo_t { data: [0; 8] },
    workspace: 0,
    state: 1,
    waves: 0.0,
    reserved: [0; 4],
};

/// An algorithm with all its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Algorithm(cublasLtMatmulAlgo_t);

impl Algorithm {
    /// Its bytes in hexadecimal digits, without the zeros at the end.
    pub(super) fn name(&self) -> String {
        let bytes: Vec<u8> = self.0.data.iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        bytes[..len].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn raw(&self) -> *const cublasLtMatmulAlgo_t {
        &raw const self.0
    }
}

/// A matrix's description; freed when dropped.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) raw: cublasLtMatrixLayout_t,
    destroy: unsafe extern "C" fn(cublasLtMatrixLayout_t) -> u32,
}

impl Described {
    fn new(
        functions: &Functions,
        dtype: cudaDataType,
        matrix: &Matrix,
        n_batch: i32,
    ) -> Result<Described, CudaError> {
        let mut raw: cublasLtMatrixLayout_t = std::ptr::null_mut();
        // SAFETY: writes a handle.
        let code = unsafe {
            (functions.cublasLtMatrixLayoutCreate)(
                &raw mut raw,
                dtype,
                matrix.rows,
                matrix.columns,
                matrix.leading,
            )
        };
        check(code, "describing a matrix")?;
        let described = Described { raw, destroy: functions.cublasLtMatrixLayoutDestroy };
        use cublasLtMatrixLayoutAttribute_t as A;
        // SAFETY: the attributes have these sizes.
        let codes = unsafe {
            [
                (functions.cublasLtMatrixLayoutSetAttribute)(
                    raw,
                    A::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                    (&raw const n_batch).cast(),
                    size_of::<i32>(),
                ),
                (functions.cublasLtMatrixLayoutSetAttribute)(
                    raw,
                    A::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    (&raw const matrix.batch_stride).cast(),
                    size_of::<i64>(),
                ),
            ]
        };
        codes.into_iter().try_for_each(|code| check(code, "describing a batch"))?;
        Ok(described)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

/// The product's description; freed when dropped.
#[derive(Debug)]
struct Description {
    raw: cublasLtMatmulDesc_t,
    destroy: unsafe extern "C" fn(cublasLtMatmulDesc_t) -> u32,
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: made in `Asked::new`.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

/// A product described to the library: its first factor is our second.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) first: Described,
    pub(super) second: Described,
    pub(super) added: Described,
    pub(super) output: Described,
    /// Bias and scales are part of the description, so one launch at a time sets them.
    description: Mutex<Description>,
}

// SAFETY: descriptions are memory of the library that only calls with them use; the one that changes is locked.
unsafe impl Send for Asked {}
// SAFETY: as above.
unsafe impl Sync for Asked {}

impl Asked {
    pub(super) fn new(functions: &Functions, shape: &Shape) -> Result<Asked, CudaError> {
        let compute = match shape.dtype {
            DType::I8 => cublasComputeType_t::CUBLAS_COMPUTE_32I,
            _ if shape.tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let mut raw: cublasLtMatmulDesc_t = std::ptr::null_mut();
        // SAFETY: writes a handle.
        let code =
            unsafe { (functions.cublasLtMatmulDescCreate)(&raw mut raw, compute, cudaDataType::CUDA_R_32F) };
        check(code, "describing a product")?;
        let description = Description { raw, destroy: functions.cublasLtMatmulDescDestroy };
        use cublasLtMatmulDescAttributes_t as A;
        let set = |attribute, value: u32| {
            // SAFETY: these attributes are 32-bit numbers.
            let code = unsafe {
                (functions.cublasLtMatmulDescSetAttribute)(raw, attribute, (&raw const value).cast(), 4)
            };
            check(code, "describing a product")
        };
        set(A::CUBLASLT_MATMUL_DESC_TRANSA, u32::from(shape.first.transposed))?;
        set(A::CUBLASLT_MATMUL_DESC_TRANSB, u32::from(shape.second.transposed))?;
        use cublasLtEpilogue_t as E;
        let epilogue = match (shape.activation, shape.bias.is_some()) {
            (Activation::None, false) => E::CUBLASLT_EPILOGUE_DEFAULT,
            (Activation::None, true) => E::CUBLASLT_EPILOGUE_BIAS,
            (Activation::Relu, false) => E::CUBLASLT_EPILOGUE_RELU,
            (Activation::Relu, true) => E::CUBLASLT_EPILOGUE_RELU_BIAS,
            (Activation::GeluTanh, false) => E::CUBLASLT_EPILOGUE_GELU,
            (Activation::GeluTanh, true) => E::CUBLASLT_EPILOGUE_GELU_BIAS,
        };
        set(A::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue as u32)?;
        if let Some(bias) = shape.bias {
            set(A::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(bias.taken) as u32)?;
        }
        let some = |is_there: bool| is_there.then_some(SOME_ADDRESS);
        let by_columns = shape.scaling.columns.is_some();
        if by_columns {
            let mode = sys::cublasLtMatmulMatrixScale_t::CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F as u32;
            set(A::CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode)?;
            set(A::CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode)?;
        }
        let beside = Beside {
            bias: some(shape.bias.is_some()),
            columns: some(by_columns),
            rows: some(by_columns),
            steps: some(shape.scaling.steps.is_some()),
        };
        beside.set(functions, raw)?;
        let described =
            |dtype, matrix: &Matrix| Described::new(functions, type_of(dtype), matrix, shape.n_batch);
        Ok(Asked {
            first: described(shape.dtype, &shape.first)?,
            second: described(shape.dtype, &shape.second)?,
            added: described(shape.scaling.added, &shape.added)?,
            output: described(shape.scaling.output, &shape.output)?,
            description: Mutex::new(description),
        })
    }

    /// The heuristic's algorithms, best first, with their workspaces.
    pub(super) fn algorithms(
        &self,
        functions: &Functions,
        handle: cublasLtHandle_t,
        most: usize,
    ) -> Result<Vec<(Algorithm, usize)>, CudaError> {
        let preference = Preference::new(functions)?;
        let mut found = vec![NOTHING; most];
        let mut n_found: c_int = 0;
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all descriptions live; the list has room for as many as are asked for.
        let code = unsafe {
            (functions.cublasLtMatmulAlgoGetHeuristic)(
                handle,
                description.raw,
                self.first.raw,
                self.second.raw,
                self.added.raw,
                self.output.raw,
                preference.raw,
                most as c_int,
                found.as_mut_ptr().cast(),
                &raw mut n_found,
            )
        };
        check(code, "asking cuBLASLt for algorithms")?;
        let mut algorithms: Vec<(Algorithm, usize)> = Vec::new();
        for proposed in &found[..(n_found.max(0) as usize).min(most)] {
            let algorithm = Algorithm(proposed.algorithm);
            if proposed.state == 0 && !algorithms.iter().any(|(known, _)| *known == algorithm) {
                algorithms.push((algorithm, proposed.workspace));
            }
        }
        Ok(algorithms)
    }

    /// Calls `run` with the product's description and what lies beside the matrices.
    pub(super) fn with(
        &self,
        functions: &Functions,
        beside: Beside,
        run: impl FnOnce(cublasLtMatmulDesc_t) -> u32,
    ) -> Result<(), CudaError> {
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        beside.set(functions, description.raw)?;
        check(run(description.raw), "a product by cuBLASLt")
    }
}

/// Addresses of what a product reads beside its matrices, where it does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    pub(super) bias: Option<u64>,
    /// Scales of our columns and of our rows, which are the library's first and second factor.
    pub(super) columns: Option<u64>,
    pub(super) rows: Option<u64>,
    /// What results are multiplied by before they are rounded.
    pub(super) steps: Option<u64>,
}

impl Beside {
    fn set(self, functions: &Functions, raw: cublasLtMatmulDesc_t) -> Result<(), CudaError> {
        use cublasLtMatmulDescAttributes_t as A;
        let all = [
            (A::CUBLASLT_MATMUL_DESC_BIAS_POINTER, self.bias),
            (A::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, self.columns),
            (A::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, self.rows),
            (A::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, self.steps),
        ];
        for (attribute, address) in all {
            let Some(address) = address else { continue };
            // SAFETY: these attributes are addresses.
            let code = unsafe {
                (functions.cublasLtMatmulDescSetAttribute)(
                    raw,
                    attribute,
                    (&raw const address).cast(),
                    size_of::<u64>(),
                )
            };
            check(code, "describing a bias or scales")?;
        }
        Ok(())
    }
}

fn type_of(dtype: DType) -> cudaDataType {
    match dtype {
        DType::F16 => cudaDataType::CUDA_R_16F,
        DType::BF16 => cudaDataType::CUDA_R_16BF,
        DType::I8 => cudaDataType::CUDA_R_8I,
        DType::F8E4M3FN => cudaDataType::CUDA_R_8F_E4M3,
        _ => cudaDataType::CUDA_R_32F,
    }
}

/// What algorithms may use; freed when dropped.
struct Preference<'a> {
    functions: &'a Functions,
    raw: cublasLtMatmulPreference_t,
}

impl Preference<'_> {
    fn new(functions: &Functions) -> Result<Preference<'_>, CudaError> {
        let mut raw: cublasLtMatmulPreference_t = std::ptr::null_mut();
        // SAFETY: writes a handle.
        check(unsafe { (functions.cublasLtMatmulPreferenceCreate)(&raw mut raw) }, "asking cuBLASLt")?;
        let preference = Preference { functions, raw };
        use cublasLtMatmulPreferenceAttributes_t as A;
        let set = |attribute, value: *const c_void, size: usize| {
            // SAFETY: each value has the size that its attribute has.
            let code =
                unsafe { (functions.cublasLtMatmulPreferenceSetAttribute)(raw, attribute, value, size) };
            check(code, "asking cuBLASLt")
        };
        set(A::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, (&raw const MAX_WORKSPACE).cast(), 8)?;
        // Parts of a split sum stay in f32 until the last.
        let reduction = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        set(A::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (&raw const reduction).cast(), 4)?;
        for attribute in [
            A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            A::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            set(attribute, (&raw const ALIGNMENT).cast(), 4)?;
        }
        Ok(preference)
    }
}

impl Drop for Preference<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`.
        let _ = unsafe { (self.functions.cublasLtMatmulPreferenceDestroy)(self.raw) };
    }
}

/// Has the library take the description of every product, and gives how many there were: without a GPU there is no handle
/// and no algorithm, but that much can be seen.
pub(crate) fn describe(problems: &[Problem]) -> Result<usize, CudaError> {
    let functions = super::functions()?;
    let mut n_taken = 0;
    for problem in problems {
        let Ok(shape) = Shape::of(problem) else { continue };
        Asked::new(&functions, &shape)?;
        Preference::new(&functions)?;
        n_taken += 1;
    }
    Ok(n_taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_have_names() {
        let mut data = [0; 8];
        data[0] = 0x0123_4567_89ab_cdef;
        data[2] = 0x42;
        let algorithm = Algorithm(cublasLtMatmulAlgo_t { data });
        assert_eq!(algorithm.name(), "efcdab8967452301000000000000000042");
        assert_eq!(Algorithm(cublasLtMatmulAlgo_t { data: [0; 8] }).name(), "00");
    }
}
