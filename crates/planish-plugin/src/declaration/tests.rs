//! Declarations: what is read, filled in and refused.

use super::*;

const ROPE: &str = "planish-plugin 1
op: my.ops::Rope
version: 2
types: T = float32 | float16
inputs: x: T[b, h, s, d],
        cos: T[b, s, d / 2]
outputs: y: T[b, h, s, d]
where: d % 2 == 0
attributes: interleaved: int = 0, scale: float
in-place: y = x
tolerance: float32 1e-6, float16 1e-3
tactics: narrow(V=1); wide(V=4)
kernel: rope
grid: ceildiv(b * h * s * d / 2, 256)
";

#[test]
fn a_declaration_says_all_of_an_operator() {
    let declaration = Declaration::parse(ROPE).unwrap();
    assert_eq!((&*declaration.domain, &*declaration.name, declaration.version), ("my.ops", "Rope", 2));
    assert_eq!(declaration.in_place, [(0, 0)]);
    assert_eq!((declaration.cpu, declaration.cuda), (false, true));
    assert_eq!(declaration.tactics[1], TacticRule { name: "wide".into(), defines: vec![("V".into(), 4)] });
    let attributes = declaration.filled(&[("scale".into(), Attribute::Float(0.5))]).unwrap();
    assert_eq!(attributes[0], ("interleaved".into(), Attribute::Int(0)));
    let forms = [Some((DType::F16, &[2, 3, 5, 8][..])), Some((DType::F16, &[2, 5, 4][..]))];
    let bound = declaration.signature.bind(&forms, &attributes).unwrap();
    assert_eq!(declaration.signature.outputs(&bound).unwrap(), [(DType::F16, vec![2, 3, 5, 8])]);
    assert_eq!(declaration.launch.unwrap().grid[0].eval(&|name| bound.sizes.get(name).copied()), Some(1));
}

#[test]
fn values_that_do_not_fit_are_refused() {
    let declaration = Declaration::parse(ROPE).unwrap();
    let attributes = declaration.filled(&[("scale".into(), Attribute::Float(0.5))]).unwrap();
    let refused = |x: (DType, &[usize]), cos: (DType, &[usize])| {
        declaration.signature.bind(&[Some(x), Some(cos)], &attributes).unwrap_err()
    };
    let (f32, f16) = (DType::F32, DType::F16);
    assert!(refused((f32, &[2, 3, 5, 8]), (f16, &[2, 5, 4])).contains("another input"));
    assert!(refused((f32, &[2, 3, 5, 8]), (f32, &[2, 5, 3])).contains("[2, 5, 3]"));
    assert!(refused((f32, &[2, 3, 5, 8]), (f32, &[1, 5, 4])).contains("`b` is 2"));
    assert!(refused((f32, &[2, 3, 5, 7]), (f32, &[2, 5, 3])).contains("d % 2 == 0"));
    assert!(refused((f32, &[3, 5, 8]), (f32, &[3, 5, 4])).contains("3 axes"));
    assert!(refused((DType::I64, &[2, 3, 5, 8]), (f32, &[2, 5, 4])).contains("does not take"));
    assert!(declaration.signature.bind(&[None, None], &attributes).unwrap_err().contains("`x` is missing"));
    assert!(declaration.filled(&[]).unwrap_err().contains("`scale` is missing"));
    assert!(declaration.filled(&[("other".into(), Attribute::Int(1))]).unwrap_err().contains("`other`"));
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for (from, to) in [
        ("planish-plugin 1", "planish-plugin 2"),
        ("planish-plugin 1\n", ""),
        ("my.ops::Rope", "Rope"),
        ("my.ops::Rope", "ai.onnx::Rope"),
        ("version: 2", "version: 0"),
        ("float16", "float15"),
        ("d / 2]", "d / 2"),
        ("outputs: y: T[b, h, s, d]", "outputs: y: T[b, h, s, e]"),
        ("outputs: y: T[b, h, s, d]", ""),
        ("d % 2 == 0", "d % 2"),
        ("interleaved: int = 0", "interleaved: int = zero"),
        ("y = x", "y = z"),
        ("1e-3", "2"),
        ("wide(V=4)", "wide(V=4"),
        ("grid: ceildiv(", "grid: ceil("),
        ("version: 2", "version: 2\nversion: 3"),
        ("version: 2", "version: 2\nspeed: high"),
    ] {
        let text = ROPE.replace(from, to);
        assert_ne!(text, ROPE);
        assert!(Declaration::parse(&text).is_err(), "{text}");
    }
}

#[test]
fn comments_of_both_kinds_hold_declarations() {
    let lines: String = ROPE.lines().map(|line| format!("// {line}\n")).collect();
    let block = format!("/* {}*/\n", ROPE.replace('\n', "\n * "));
    for source in [format!("{lines}\nextern int x;\n"), format!("// A plugin.\n\n{block}extern int x;\n")] {
        let text = in_comment(&source).unwrap();
        assert_eq!(Declaration::parse(&text).unwrap(), Declaration::parse(ROPE).unwrap(), "{text}");
    }
    assert!(in_comment("// nothing\nint x;\n").is_err());
}
