//! Why a product does not run on tensor cores.

use super::{Layer, is_product};

/// The reason in words; `None` for steps that are on them, have no product, or do not run on a GPU.
pub(super) fn why_not(layer: &Layer<'_>) -> Option<String> {
    let has_product = layer.step.region.nodes.iter().any(|node| is_product(&node.op));
    if !has_product || layer.backend != "cuda" {
        return None;
    }
    let family = layer.kernel.split(['_', '@', ' ']).next().unwrap_or_default();
    let why = match (family, layer.precision) {
        (_, "f32") => {
            "computed in fp32, which tensor cores do not take: --precision tf32 keeps the storage, fp16 halves it"
        }
        ("depthwise", _) => {
            "a depthwise convolution has one channel in each product: there is no matrix to multiply"
        }
        // The one of tensor cores is `wtranspose`, or has `mma` in its name.
        ("convtranspose", _) if !layer.kernel.contains("mma") => {
            "windows that overlap, or channels that are no multiple of 8: the general transposed convolution was faster"
        }
        ("reference", _) => "it runs on the reference",
        _ => return None,
    };
    Some(why.to_string())
}
