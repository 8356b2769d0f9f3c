//! Tensor maps: how Hopper's bulk copies (TMA) find a box of a value in memory.

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};
use planish_tensor::DType;

use super::api::Driver;
use crate::error::{CudaError, CudaErrorKind};

/// How the box's rows lie in shared memory, so that reads of columns meet no bank twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swizzle {
    None,
    B32,
    B64,
    B128,
}

/// A value of up to 5 dimensions, innermost first, and the box that one copy brings. What lies outside of the
/// value reads as zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    pub dtype: DType,
    /// Elements in each dimension, innermost first.
    pub dims: Vec<u64>,
    /// Bytes from one to the next, of every dimension but the innermost (whose elements are adjacent); each a
    /// multiple of 16.
    pub strides: Vec<u64>,
    /// Elements of the box in each dimension, at most 256.
    pub tile: Vec<u32>,
    /// Steps between the elements that are taken (1 but for strided convolutions).
    pub steps: Vec<u32>,
    pub swizzle: Swizzle,
}

impl TensorMap {
    /// A map whose elements are all taken.
    pub fn new(dtype: DType, dims: &[u64], strides: &[u64], tile: &[u32], swizzle: Swizzle) -> TensorMap {
        TensorMap {
            dtype,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            tile: tile.to_vec(),
            steps: vec![1; tile.len()],
            swizzle,
        }
    }

    /// The descriptor for a value at `address` (a multiple of 16).
    pub(crate) fn encode(&self, api: &Driver, address: u64) -> Result<CUtensorMap, CudaError> {
        let rank = self.dims.len();
        let fits = (1..=5).contains(&rank)
            && self.strides.len() == rank - 1
            && self.tile.len() == rank
            && self.steps.len() == rank;
        let wrong = |what: &str| {
            CudaError::new(CudaErrorKind::Unsupported, format!("no tensor map for {self:?}: {what}"))
        };
        if !fits {
            return Err(wrong("the lists' lengths do not fit"));
        }
        use CUtensorMapDataType as T;
        let dtype = match self.dtype {
            DType::F16 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::BF16 => T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DType::F32 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            DType::U8 | DType::I8 => T::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            _ => return Err(wrong("the element type has none")),
        };
        let swizzle = match self.swizzle {
            Swizzle::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::B32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            Swizzle::B64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::B128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let mut map = CUtensorMap { opaque: [0; 16] };
        // SAFETY: the lists have the lengths that the rank asks for; nothing is read at `address`.
        let code = unsafe {
            (api.cuTensorMapEncodeTiled)(
                &raw mut map,
                dtype,
                rank as u32,
                std::ptr::without_provenance_mut(address as usize),
                self.dims.as_ptr(),
                self.strides.as_ptr(),
                self.tile.as_ptr(),
                self.steps.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        match code {
            0 => Ok(map),
            code => Err(wrong(&api.code_name(code))),
        }
    }
}
