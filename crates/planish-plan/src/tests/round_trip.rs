//! What is written is read back as it was, whatever it holds, and equal plans have equal bytes.

use planish_kernel::{Layout, Region};
use planish_op::{Attribute, AttributeKind, FieldSpec, Op, ValueType};
use planish_tensor::{Bytes, DType, Dim, Shape, Tensor};
use planish_testing::Random;
use proptest::collection::vec;
use proptest::prelude::*;

use super::sample::{self, kernel, value};
use crate::container::CHUNK;
use crate::{Check, Header, Outcome, Plan, Role, StepKind, Storage, Weight};

#[track_caller]
fn check(plan: &Plan) -> Plan {
    let bytes = plan.to_bytes().unwrap();
    let again = Plan::from_bytes(Bytes::from_vec(bytes.clone())).unwrap();
    // Bytes tell apart what `==` does not (zeros with a sign) and do not what it does (NaN).
    assert_eq!(again.to_bytes().unwrap(), bytes);
    again
}

#[test]
fn the_sample_comes_back() {
    let plan = sample::plan();
    assert_eq!(check(&plan), plan);
}

#[test]
fn an_empty_plan_comes_back() {
    let plan = sample::plan();
    let targets = plan.header.targets[..1].to_vec();
    let empty =
        Plan { header: Header { targets, ..Header::default() }, roles: vec![Role::Host], ..Plan::default() };
    assert_eq!(check(&empty), empty);
}

#[test]
fn weights_are_aligned_and_share_the_file() {
    let folder = std::env::temp_dir().join(format!("planish-weights-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("a.plan");
    let mut plan = sample::plan();
    for n in [0, 1, 63, 64, 65, CHUNK - 1, CHUNK + 1, 20 * CHUNK + 5] {
        plan.weights.push(Weight {
            name: format!("w{n}"),
            dtype: DType::U8,
            dims: vec![n],
            format: None,
            bytes: Bytes::from_vec((0..n).map(|idx| (idx / 7) as u8).collect::<Vec<_>>()),
            layout: planish_kernel::Layout::Plain,
            packed_by: None,
            narrowed: None,
        });
    }
    let len = plan.write_file(&path).unwrap();
    assert_eq!(len, std::fs::metadata(&path).unwrap().len());
    assert_eq!(std::fs::read(&path).unwrap(), plan.to_bytes().unwrap());
    let read = Plan::open(&path).unwrap();
    assert_eq!(read, plan);
    for weight in &read.weights {
        assert_eq!(weight.bytes.as_ptr() as usize % 64, 0, "{}", weight.name);
    }
    // Damage in the last chunk, which another thread may look at.
    let mut bytes = plan.to_bytes().unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 4;
    let error = Plan::from_bytes(Bytes::from_vec(bytes)).unwrap_err();
    assert!(error.to_string().contains(&format!("`w{}` changed", 20 * CHUNK + 5)), "{error}");
    // The file can be replaced while it is open, and nothing else is left in the folder.
    plan.header.name = "another".to_string();
    plan.write_file(&path).unwrap();
    assert_eq!(read.weights, Plan::open(&path).unwrap().weights);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    assert!(plan.write_file(&folder.join("no folder/a.plan")).is_err());
    assert!(plan.write_file(std::path::Path::new("/")).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z/.0-9]{0,12}", 1 => "\\PC{0,8}"]
}

fn dim() -> impl Strategy<Value = Dim> {
    let leaf = prop_oneof![
        3 => (0i64..100).prop_map(Dim::from),
        2 => prop_oneof!["batch", "seq", "n'3", "\\PC{1,4}"].prop_map(|name| Dim::symbol(&name)),
        1 => Just(Dim::UNKNOWN),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        (inner.clone(), inner, 0..4u8).prop_map(|(a, b, which)| match which {
            0 => a + b,
            1 => a * b,
            2 => a.broadcast(&b),
            _ => a.floor_div(&b),
        })
    })
}

fn dtype() -> impl Strategy<Value = DType> {
    proptest::sample::select(DType::ALL.to_vec())
}

fn value_type() -> impl Strategy<Value = ValueType> {
    let tensor = (dtype(), proptest::option::of(vec(dim(), 0..4))).prop_map(|(dtype, dims)| match dims {
        Some(dims) => ValueType::tensor(dtype, Shape::new(dims)),
        None => ValueType::unranked(dtype),
    });
    tensor.prop_recursive(3, 3, 1, |inner| {
        (inner, any::<bool>()).prop_map(|(inner, sequence)| match sequence {
            true => ValueType::Sequence(Box::new(inner)),
            false => ValueType::Optional(Box::new(inner)),
        })
    })
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let drawn = (dtype(), vec(0usize..4, 0..3), any::<u64>());
    drawn.prop_map(|(dtype, shape, seed)| Random::new(seed).raw(dtype, &shape))
}

fn attribute(field: &'static FieldSpec) -> BoxedStrategy<Attribute> {
    match field.kind {
        AttributeKind::Bool => any::<bool>().prop_map(Attribute::Bool).boxed(),
        AttributeKind::Int => any::<i64>().prop_map(Attribute::Int).boxed(),
        AttributeKind::Float => any::<u32>().prop_map(|bits| Attribute::Float(f32::from_bits(bits))).boxed(),
        AttributeKind::Str if !field.words.is_empty() => {
            proptest::sample::select(field.words).prop_map(|word| Attribute::Str(word.to_string())).boxed()
        }
        AttributeKind::Str => text().prop_map(Attribute::Str).boxed(),
        AttributeKind::Ints => vec(any::<i64>(), 0..4).prop_map(Attribute::Ints).boxed(),
        AttributeKind::Floats => vec(any::<u32>(), 0..4)
            .prop_map(|bits| Attribute::Floats(bits.into_iter().map(f32::from_bits).collect()))
            .boxed(),
        AttributeKind::Strs => vec(text(), 0..4).prop_map(Attribute::Strs).boxed(),
        AttributeKind::DType => dtype().prop_map(Attribute::DType).boxed(),
        AttributeKind::Tensor => tensor().prop_map(Attribute::Tensor).boxed(),
        AttributeKind::Type => value_type().prop_map(Attribute::Type).boxed(),
    }
}

/// Any operator of the table, each attribute given or (where it may be) not.
fn operator() -> impl Strategy<Value = Op> {
    (0..Op::SPECS.len()).prop_flat_map(|idx| {
        let spec = &Op::SPECS[idx];
        let given = |field: &'static FieldSpec| {
            let given = attribute(field).prop_map(move |attribute| Some((field.name.to_string(), attribute)));
            if field.required { given.boxed() } else { prop_oneof![given, Just(None)].boxed() }
        };
        spec.fields.iter().map(given).collect::<Vec<_>>().prop_filter_map("lists of words", move |list| {
            let list: Vec<_> = list.into_iter().flatten().collect();
            Op::from_attributes(spec.name, &list).ok()
        })
    })
}

proptest! {
    #[test]
    fn any_operators_types_and_texts_come_back(
        operators in vec((operator(), text(), vec(tensor(), 0..2)), 1..6),
        types in vec((value_type(), text(), any::<bool>()), 0..6),
        texts in vec(text(), 4),
        weights in vec((tensor(), text(), proptest::option::of(text())), 0..4),
        worst in any::<u64>(),
    ) {
        let mut plan = sample::plan();
        for (idx, (op, name, constants)) in operators.into_iter().enumerate() {
            let output = plan.program.values.len() as u32;
            plan.program.values.push(value(&name, "[batch]", Storage::Own));
            let mut step = kernel(&name, Region::single(op, 1, 1), &[0], &[output]);
            step.region.constants = constants;
            if idx % 2 == 1 {
                step.kind = StepKind::Evaluate;
            }
            plan.program.steps.push(step);
        }
        for (ty, name, last) in types {
            let layout = if last { Layout::ChannelsLast } else { Layout::Plain };
            plan.program.values.push(crate::Value { name, ty, layout, storage: Storage::Own, target: 1 });
        }
        for (tensor, name, format) in weights {
            plan.weights.push(Weight {
                name,
                dtype: tensor.dtype(),
                dims: tensor.shape().to_vec(),
                layout: planish_kernel::Layout::Plain,
                packed_by: format.as_ref().map(|_| 0),
                narrowed: None,
                format,
                bytes: tensor.bytes().clone(),
            });
        }
        let [name, options, graph, why] = <[String; 4]>::try_from(texts).unwrap();
        plan.certificate.checks.push(Check {
            subject: name.clone(),
            n_points: worst,
            worst: f64::from_bits(worst),
            outcome: Outcome::Failed(why.clone()),
        });
        plan.evidence[0].why = why;
        (plan.header.name, plan.header.options, plan.graph) = (name, options, graph);
        let again = check(&plan);
        prop_assert_eq!(again.program.values, plan.program.values);
        prop_assert_eq!(again.weights, plan.weights);
        prop_assert_eq!(again.certificate.checks.len(), plan.certificate.checks.len());
    }
}
