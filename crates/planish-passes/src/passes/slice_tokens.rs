//! Takes slices of channels after the step from images to tokens: slices of `x[B, K·C, H, W]` along its channels,
//! each seen as `[B, C, H·W]` and transposed, are slices of the features of all tokens `[B, H·W, K·C]`.
//!
//! Where channels lie innermost, as GPU convolutions leave them, the tokens are the image seen differently, and
//! attention reads its queries, keys and values where the projection left them.

use planish_ir::NodeId;
use planish_op::{Op, Reshape, Slice, Transpose};
use planish_tensor::{Dim, Shape, Tensor, normalize_axis};

use crate::pattern::{Finder, Found, Miss, blocked};
use crate::reshape::{reshaped_input, target};
use crate::rule::Patch;
use crate::view::View;

/// The axis of channels.
const CHANNELS: usize = 1;
/// Images and volumes.
const MIN_RANK: usize = 4;
/// The order of axes that makes tokens of channels and places.
const TO_TOKENS: [i64; 3] = [0, 2, 1];

/// A Transpose to tokens of a slice of channels.
pub(crate) const SLICE_TOKENS: Finder = Finder { name: "slice_tokens", find };

fn find(cx: &View<'_>, id: NodeId) -> Found<Patch> {
    let node = cx.node(id);
    let (Op::Transpose(transpose), Some(flat), Some(&Some(output))) =
        (&node.op, cx.input(node, 0), node.outputs.first())
    else {
        return Err(Miss::No);
    };
    if transpose.perm.as_deref() != Some(&TO_TOKENS[..]) {
        return Err(Miss::No);
    }
    let Some(part) = cx.producer(flat).and_then(|(_, reshape)| reshaped_input(cx, reshape)) else {
        return Err(Miss::No);
    };
    let Some((_, slice)) = cx.producer(part).filter(|(_, node)| matches!(node.op, Op::Slice(_))) else {
        return Err(Miss::No);
    };
    let Some(whole) = cx.input(slice, 0) else { return Err(Miss::No) };
    let (Some(image), Some(sliced), Some(seen)) = (cx.shape(whole), cx.shape(part), cx.shape(flat)) else {
        return Err(Miss::No);
    };
    let number = |place: usize| cx.number_input(slice, place);
    let axis = number(3).and_then(|axis| normalize_axis(axis, image.rank()).ok());
    let keeps_channels = seen.rank() == 3
        && seen.dims()[..=CHANNELS] == sliced.dims()[..=CHANNELS]
        && !seen.dims()[0].is_unknown();
    if image.rank() < MIN_RANK || axis != Some(CHANNELS) || !keeps_channels {
        return Err(Miss::No);
    }
    if cx.input(slice, 4).is_some() && number(4) != Some(1) {
        return blocked("the slice has steps");
    }
    let (Some(start), Some(end)) = (number(1), number(2)) else {
        return blocked("where the slice begins or ends is known only at run time");
    };
    // Otherwise more would be transposed than is now. A Reshape is what another such slice has become.
    let is_part = |reader: &NodeId| matches!(cx.node(*reader).op, Op::Slice(_) | Op::Reshape(_));
    if !cx.readers(whole).iter().all(is_part) {
        return blocked("not only slices of the image are read");
    }
    let flattened: [Dim; 3] =
        [image.dims()[0].clone(), image.dims()[CHANNELS].clone(), seen.dims()[2].clone()];
    let numbers = match target(&Shape::new(image.dims().to_vec()), &flattened) {
        Ok(numbers) => numbers,
        Err(reason) => return blocked(reason),
    };
    let mut patch = Patch::new();
    let mut constant = |what: &str, numbers: Vec<i64>| {
        patch.constant(&format!("{}.{what}", node.name), Tensor::vector(numbers))
    };
    let shape = constant("shape", numbers);
    let (starts, ends) = (constant("starts", vec![start]), constant("ends", vec![end]));
    let axes = constant("axes", vec![2]);
    let flat = patch.node(&node.name, Reshape { allowzero: false }, &[whole.into(), shape]);
    let tokens = patch.node(&node.name, Transpose { perm: Some(TO_TOKENS.to_vec()) }, &[flat]);
    let slice = patch.node(&node.name, Slice {}, &[tokens, starts, ends, axes]);
    patch.replace(output, slice);
    Ok(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_same, kept};
    use expect_test::expect;

    const IMAGE: &str = "input %x: f32[n,6,2,2] const %a: i64[1] = [1] const %b: i64[1] = [-4] const %e: i64[1] = [4] \
         const %s: i64[3] = [0, 2, 4] %p: f32[n,2,2,2] = Slice(%x, %b, %e, %a) \"p\" \
         %r: f32[n,2,4] = Reshape(%p, %s) \"r\"";

    #[test]
    fn features_of_tokens_are_sliced() {
        let before = format!("{IMAGE} %t: f32[n,4,2] = Transpose(%r) {{perm=[0,2,1]}} \"t\" output %t");
        check_same(
            SLICE_TOKENS,
            &before,
            expect![[r#"
            input %x: f32[n,6,2,2]
            const %t.shape: i64[3] = [0, 6, 4]
            const %t.starts: i64[1] = [-4]
            const %t.ends: i64[1] = [4]
            const %t.axes: i64[1] = [2]
            %t.1: f32[n,6,4] = Reshape(%x, %t.shape) "t"
            %t.2: f32[n,4,6] = Transpose(%t.1) {perm=[0,2,1]} "t"
            %t: f32[n,4,2] = Slice(%t.2, %t.starts, %t.ends, %t.axes) "t"
            output %t
        "#]],
        );
    }

    #[test]
    fn refusals() {
        let also =
            format!("{IMAGE} %t: f32[n,4,2] = Transpose(%r) {{perm=[0,2,1]}} %y: f32[n,6,2,2] = Relu(%x)");
        kept(SLICE_TOKENS, &also, "t", "not only slices of the image are read");
        let other = format!("{IMAGE} %t: f32[4,2,n] = Transpose(%r) {{perm=[2,1,0]}}");
        kept(SLICE_TOKENS, &other, "t", "");
        let open = "input %x: f32[n,6,2,2] input %b: i64[1] const %a: i64[1] = [1] const %e: i64[1] = [4] \
             const %s: i64[3] = [0, 2, 4] %p: f32[n,2,2,2] = Slice(%x, %b, %e, %a) \
             %r: f32[n,2,4] = Reshape(%p, %s) %t: f32[n,4,2] = Transpose(%r) {perm=[0,2,1]}";
        kept(SLICE_TOKENS, open, "t", "where the slice begins or ends is known only at run time");
    }
}
