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
    /// The value is the image of a convolution, and a copy brings pixels instead of a box.
    pub windows: Option<Windows>,
}

/// Where the windows of a convolution stand. A copy begins at one of them and goes on from window to window and
/// image to image, bringing the same tap of each. The value's dimensions are channels, the spatial ones
/// (innermost first) and images; of the box only the channels count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Windows {
    /// The first position along each spatial dimension: minus the padding.
    pub first: Vec<i32>,
    /// The last position, from the last element: the padding minus what the taps reach over.
    pub last: Vec<i32>,
    /// How many windows one copy brings, at most 1024.
    pub count: u32,
}

impl Windows {
    /// Whether TMA can hold these positions and the offsets of taps from them, for so many spatial
    /// dimensions: they share few bits.
    pub fn reaches(spatial: usize, first: &[i32], last: &[i32], farthest_tap: usize) -> bool {
        let (position, offset) = match spatial {
            1 => (1 << 15, 1 << 16),
            2 => (1 << 7, 1 << 8),
            3 => (1 << 4, 1 << 5),
            _ => return false,
        };
        first.iter().chain(last).all(|at| (-position..position).contains(at)) && farthest_tap < offset
    }
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
            windows: None,
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
            DType::U8 | DType::I8 | DType::F8E4M3FN => T::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            _ => return Err(wrong("the element type has none")),
        };
        let swizzle = match self.swizzle {
            Swizzle::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::B32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            Swizzle::B64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::B128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let mut map = CUtensorMap { opaque: [0; 16] };
        let at = std::ptr::without_provenance_mut(address as usize);
        if let Some(Windows { first, last, count }) = &self.windows {
            if first.len() + 2 != rank || last.len() + 2 != rank {
                return Err(wrong("the windows have other dimensions than the image"));
            }
            // SAFETY: the lists have the lengths that the rank asks for; nothing is read at `address`.
            let code = unsafe {
                (api.cuTensorMapEncodeIm2col)(
                    &raw mut map,
                    dtype,
                    rank as u32,
                    at,
                    self.dims.as_ptr(),
                    self.strides.as_ptr(),
                    first.as_ptr(),
                    last.as_ptr(),
                    self.tile[0],
                    *count,
                    self.steps.as_ptr(),
                    CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                    swizzle,
                    CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                    CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
                )
            };
            return match code {
                0 => Ok(map),
                code => Err(wrong(&api.code_name(code))),
            };
        }
        // SAFETY: the lists have the lengths that the rank asks for; nothing is read at `address`.
        let code = unsafe {
            (api.cuTensorMapEncodeTiled)(
                &raw mut map,
                dtype,
                rank as u32,
                at,
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
