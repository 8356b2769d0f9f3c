//! Tests of shapes: text, broadcasting, axes.

use super::{Shape, ShapeErrorKind, distinct_axes, normalize_axis};
use crate::Dim;

fn shape(text: &str) -> Shape {
    text.parse().unwrap_or_else(|err| panic!("{text}: {err}"))
}

#[test]
fn text_round_trips() {
    for text in ["[]", "[batch,3,224,224]", "[floordiv(h+1,2),\"batch size\",max(a,b)]", "[unknown()]"] {
        assert_eq!(shape(text).to_string(), text);
    }
    assert_eq!(shape(" [ batch , 3 ] "), Shape::new(vec![Dim::symbol("batch"), Dim::from(3)]));
    for bad in ["", "[", "[1", "[1,]", "[1]]", "1", "[,]"] {
        assert!(matches!(bad.parse::<Shape>().unwrap_err().kind(), ShapeErrorKind::Syntax { .. }), "{bad}");
    }
}

#[test]
fn construction_and_access() {
    let image = Shape::fixed(&[1, 3, 8, 8]);
    assert_eq!(image, Shape::from([1, 3, 8, 8]));
    assert_eq!(image, Shape::from([1usize, 3, 8, 8].as_slice()));
    assert_eq!((image.rank(), &image[1], image.get(4)), (4, &Dim::from(3), None));
    assert_eq!(image.as_fixed(), Some(vec![1, 3, 8, 8]));
    assert_eq!(shape("[n,3]").as_fixed(), None);
    assert_eq!(Shape::fixed(&[-1]).as_fixed(), None);
    assert_eq!(shape("[n,n+1]").eval(&|_| Some(4)), Some(vec![4, 5]));
    assert_eq!(shape("[n-5]").eval(&|_| Some(4)), None);
    assert_eq!(shape("[n,m]").substitute(&|name| (name == "n").then_some(Dim::from(2))), shape("[2,m]"));
}

#[test]
fn element_count_multiplies() {
    assert_eq!(Shape::scalar().element_count(), 1);
    assert_eq!(shape("[b,3,s,4]").element_count(), "12*b*s".parse::<Dim>().unwrap());
    assert!(Shape::fixed(&[i64::MAX, i64::MAX]).element_count().is_unknown());
    assert_eq!(Shape::fixed(&[i64::MAX, i64::MAX, 0]).element_count(), 0);
}

#[test]
fn broadcast_follows_the_rule() {
    for (left, right, result) in [
        ("[2,3,4]", "[4]", "[2,3,4]"),
        ("[]", "[2]", "[2]"),
        ("[2,1]", "[1,3]", "[2,3]"),
        ("[0]", "[1]", "[0]"),
        ("[b,1,s]", "[h,1]", "[b,h,s]"),
        ("[b]", "[5]", "[5]"),
        ("[b,s]", "[b,1]", "[b,s]"),
        ("[a]", "[b]", "[broadcast(a,b)]"),
    ] {
        assert_eq!(Shape::broadcast(&shape(left), &shape(right)).unwrap(), shape(result), "{left} {right}");
        assert_eq!(Shape::broadcast(&shape(right), &shape(left)).unwrap(), shape(result), "{right} {left}");
    }
    let err = Shape::broadcast(&shape("[b,2,3]"), &shape("[4,3]")).unwrap_err();
    assert_eq!(
        err.to_string(),
        "cannot broadcast [b,2,3] with [4,3]: sizes 2 and 4 meet at axis 1 of the result; one of them must be 1 \
         or both equal"
    );
    assert!(Shape::broadcast(&shape("[0]"), &shape("[2]")).is_err());
}

#[test]
fn axes_count_from_either_end() {
    assert_eq!(normalize_axis(-1, 4), Ok(3));
    assert_eq!(normalize_axis(-4, 4), Ok(0));
    assert_eq!(normalize_axis(3, 4), Ok(3));
    let message = |axis, rank| normalize_axis(axis, rank).unwrap_err().to_string();
    assert_eq!(message(4, 4), "axis 4 does not exist in a tensor of rank 4: it must be in -4..=3");
    assert_eq!(message(0, 0), "axis 0 does not exist in a tensor of rank 0: a scalar has no axes");
    assert!(normalize_axis(i64::MIN, 4).is_err() && normalize_axis(i64::MAX, 4).is_err());
    assert_eq!(distinct_axes(&[-1, 0], 3), Ok(vec![2, 0]));
    let twice = distinct_axes(&[2, 0, -1], 3).unwrap_err();
    assert_eq!(twice.to_string(), "axis 2 is named twice; each axis may appear once");
    assert!(distinct_axes(&[3], 3).is_err());
}
