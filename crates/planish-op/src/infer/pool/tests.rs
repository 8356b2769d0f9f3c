//! What inference says of pooling and regions of interest.

use crate::Attribute;
use crate::infer::InferErrorKind::{BadAttribute, BadShape, BadType};
use crate::infer::testing::{gives, int_list, refuses};

#[test]
fn windows() {
    let kernel = ("kernel_shape", int_list(&[3, 3]));
    let only = [kernel.clone()];
    let halving = [kernel.clone(), ("strides", int_list(&[2, 2])), ("pads", int_list(&[1, 1, 1, 1]))];
    gives(
        "MaxPool",
        &halving,
        &["f32[n,64,112,h]"],
        &["f32[n,64,56,floordiv(h+1,2)]", "i64[n,64,56,floordiv(h+1,2)]"],
    );
    gives("MaxPool", &halving, &["u8[n,64,112,112]"], &["u8[n,64,56,56]"]);
    let ceil: Vec<(&str, Attribute)> =
        [kernel.clone(), ("strides", int_list(&[2, 2])), ("ceil_mode", Attribute::Bool(true))].into();
    gives("AveragePool", &ceil, &["f32[1,1,4,4]"], &["f32[1,1,2,2]"]);
    gives("LpPool", &ceil, &["f32[1,1,4,h]"], &["f32[1,1,2,floordiv(h,2)]"]);
    gives("AveragePool", &only, &["f16[*]"], &["f16[*]"]);
    refuses("AveragePool", &only, &["i32[1,1,4,4]"], BadType);
    refuses("MaxPool", &only, &["i64[1,1,4,4]"], BadType);
    refuses("MaxPool", &only, &["f32[1,1,4]"], BadAttribute);
    refuses("MaxPool", &only, &["f32[1,1]"], BadShape);
    refuses("MaxPool", &only, &["f32[1,1,1,1]"], BadShape);
    refuses(
        "MaxPool",
        &[kernel.clone(), ("storage_order", Attribute::Int(2))],
        &["f32[1,1,4,4]"],
        BadAttribute,
    );
    refuses("MaxPool", &[("kernel_shape", int_list(&[i64::MIN, 1]))], &["f32[1,1,4,4]"], BadAttribute);
    refuses("LpPool", &[kernel, ("p", Attribute::Int(0))], &["f32[1,1,4,4]"], BadAttribute);
}

#[test]
fn whole_images() {
    gives("GlobalAveragePool", &[], &["f32[n,c,h,w]"], &["f32[n,c,1,1]"]);
    gives("GlobalMaxPool", &[], &["f32[n,c]"], &["f32[n,c]"]);
    gives("GlobalLpPool", &[], &["f32[*]"], &["f32[*]"]);
    refuses("GlobalAveragePool", &[], &["f32[n]"], BadShape);
    refuses("GlobalLpPool", &[("p", Attribute::Int(-1))], &["f32[n,c,h]"], BadAttribute);
}

#[test]
fn unpooling() {
    let halved = [("kernel_shape", int_list(&[2, 2])), ("strides", int_list(&[2, 2]))];
    gives("MaxUnpool", &halved, &["f32[1,c,2,h]", "i64[1,c,2,h]"], &["f32[1,c,4,2*h]"]);
    gives("MaxUnpool", &halved, &["f32[1,c,2,2]", "i64[1,c,2,2]", "i64=1,1,5,5"], &["f32[1,1,5,5]"]);
    gives(
        "MaxUnpool",
        &halved,
        &["f32[1,c,2,2]", "i64[1,c,2,2]", "i64[4]"],
        &["f32[unpooled0,unpooled1,unpooled2,unpooled3]"],
    );
    refuses("MaxUnpool", &halved, &["f32[1,c,2,2]", "i64[1,c,2,3]"], BadShape);
    refuses("MaxUnpool", &halved, &["f32[1,c,2,2]", "f32[1,c,2,2]"], BadType);
    refuses("MaxUnpool", &halved, &["f32[1,c,2]", "i64[1,c,2]"], BadAttribute);
    refuses("MaxUnpool", &halved, &["f32[1,c,2,2]", "i64[1,c,2,2]", "i64=5,5"], BadShape);
    refuses("MaxUnpool", &halved, &["f32[1,c,2,2]", "i64[1,c,2,2]", "i64=1,1,-5,5"], BadShape);
}

#[test]
fn regions() {
    let size = [("output_height", Attribute::Int(7)), ("output_width", Attribute::Int(5))];
    gives("RoiAlign", &size, &["f32[n,c,h,w]", "f32[r,4]", "i64[r]"], &["f32[r,c,7,5]"]);
    gives("RoiAlign", &size, &["f32[*]", "f32[*]", "i64[*]"], &["f32[regions0,channels1,7,5]"]);
    refuses("RoiAlign", &size, &["f32[n,c,h,w]", "f32[3,5]", "i64[3]"], BadShape);
    refuses("RoiAlign", &size, &["f32[n,c,h,w]", "f32[3,4]", "i64[4]"], BadShape);
    refuses(
        "RoiAlign",
        &[("output_width", Attribute::Int(0))],
        &["f32[n,c,h,w]", "f32[3,4]", "i64[3]"],
        BadAttribute,
    );
    refuses(
        "RoiAlign",
        &[("sampling_ratio", Attribute::Int(-1))],
        &["f32[n,c,h,w]", "f32[3,4]", "i64[3]"],
        BadAttribute,
    );
    let pooled = [("pooled_shape", int_list(&[2, 3]))];
    gives("MaxRoiPool", &pooled, &["f32[n,c,h,w]", "f32[r,5]"], &["f32[r,c,2,3]"]);
    refuses("MaxRoiPool", &pooled, &["f32[n,c,h]", "f32[r,5]"], BadShape);
    refuses("MaxRoiPool", &[("pooled_shape", int_list(&[2]))], &["f32[n,c,h,w]", "f32[r,5]"], BadAttribute);
}
