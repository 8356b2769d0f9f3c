//! The elements of whole tensors between text and memory.

use planish_tensor::{Bytes, DType, Tensor, TensorError};

use super::element;

/// More elements than this go beside the text, or into hexadecimal.
pub(super) const MAX_INLINE: usize = 16;

/// The elements in a list; `None` if there are many.
pub(super) fn inline(tensor: &Tensor) -> Option<String> {
    if tensor.len() > MAX_INLINE {
        return None;
    }
    let text = |bits| element::to_text(tensor.dtype(), bits);
    let elements: Vec<String> = element::bits_of(tensor).into_iter().map(text).collect();
    Some(match (tensor.rank(), elements.as_slice()) {
        (0, [only]) => only.clone(),
        _ => format!("[{}]", elements.join(", ")),
    })
}

/// The tensor whose elements have these bits.
pub(super) fn from_bits(dtype: DType, shape: &[usize], bits: &[u64]) -> Result<Tensor, TensorError> {
    if dtype.is_sub_byte() {
        // The packed length would not tell one element from two.
        let expected = planish_tensor::element_count(shape).unwrap_or(usize::MAX);
        if bits.len() != expected {
            let found = bits.len();
            return Err(TensorError::WrongLength { dtype, shape: shape.to_vec(), expected, found });
        }
        return Tensor::from_codes(dtype, shape, bits.iter().map(|&bits| bits as u8).collect());
    }
    let width = dtype.bits() / 8;
    let bytes: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(width)).collect();
    Tensor::from_bytes(dtype, shape, Bytes::from_vec(bytes))
}

/// All bytes in hexadecimal.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|&byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The bytes of a text in hexadecimal; `None` if it is none.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks_exact(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}
