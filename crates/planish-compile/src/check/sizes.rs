//! The sizes that a plan is checked at besides those that it was tuned at.

use planish_ir::Graph;
use planish_op::ValueType;
use planish_plan::{Plan, Program, StepKind, Variant};

/// Sizes between at which tactics change that are checked too: a profile is looked at in eight steps at most.
const MAX_BORDERS: usize = 7;
/// Sizes where one symbol is largest and the others are smallest, over all profiles.
const MAX_MIXED: usize = 6;
/// Sets of sizes in all.
const MAX_SETS: usize = 20;
/// What is tried as the smallest size of a plan that runs at any, in this order.
const SMALLEST: [i64; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(super) struct Sizes {
    /// Those that it was tuned at first, then the ends of the profiles.
    pub(super) all: Vec<Vec<(String, i64)>>,
    /// How many are ends.
    pub(super) n_ends: usize,
}

/// Smallest, largest and preferred sizes of every profile, sizes where tactics change, and mixed ones. A plan that runs
/// at any sizes is checked at the smallest at which nothing becomes empty, at odd larger ones, and mixed ones, as far as the model takes them.
pub(super) fn to_check(plan: &Plan, graph: &Graph) -> Sizes {
    let mut sets = vec![plan.header.tuned_at.clone()];
    let add = |set: Vec<(String, i64)>, sets: &mut Vec<Vec<(String, i64)>>| {
        if sets.len() < MAX_SETS && !sets.contains(&set) {
            sets.push(set);
        }
    };
    let n_ends;
    if plan.header.profiles.is_empty() && !is_open(plan) {
        n_ends = 0;
    } else if plan.header.profiles.is_empty() {
        let n_empty = n_empty(graph, &plan.header.tuned_at);
        let takes = |set: &Vec<(String, i64)>| self::n_empty(graph, set).is_some_and(|n| Some(n) <= n_empty);
        let larger = |size: i64| next_prime(size.max(2) + 1);
        let all = |size: &dyn Fn(i64) -> i64| -> Vec<(String, i64)> {
            plan.header.tuned_at.iter().map(|(symbol, tuned)| (symbol.clone(), size(*tuned))).collect()
        };
        let least = |size: i64| all(&move |tuned| size.min(tuned));
        let smallest = SMALLEST.into_iter().find(|size| takes(&least(*size))).unwrap_or(1);
        let ends: Vec<_> = [least(smallest), all(&larger)].into_iter().filter(takes).collect();
        ends.into_iter().for_each(|set| add(set, &mut sets));
        n_ends = sets.len() - 1;
        if plan.header.tuned_at.len() > 1 {
            for (symbol, tuned) in plan.header.tuned_at.iter().take(MAX_MIXED) {
                let mut set = least(smallest);
                set.iter_mut()
                    .filter(|(name, _)| name == symbol)
                    .for_each(|(_, size)| *size = larger(*tuned));
                if takes(&set) {
                    add(set, &mut sets);
                }
            }
        }
    } else {
        for profile in &plan.header.profiles {
            let of = |name: &str| profile.ranges.iter().find(|range| range.symbol == name);
            add(resized(plan, &|name| of(name).map(|range| range.min)), &mut sets);
            add(resized(plan, &|name| of(name).map(|range| range.max)), &mut sets);
        }
        n_ends = sets.len() - 1;
        for profile in &plan.header.profiles {
            let of = |name: &str| profile.ranges.iter().find(|range| range.symbol == name);
            add(resized(plan, &|name| of(name).map(|range| range.opt)), &mut sets);
        }
        let mut found = Vec::new();
        borders(plan, &plan.program, &mut found);
        found.sort();
        found.dedup();
        found.truncate(MAX_BORDERS);
        found.into_iter().for_each(|set| add(set, &mut sets));
        let mut n_mixed = 0;
        for profile in &plan.header.profiles {
            for symbol in profile.ranges.iter().map(|range| &range.symbol) {
                let of = |name: &str| profile.ranges.iter().find(|range| range.symbol == name);
                let size =
                    |name: &str| of(name).map(|range| if name == symbol { range.max } else { range.min });
                if profile.ranges.len() > 1 && n_mixed < MAX_MIXED {
                    n_mixed += 1;
                    add(resized(plan, &size), &mut sets);
                }
            }
        }
    }
    Sizes { all: sets, n_ends }
}

/// How many values have no element at these sizes; `None` where the model does not take them. What is made of nothing, as the
/// average of a pool without pixels, means nothing that could be compared.
fn n_empty(graph: &Graph, sizes: &[(String, i64)]) -> Option<usize> {
    let lookup = |name: &str| sizes.iter().find(|(known, _)| known == name).map(|(_, size)| *size);
    let fixed = graph.specialize(&lookup).ok()?;
    let is_empty = |ty: &ValueType| {
        let shape = ty.as_tensor().and_then(|ty| ty.shape.as_ref());
        shape.is_some_and(|shape| shape.iter().any(|dim| dim.as_usize() == Some(0)))
    };
    Some(fixed.values().filter(|(_, value)| is_empty(&value.ty)).count())
}

/// Whether an input has a size that is not fixed.
fn is_open(plan: &Plan) -> bool {
    plan.program.inputs.iter().any(|&input| {
        let ty = plan.program.values[input as usize].ty.as_tensor();
        // Whatever has no shape may have any.
        ty.is_none_or(|ty| {
            ty.shape.as_ref().is_none_or(|shape| shape.iter().any(|dim| dim.as_usize().is_none()))
        })
    })
}

/// The sizes up to which steps take other tactics, in bodies too.
fn borders(plan: &Plan, program: &Program, borders: &mut Vec<Vec<(String, i64)>>) {
    for step in &program.steps {
        match &step.kind {
            StepKind::Kernel { variants, .. } => {
                for Variant { up_to, .. } in variants.iter().filter(|variant| !variant.up_to.is_empty()) {
                    let size =
                        |symbol: &str| up_to.iter().find(|(known, _)| known == symbol).map(|(_, size)| *size);
                    borders.push(resized(plan, &size));
                }
            }
            StepKind::Control(control) => {
                control.bodies.iter().for_each(|body| self::borders(plan, body, borders));
            }
            StepKind::Transfer | StepKind::Evaluate => {}
        }
    }
}

/// The tuned sizes with some symbols' changed.
fn resized(plan: &Plan, size: &dyn Fn(&str) -> Option<i64>) -> Vec<(String, i64)> {
    let one = |(symbol, tuned): &(String, i64)| (symbol.clone(), size(symbol).unwrap_or(*tuned));
    plan.header.tuned_at.iter().map(one).collect()
}

/// The smallest prime from `n` on, for `n` above 1.
fn next_prime(n: i64) -> i64 {
    let is_prime = |n: i64| (2..).take_while(|factor| factor * factor <= n).all(|factor| n % factor != 0);
    (n..).find(|&n| is_prime(n)).unwrap_or(n)
}
