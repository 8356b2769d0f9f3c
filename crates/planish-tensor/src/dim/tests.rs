//! One test per rule of the normal form, and the limits.

use super::Dim;
use super::poly::MAX_SIZE;
use super::text;
use crate::ShapeErrorKind;

fn dim(text: &str) -> Dim {
    text.parse().unwrap_or_else(|err| panic!("{text}: {err}"))
}

#[track_caller]
fn check(written: &str, normal: &str) {
    let parsed = dim(written);
    assert_eq!(parsed.to_string(), normal, "{written}");
    assert_eq!(dim(normal), parsed, "{normal} does not read back");
}

#[track_caller]
fn check_error(text: &str, message: &str) {
    assert_eq!(text.parse::<Dim>().unwrap_err().to_string(), message);
}

#[test]
fn like_terms_merge_and_sort() {
    check("1+seq+seq", "2*seq+1");
    check("x-x", "0");
    check("b*a - 2*a*b", "-a*b");
    check("(a+b)*(a-b)", "a^2-b^2");
    check("1-x", "-x+1");
    check("3*x*x*2 + y - -y", "6*x^2+2*y");
    check("0*x", "0");
    assert_eq!(Dim::symbol("a") * Dim::symbol("b"), Dim::symbol("b") * Dim::symbol("a"));
}

#[test]
fn floordiv_takes_out_what_divides() {
    check("floordiv(2*x,2)", "x");
    check("floordiv(4*x+8,4)", "x+2");
    check("floordiv(batch*12*seq,12)", "batch*seq");
    check("floordiv(4*x+y,4)", "x+floordiv(y,4)");
    check("floordiv(x,1)", "x");
    check("floordiv(x,-1)", "-x");
    check("floordiv(-7,2)", "-4");
    check("floordiv(7,-2)", "-4");
    check("floordiv(0,x)", "0");
}

#[test]
fn floordiv_has_one_spelling_for_each_offset() {
    check("floordiv(h-1,2)+1", "floordiv(h+1,2)");
    check("ceildiv(h,2)", "floordiv(h+1,2)");
    check("floordiv(h+7,4)", "floordiv(h+3,4)+1");
    check("floordiv(2*x+1,4)", "floordiv(x,2)");
    check("floordiv(6*x+4,4)", "floordiv(3*x,2)+1");
}

#[test]
fn nested_floordiv_becomes_one() {
    check("floordiv(floordiv(x,2),2)", "floordiv(x,4)");
    check("floordiv(floordiv(x-1,2)+1-1,2)+1", "floordiv(x+3,4)");
    check("floordiv(2*floordiv(x,3)+1,4)", "floordiv(x,6)");
    check("floordiv(y+floordiv(x,3),2)", "floordiv(x+3*y,6)");
    check("floordiv(floordiv(x,2)+floordiv(y,3),5)", "floordiv(floordiv(x,2)+floordiv(y,3),5)");
}

#[test]
fn symbolic_division_cancels() {
    check("floordiv(b*s*768,b*s)", "768");
    check("floordiv(b*s*768,12*b)", "64*s");
    check("floordiv(b*s,b*t)", "floordiv(s,t)");
    check("floordiv(2*b*s,4*b)", "floordiv(s,2)");
    check("floordiv(a*n+b,n)", "a+floordiv(b,n)");
    check("floordiv(768*b*(s+p),12*b*(s+p))", "64");
    check("floordiv(a*a-b*b,a-b)", "a+b");
    check("floordiv(x*y,-y)", "-x");
    check("floordiv(x,x+1)", "0");
    check("ceildiv(a*n+b,n)", "a+ceildiv(b,n)");
    check("ceildiv(a*b,2*a)", "floordiv(b+1,2)");
}

#[test]
fn remainders_reduce() {
    check("mod(4*x+6,4)", "2");
    check("mod(5*x+7,3)", "mod(2*x+1,3)");
    check("mod(-x,3)", "mod(2*x,3)");
    check("mod(x,-3)", "-mod(2*x,3)");
    check("mod(mod(x,6),3)", "mod(x,3)");
    check("mod(2*x+1,4)", "2*mod(x,2)+1");
    check("mod(mod(x,3),5)", "mod(x,3)");
    check("mod(a*n+b,n)", "mod(b,n)");
    check("mod(a*b,a)", "0");
    check("mod(x,x+1)", "x");
    check("floordiv(mod(x,4),4)", "0");
    check("mod(-7,3)", "2");
}

#[test]
fn extremes_drop_what_is_beaten() {
    check("min(x,x)", "x");
    check("max(3,5)", "5");
    check("min(3,5)", "3");
    check("max(x,0)", "x");
    check("min(x,-1)", "-1");
    check("max(x,1)", "max(1,x)");
    check("max(seq+past,seq)", "past+seq");
    check("min(x+1,x+3)", "x+1");
    check("max(max(b,a),max(c,a))", "max(a,b,c)");
    check("min(max(x,4),3)", "3");
}

#[test]
fn broadcast_is_exact_for_sizes_zero_and_one() {
    check("broadcast(x,1)", "x");
    check("broadcast(1,1)", "1");
    check("broadcast(x,x)", "x");
    check("broadcast(x,3)", "3");
    check("broadcast(x,0)", "0");
    check("broadcast(2*x,y)", "2*x");
    check("broadcast(x+2,y)", "x+2");
    check("broadcast(y,broadcast(x,1))", "broadcast(x,y)");
    check("broadcast(2,3)", "unknown()");
    check("broadcast(min(512,x),x)", "x");
    check("broadcast(x,broadcast(y,min(512,y+1,x)))", "broadcast(x,y)");
    // With `x` 1 and `y` 0 this is 0, with both 2 it is 2.
    check("broadcast(x,min(x,y))", "broadcast(x,min(x,y))");
    let both = dim("broadcast(x,y)");
    let at = |x, y| both.eval(&|name| Some(if name == "x" { x } else { y }));
    assert_eq!(
        [at(0, 1), at(1, 0), at(1, 5), at(5, 5), at(4, 5)],
        [Some(0), Some(0), Some(5), Some(5), None]
    );
}

#[test]
fn overflow_and_division_by_zero_are_unknown() {
    let big = Dim::from(i64::MAX);
    for unknown in [&big + 1, &big * 2, Dim::from(i64::MIN) - 1, -Dim::from(i64::MIN), dim("floordiv(x,0)")] {
        assert!(unknown.is_unknown());
        assert_ne!(unknown, Dim::ZERO);
        assert_eq!(unknown.eval(&|_| Some(1)), None);
        assert!((&unknown - &unknown).is_unknown());
        assert!((&unknown * Dim::ZERO).is_unknown());
        assert!(unknown.max(&Dim::ONE).is_unknown());
        assert!(Dim::ONE.broadcast(&unknown).is_unknown());
        assert!(Dim::ONE.floor_div(&unknown).is_unknown());
    }
    assert!(Dim::from(usize::MAX).is_unknown());
    assert!((Dim::symbol("x") * big.clone() * 2).is_unknown());
    assert!(dim("x^4294967295*x").is_unknown());
    assert!(dim("floordiv(x,-9223372036854775808)").is_unknown());
    check("unknown()", "unknown()");
    check("-9223372036854775808", "-9223372036854775808");
    check("-9223372036854775808*x", "-9223372036854775808*x");
}

#[test]
fn products_beyond_the_limit_stay_opaque() {
    let sum = |prefix: &str, n: usize| -> Dim { (0..n).map(|i| Dim::symbol(&format!("{prefix}{i}"))).sum() };
    assert_eq!((sum("a", 8) * sum("b", 8)).to_string().matches('+').count(), 63);
    let opaque = sum("a", 9) * sum("b", 8);
    assert!(opaque.to_string().starts_with("mul(a0+a1+"));
    assert_eq!(dim(&opaque.to_string()), opaque);
    assert_eq!(sum("b", 8) * sum("a", 9), opaque);
    assert_eq!(&opaque - &opaque, Dim::ZERO);
    assert_eq!(opaque.eval(&|name| Some(if name.starts_with('a') { 2 } else { 3 })), Some(18 * 24));
}

#[test]
fn size_and_depth_are_bounded() {
    // Each step doubles the tree although it shares the Arc.
    let mut doubling = Dim::symbol("x");
    for _ in 0..100 {
        doubling = doubling.rem(&Dim::symbol("n")).max(&(&doubling * 3 + 1));
    }
    assert!(doubling.is_unknown());
    let mut deep = Dim::symbol("x");
    for i in 0..1000 {
        deep = deep.floor_div(&Dim::symbol("n")) + i;
    }
    assert!(deep.is_unknown());
    let sum: Dim = (0..i64::from(MAX_SIZE)).map(|i| Dim::symbol(&format!("s{i}"))).sum();
    assert!(sum.is_unknown());
    assert!(Dim::symbol(&"x".repeat(10_000)).is_unknown());
    // The longest text that can be printed reads back: escapes of one byte take six.
    let longest = Dim::symbol(&"\u{1}".repeat(8 * (MAX_SIZE as usize - 2)));
    assert!(!longest.is_unknown());
    assert_eq!(dim(&longest.to_string()), longest);
}

#[test]
fn chains_of_strided_layers_stay_small() {
    let mut height = Dim::symbol("h");
    for _ in 0..40 {
        height = (&height + 2 - 3).floor_div(&Dim::from(2)) + 1;
    }
    assert_eq!(height, dim("floordiv(h+1099511627775,1099511627776)"));
}

#[test]
fn symbols_of_any_name_round_trip() {
    for name in ["unk__99", "batch size", "Min(4, x)", "?", "", "max", "a.b", "7", "\"\\\n\t\u{85}é", "_"] {
        let symbol = Dim::symbol(name);
        assert_eq!(symbol.as_symbol(), Some(name));
        assert_eq!(dim(&symbol.to_string()), symbol);
        check(&format!("{symbol}*2 - 1"), &format!("2*{symbol}-1"));
    }
    assert_eq!(Dim::symbol("batch size").to_string(), "\"batch size\"");
    assert_eq!(Dim::symbol("a\tb").to_string(), "\"a\\u{9}b\"");
    assert_eq!(Dim::symbol("unk__99").to_string(), "unk__99");
}

#[test]
fn queries() {
    let expr = dim("floordiv(h+pad,stride)*batch");
    let names: Vec<String> = expr.symbols().iter().map(|name| name.to_string()).collect();
    assert_eq!(names, ["batch", "h", "pad", "stride"]);
    assert_eq!(expr.as_const(), None);
    assert_eq!(Dim::from(-1).as_usize(), None);
    assert_eq!(Dim::from(7usize).as_usize(), Some(7));
    assert_eq!(Dim::from(7i32), 7);
    assert_eq!(dim("x+1").as_symbol(), None);
    assert!(expr.is_nonnegative() && !dim("h-1").is_nonnegative());
}

#[test]
fn substitution_simplifies_again() {
    let expr = dim("floordiv(h+pad,2)*batch");
    let replaced = expr.substitute(&|name| match name {
        "pad" => Some(Dim::symbol("h")),
        "batch" => Some(Dim::from(3)),
        _ => None,
    });
    assert_eq!(replaced, dim("3*h"));
    assert_eq!(dim("x^3").substitute(&|_| Some(dim("a+1"))), dim("a*a*a+3*a*a+3*a+1"));
    assert_eq!(dim("broadcast(x,y)").substitute(&|name| (name == "x").then_some(Dim::ONE)), dim("y"));
}

#[test]
fn eval_needs_every_symbol_and_a_value() {
    assert_eq!(dim("2*x+y").eval(&|name| (name == "x").then_some(1)), None);
    assert_eq!(dim("floordiv(x,y)").eval(&|_| Some(0)), None);
    assert_eq!(dim("x*x").eval(&|_| Some(i64::MAX)), None);
    assert_eq!(dim("x*x-y*x").eval(&|_| Some(i64::MAX)), Some(0));
    assert_eq!(
        dim("floordiv(x,n)+ceildiv(x,n)+mod(x,n)").eval(&|n| Some(if n == "x" { 7 } else { 2 })),
        Some(8)
    );
}

#[test]
fn parse_errors_say_where() {
    check_error("", "expected a number, a symbol, a function or `(` at byte 0, found the end");
    check_error("2*+x", "expected a number, a symbol, a function or `(` at byte 2, found `+x`");
    check_error("x y", "expected an operator or the end at byte 2, found `y`");
    check_error("min(x)", "`min` at byte 3 cannot take 1 arguments");
    check_error("mod(x,y,z)", "`mod` at byte 3 cannot take 3 arguments");
    check_error("\"abc", "expected a closing `\"` at byte 4, found the end");
    check_error("x^y", "expected a number at byte 2, found `y`");
    check_error(
        "99999999999999999999",
        "the number at byte 0 does not fit: dimensions are 64-bit, powers 32-bit",
    );
    let kind = |text: String| text.parse::<Dim>().unwrap_err().kind().clone();
    assert!(matches!(kind("f(x)".into()), ShapeErrorKind::UnknownFunction { at: 1, .. }));
    assert!(matches!(kind("(".repeat(1000)), ShapeErrorKind::NestedTooDeep { at: 129, limit: 128 }));
    assert!(matches!(kind("-".repeat(1000)), ShapeErrorKind::NestedTooDeep { .. }));
    assert!(matches!(kind("x".repeat(70_000)), ShapeErrorKind::TextTooLong { bytes: 70_000, .. }));
    assert!(matches!(kind("x^4294967296".into()), ShapeErrorKind::NumberOutOfRange { at: 2 }));
    assert!(matches!(kind("\"\\u{d800}\"".into()), ShapeErrorKind::Syntax { .. }));
}

/// Texts of the greatest length built to make every rule work hard. The bound is far above what they take
/// (at most 0.3 s, optimized) and far below what anything quadratic in the text would.
#[test]
fn hostile_text_is_read_quickly() {
    let fill = |start: String, repeated: &str, end: &str| {
        let n = (text::MAX_DIM_TEXT - start.len() - end.len()) / repeated.len();
        start + &repeated.repeat(n) + end
    };
    let list =
        |n: usize, separator: &str| (0..n).map(|i| format!("s{i}")).collect::<Vec<_>>().join(separator);
    let sum = list(200, "+");
    let extremes = format!("+max({})", list(60, ","));
    for text in [
        fill(sum.clone(), "+x-x", ""),
        fill(list(200, "*"), "*y", ""),
        fill(format!("({sum})"), "*(-1)", ""),
        fill("0".into(), &extremes, ""),
        fill("0".into(), "+floordiv((a+b)*(c+d)*(e+f)*(g+h),(a+b)*(e+f))", ""),
        fill("0".into(), &format!("+floordiv({sum},2)"), ""),
        fill("0".into(), &format!("+mod({sum},{sum})"), ""),
    ] {
        let start = std::time::Instant::now();
        let parsed: Result<Dim, _> = text.parse();
        assert!(parsed.is_ok() && start.elapsed().as_secs() < 10, "{}", &text[text.len() - 30..]);
    }
}

#[test]
fn complexity_counts_the_tree() {
    let (n, m) = (Dim::symbol("n"), Dim::symbol("m"));
    assert_eq!((Dim::from(7).complexity(), Dim::UNKNOWN.complexity()), (1, 1));
    assert_eq!(n.complexity(), 2);
    assert_eq!((&n * &m + &n).complexity(), 5);
    assert!(n.min(&m).complexity() > n.complexity());
    assert!(Dim::symbol(&"n".repeat(100)).complexity() > 10);
}
