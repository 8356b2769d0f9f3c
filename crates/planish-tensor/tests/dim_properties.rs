//! Random expressions: the normal form means what was written, and text reads back as what was printed.

use planish_tensor::{Dim, Shape};
use proptest::prelude::*;

const NAMES: [&str; 4] = ["a", "b", "n", "batch size"];

#[derive(Clone, Copy, Debug)]
enum Op {
    Add,
    Sub,
    Mul,
    FloorDiv,
    CeilDiv,
    Mod,
    Min,
    Max,
    Broadcast,
}

#[derive(Clone, Debug)]
enum Tree {
    Number(i64),
    Symbol(usize),
    Node(Op, Box<Tree>, Box<Tree>),
}

impl Tree {
    fn to_dim(&self) -> Dim {
        match self {
            Tree::Number(value) => Dim::from(*value),
            Tree::Symbol(i) => Dim::symbol(NAMES[*i]),
            Tree::Node(op, left, right) => {
                let (a, b) = (left.to_dim(), right.to_dim());
                match op {
                    Op::Add => a + b,
                    Op::Sub => a - b,
                    Op::Mul => a * b,
                    Op::FloorDiv => a.floor_div(&b),
                    Op::CeilDiv => a.ceil_div(&b),
                    Op::Mod => a.rem(&b),
                    Op::Min => a.min(&b),
                    Op::Max => a.max(&b),
                    Op::Broadcast => a.broadcast(&b),
                }
            }
        }
    }

    /// The value as written; `None` where it is undefined.
    fn value(&self, sizes: &[i64; 4]) -> Option<f64> {
        let value = match self {
            Tree::Number(value) => *value as f64,
            Tree::Symbol(i) => sizes[*i] as f64,
            Tree::Node(op, left, right) => {
                let (a, b) = (left.value(sizes)?, right.value(sizes)?);
                match op {
                    Op::Add => a + b,
                    Op::Sub => a - b,
                    Op::Mul => a * b,
                    Op::FloorDiv | Op::CeilDiv | Op::Mod if b == 0.0 => return None,
                    Op::FloorDiv => (a / b).floor(),
                    Op::CeilDiv => (a / b).ceil(),
                    Op::Mod => a - b * (a / b).floor(),
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::Broadcast if a == 1.0 => b,
                    Op::Broadcast if b == 1.0 || a == b => a,
                    Op::Broadcast => return None,
                }
            }
        };
        // Up to here quotients of doubles round to the right integer: two different quotients of integers
        // below 2^26 are further apart than half an ulp.
        (value.abs() < f64::from(1 << 26)).then_some(value)
    }

    /// An upper bound of every coefficient and power sum that simplification may form.
    fn magnitude(&self, sizes: &[i64; 4]) -> f64 {
        match self {
            Tree::Number(value) => (value.abs() as f64).max(1.0),
            Tree::Symbol(i) => (sizes[*i] as f64).max(1.0),
            Tree::Node(Op::Add | Op::Sub | Op::Min | Op::Max | Op::Broadcast, left, right) => {
                left.magnitude(sizes) + right.magnitude(sizes)
            }
            Tree::Node(_, left, right) => 2.0 * left.magnitude(sizes) * right.magnitude(sizes),
        }
    }

    fn write(&self) -> String {
        match self {
            Tree::Number(value) => value.to_string(),
            Tree::Symbol(i) => Dim::symbol(NAMES[*i]).to_string(),
            Tree::Node(op, left, right) => {
                let (a, b) = (left.write(), right.write());
                match op {
                    Op::Add => format!("({a}) + {b}"),
                    Op::Sub => format!("{a} - ({b})"),
                    Op::Mul => format!("({a}) * ({b})"),
                    Op::FloorDiv => format!("floordiv({a}, {b})"),
                    Op::CeilDiv => format!("ceildiv({a}, {b})"),
                    Op::Mod => format!("mod({a}, {b})"),
                    Op::Min => format!("min({a}, {b})"),
                    Op::Max => format!("max({a}, {b})"),
                    Op::Broadcast => format!("broadcast({a}, {b})"),
                }
            }
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    use Op::*;
    prop::sample::select(vec![Add, Add, Sub, Mul, Mul, FloorDiv, FloorDiv, CeilDiv, Mod, Min, Max, Broadcast])
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf =
        prop_oneof![2 => (-6i64..=12).prop_map(Tree::Number), 3 => (0..NAMES.len()).prop_map(Tree::Symbol)];
    leaf.prop_recursive(6, 40, 2, |inner| {
        (op(), inner.clone(), inner).prop_map(|(op, a, b)| Tree::Node(op, Box::new(a), Box::new(b)))
    })
}

fn sizes() -> impl Strategy<Value = [i64; 4]> {
    prop::array::uniform4(prop_oneof![4 => 1i64..=9, 1 => Just(0)])
}

fn bind(sizes: &[i64; 4]) -> impl Fn(&str) -> Option<i64> {
    |name| NAMES.iter().position(|known| *known == name).map(|i| sizes[i])
}

/// Beyond this magnitude a coefficient may overflow `i64`, and unknown is a right answer.
const SAFE: f64 = (1u64 << 60) as f64;

/// Expressions of a few dozen characters made of the tokens of the grammar.
fn token_soup() -> impl Strategy<Value = String> {
    let tokens = [
        "floordiv(",
        "ceildiv(",
        "mod(",
        "min(",
        "max(",
        "broadcast(",
        "mul(",
        "unknown()",
        "(",
        ")",
        ")",
        ",",
        "+",
        "-",
        "*",
        "^",
        "0",
        "1",
        "2",
        "7",
        "9223372036854775807",
        "x",
        "y",
        "z",
        "\"a b\"",
        "\"",
        "\\",
        " ",
        "[",
        "]",
    ];
    prop::collection::vec(prop::sample::select(tokens.to_vec()), 0..40).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn normal_form_keeps_the_value(tree in tree(), sizes in prop::collection::vec(sizes(), 6)) {
        let dim = tree.to_dim();
        for sizes in &sizes {
            if let Some(value) = tree.value(sizes)
                && tree.magnitude(sizes) < SAFE
            {
                prop_assert_eq!(dim.eval(&bind(sizes)), Some(value as i64), "{} at {:?}", dim, sizes);
            }
        }
    }

    #[test]
    fn printed_text_reads_back(tree in tree()) {
        let dim = tree.to_dim();
        prop_assert_eq!(dim.to_string().parse::<Dim>().unwrap(), dim);
    }

    #[test]
    fn written_text_reads_as_built(tree in tree()) {
        prop_assert_eq!(tree.write().parse::<Dim>().unwrap(), tree.to_dim());
    }

    #[test]
    fn substitution_agrees_with_eval(tree in tree(), sizes in sizes()) {
        let dim = tree.to_dim();
        let numbers = dim.substitute(&|name| bind(&sizes)(name).map(Dim::from));
        if let Some(value) = dim.eval(&bind(&sizes))
            && tree.magnitude(&sizes) < SAFE
        {
            prop_assert_eq!(numbers.as_const(), Some(value));
        }
    }

    #[test]
    fn equal_sums_and_products_are_one_form(a in tree(), b in tree(), c in tree()) {
        let (a, b, c) = (a.to_dim(), b.to_dim(), c.to_dim());
        prop_assert_eq!(&a + &b, &b + &a);
        prop_assert_eq!(&a * &b, &b * &a);
        prop_assert_eq!(a.max(&b), b.max(&a));
        prop_assert_eq!(a.min(&b), b.min(&a));
        prop_assert_eq!(a.broadcast(&b), b.broadcast(&a));
        if !(&a + &b + &c).is_unknown() && !(&b + &c).is_unknown() {
            prop_assert_eq!((&a + &b) + &c, &a + (&b + &c));
        }
    }

    #[test]
    fn any_string_parses_or_fails(text in any::<String>()) {
        if let Ok(dim) = text.parse::<Dim>() {
            prop_assert_eq!(dim.to_string().parse::<Dim>().unwrap(), dim);
        }
        let quoted = Dim::symbol(&text);
        prop_assert_eq!(quoted.to_string().parse::<Dim>().unwrap(), quoted);
    }

    #[test]
    fn any_tokens_parse_or_fail(text in token_soup()) {
        if let Ok(dim) = text.parse::<Dim>() {
            prop_assert_eq!(dim.to_string().parse::<Dim>().unwrap(), dim);
        }
        if let Ok(shape) = format!("[{text}]").parse::<Shape>() {
            prop_assert_eq!(shape.to_string().parse::<Shape>().unwrap(), shape);
        }
    }
}
