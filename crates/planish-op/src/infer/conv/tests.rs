//! What inference says of convolutions.

use crate::Attribute;
use crate::infer::InferErrorKind::{BadAttribute, BadShape, BadType};
use crate::infer::testing::{gives, int_list, refuses};

#[test]
fn convolutions() {
    let halving = [("strides", int_list(&[2, 2])), ("pads", int_list(&[3, 3, 3, 3]))];
    gives("Conv", &halving, &["f32[n,3,224,224]", "f32[64,3,7,7]", "f32[64]"], &["f32[n,64,112,112]"]);
    gives("Conv", &halving, &["f32[n,3,2*h,w]", "f32[64,3,7,7]"], &["f32[n,64,h,floordiv(w+1,2)]"]);
    gives("Conv", &[("group", Attribute::Int(4))], &["f16[1,8,9]", "f16[16,2,3]"], &["f16[1,16,7]"]);
    let same = [("auto_pad", Attribute::Str("SAME_UPPER".into()))];
    gives("Conv", &same, &["f32[1,1,d,h,w]", "f32[2,1,3,3,3]"], &["f32[1,2,d,h,w]"]);
    gives("Conv", &[], &["f32[*]", "f32[2,1,3,3]"], &["f32[*]"]);
    gives("Conv", &[("kernel_shape", int_list(&[3]))], &["f32[1,2,9]", "f32[*]"], &["f32[1,channels0,7]"]);
    gives("Conv", &[], &["bf16[1,2,0]", "bf16[5,2,1]"], &["bf16[1,5,0]"]);
    refuses("Conv", &[], &["f32[1,3,5]", "f32[2,4,3]"], BadShape);
    refuses("Conv", &[], &["f32[1,3,5]", "f32[2,3,3,3]"], BadShape);
    refuses("Conv", &[], &["f32[1,3]", "f32[2,3]"], BadShape);
    refuses("Conv", &[], &["f32[1,3,5]", "f32[2,3,7]"], BadShape);
    refuses("Conv", &[], &["f32[1,3,5]", "f32[2,3,3]", "f32[3]"], BadShape);
    refuses("Conv", &[], &["f32[1,3,5]", "f32[2,3,3]", "f32[1,2]"], BadShape);
    refuses("Conv", &[], &["f32[1,3,5]", "f32[2,3,0]"], BadAttribute);
    refuses("Conv", &[("group", Attribute::Int(0))], &["f32[1,3,5]", "f32[2,3,3]"], BadAttribute);
    refuses("Conv", &[("group", Attribute::Int(2))], &["f32[1,4,5]", "f32[3,2,3]"], BadShape);
    refuses("Conv", &[("group", Attribute::Int(i64::MIN))], &["f32[1,3,5]", "f32[2,3,3]"], BadAttribute);
    refuses("Conv", &[("pads", int_list(&[i64::MAX, 1]))], &["f32[1,3,5]", "f32[2,3,3]"], BadAttribute);
    refuses("Conv", &[("kernel_shape", int_list(&[2]))], &["f32[1,3,5]", "f32[2,3,3]"], BadAttribute);
    refuses("Conv", &[], &["f32[1,3,5]", "f16[2,3,3]"], BadType);
    refuses("Conv", &[], &["i32[1,3,5]", "i32[2,3,3]"], BadType);
}

#[test]
fn transposed_convolutions() {
    let doubling = [("strides", int_list(&[2, 2])), ("pads", int_list(&[1, 1, 1, 1]))];
    gives("ConvTranspose", &doubling, &["f32[n,8,h,w]", "f32[8,4,4,4]"], &["f32[n,4,2*h,2*w]"]);
    let grouped =
        [("group", Attribute::Int(2)), ("output_padding", int_list(&[1])), ("strides", int_list(&[3]))];
    gives("ConvTranspose", &grouped, &["f32[1,4,5]", "f32[4,3,2]", "f32[6]"], &["f32[1,6,15]"]);
    let sized = [("output_shape", int_list(&[10, 8])), ("strides", int_list(&[3, 2]))];
    gives("ConvTranspose", &sized, &["f32[1,1,3,3]", "f32[1,2,3,3]"], &["f32[1,2,10,8]"]);
    refuses("ConvTranspose", &[], &["f32[1,4,5]", "f32[3,3,2]"], BadShape);
    refuses("ConvTranspose", &[("group", Attribute::Int(3))], &["f32[1,4,5]", "f32[4,3,2]"], BadShape);
    refuses("ConvTranspose", &[("pads", int_list(&[9, 9]))], &["f32[1,4,5]", "f32[4,3,2]"], BadShape);
    refuses(
        "ConvTranspose",
        &[("strides", int_list(&[i64::MAX]))],
        &["f32[1,4,5]", "f32[4,3,2]"],
        BadAttribute,
    );
    refuses(
        "ConvTranspose",
        &[("output_shape", int_list(&[-1]))],
        &["f32[1,4,5]", "f32[4,3,2]"],
        BadAttribute,
    );
    refuses("ConvTranspose", &[], &["f32[1,4,5]", "f32[4,3,2]", "f32[4]"], BadShape);
}

#[test]
fn deformable_convolutions() {
    let (x, w) = ("f32[n,4,6,6]", "f32[8,4,3,3]");
    gives("DeformConv", &[], &[x, w, "f32[n,18,4,4]", "f32[8]", "f32[n,9,4,4]"], &["f32[n,8,4,4]"]);
    let grouped = [("offset_group", Attribute::Int(2))];
    gives("DeformConv", &grouped, &["f32[1,4,6]", "f32[8,4,3]", "f32[1,6,4]"], &["f32[1,8,4]"]);
    refuses("DeformConv", &[], &[x, w, "f32[n,9,4,4]"], BadShape);
    refuses("DeformConv", &[], &[x, w, "f32[n,18,5,4]"], BadShape);
    refuses("DeformConv", &[], &[x, w, "f32[n,18,4,4]", "", "f32[n,18,4,4]"], BadShape);
    refuses("DeformConv", &[("offset_group", Attribute::Int(3))], &[x, w, "f32[n,54,4,4]"], BadShape);
    refuses("DeformConv", &[("offset_group", Attribute::Int(0))], &[x, w, "f32[n,18,4,4]"], BadAttribute);
}

#[test]
fn causal_convolutions() {
    let outputs = ["f16[b,8,len]", "f16[b,8,3]"];
    gives("CausalConvWithState", &[], &["f16[b,8,len]", "f16[8,1,4]", "f16[8]", "f16[b,8,3]"], &outputs);
    gives("CausalConvWithState", &[], &["f16[b,8,len]", "f16[8,1,4]"], &outputs[..1]);
    gives("CausalConvWithState", &[], &["f32[*]", "f32[*]"], &["f32[*]", "f32[batch0,channels1,state2]"]);
    refuses("CausalConvWithState", &[], &["f32[b,8,len]", "f32[8,2,4]"], BadShape);
    refuses("CausalConvWithState", &[], &["f32[b,8,len]", "f32[7,1,4]"], BadShape);
    refuses("CausalConvWithState", &[], &["f32[b,8,len]", "f32[8,1,0]"], BadShape);
    refuses("CausalConvWithState", &[], &["f32[b,8,len]", "f32[8,1,4]", "", "f32[b,8,4]"], BadShape);
    refuses("CausalConvWithState", &[], &["f32[b,8]", "f32[8,1,4]"], BadShape);
}

#[test]
fn images_from_columns() {
    gives("Col2Im", &[], &["f32[n,15,9]", "i64=3,7", "i64=1,5"], &["f32[n,3,3,7]"]);
    gives("Col2Im", &[], &["u8[n,5*c,9]", "i64[2]", "i64=1,5"], &["u8[n,c,image0,image1]"]);
    gives("Col2Im", &[], &["f32[n,15,9]", "i64[2]", "i64[*]"], &["f32[n,channels0,image1,image2]"]);
    gives("Col2Im", &[], &["f32[n,15,9]", "i64[*]", "i64[k]"], &["f32[*]"]);
    refuses("Col2Im", &[], &["f32[1,15,9]", "i64=3,7", "i64=2,5"], BadShape);
    refuses("Col2Im", &[], &["f32[1,14,9]", "i64=3,7", "i64=1,5"], BadShape);
    refuses("Col2Im", &[], &["f32[1,15,9]", "i64=3,7", "i64=5"], BadShape);
    refuses("Col2Im", &[], &["f32[1,15,9]", "i64=3,-7", "i64=1,5"], BadShape);
    refuses("Col2Im", &[], &["f32[1,15,9]", "i64=3,7", "i64=0,5"], BadAttribute);
    refuses(
        "Col2Im",
        &[("strides", int_list(&[0, 1]))],
        &["f32[1,15,9]", "i64=3,7", "i64=1,5"],
        BadAttribute,
    );
}
