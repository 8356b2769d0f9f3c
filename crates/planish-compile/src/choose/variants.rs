//! Other tactics at other sizes: a step keeps its layouts and the packing of its weights, and changes its tactic
//! where another one that reads the same memory is faster.
//!
//! Every profile is looked at from its smallest sizes over those that it is tuned for to its largest, in steps of two. A tactic takes over at a size if it
//! is faster there by more than the noise; between two sizes the border lies at their geometric mean. Backends offer
//! what their cost model likes at a size; the choice itself, and on devices what won at other sizes, are measured at
//! every size all the same, since a rival is nothing without them.

use std::collections::{HashMap, HashSet};

use planish_kernel::{Candidate, MemoryKind, Tactic, Want};
use planish_op::Op;
use planish_plan::{Profile, SymbolRange, Variant};

use crate::choose::Chosen;
use crate::choose::select::Picks;
use crate::choose::tactic_lock::TacticLock;
use crate::error::{BuildError, BuildErrorKind};
use crate::lower::candidates::{Alternative, Catalog, Choices, is_within};
use crate::lower::{Draft, DraftKind, DraftStep};
use crate::price::cache::TimingCache;
use crate::price::measure::{Asked, measure};
use crate::price::policy::{MAX_BETWEEN, MAX_POINTS, MIN_GAIN, POINT_RATIO};
use crate::sizes::Sizes;

/// For each step the variants beside its choice, those for the smallest sizes first; the last one holds for all that
/// is left, and is missing where the choice holds everywhere.
pub(crate) type Variants = Vec<Vec<Variant>>;

/// Looks for faster tactics at the sizes of every profile. Nothing changes without measurements, or where a single size
/// is allowed; a tactic lock says what holds where.
pub(crate) fn variants(
    chosen: &Chosen,
    catalog: &Catalog<'_>,
    timings: &mut TimingCache,
) -> Result<Variants, BuildError> {
    let Chosen { draft, choices, picks, .. } = chosen;
    let (sizes, options) = (catalog.sizes, catalog.options);
    let none = vec![Vec::new(); draft.steps.len()];
    let profiles = &options.profiles;
    let paths: Vec<Vec<Sizes>> = profiles.iter().map(|profile| points(profile, sizes)).collect();
    let is_one_size = paths.iter().map(Vec::len).sum::<usize>() < 2;
    if is_one_size || (options.tune_level == 0 && options.tactics.is_none()) {
        return Ok(none);
    }
    let look = Look { draft, choices, picks, catalog, parts: possible_parts(draft, choices, picks) };
    if let Some(lock) = &options.tactics {
        return look.locked(lock, &paths);
    }
    let mut lists: Variants = none;
    let mut differs = vec![false; draft.steps.len()];
    for (profile, points) in profiles.iter().zip(&paths) {
        let best = look.best_at(points, timings)?;
        // One profile needs no telling apart.
        let alone = if let [_] = profiles[..] { None } else { Some(profile) };
        for (idx, best) in best.iter().enumerate() {
            let Some(own) = look.own(idx) else { continue };
            differs[idx] |= best.iter().any(Option::is_some);
            lists[idx].extend(guarded(best, &own.tactic, points, alone));
        }
    }
    for (idx, list) in lists.iter_mut().enumerate() {
        match look.own(idx) {
            Some(own) if differs[idx] => {
                // What no profile has, none may run at; a variant for all is asked for all the same.
                let is_open = |variant: &Variant| variant.from.is_empty() && variant.up_to.is_empty();
                if !list.last().is_some_and(is_open) {
                    let tactic = own.tactic.clone();
                    list.push(Variant { from: Vec::new(), up_to: Vec::new(), tactic });
                }
            }
            _ => list.clear(),
        }
    }
    Ok(lists)
}

/// What was chosen at the tuned sizes, looked at from others.
struct Look<'a> {
    draft: &'a Draft,
    choices: &'a [Choices],
    picks: &'a Picks,
    catalog: &'a Catalog<'a>,
    parts: HashSet<usize>,
}

impl Look<'_> {
    /// The choice of a step that runs something.
    fn own(&self, idx: usize) -> Option<&Candidate> {
        let choice = self.choices[idx].list.get(self.picks[idx])?;
        (!choice.view).then_some(&choice.candidate)
    }

    /// For each step the tactic of each point; the choice itself is `None`.
    fn best_at(
        &self,
        points: &[Sizes],
        timings: &mut TimingCache,
    ) -> Result<Vec<Vec<Option<Tactic>>>, BuildError> {
        let n_steps = self.draft.steps.len();
        let mut best: Vec<Vec<Option<Tactic>>> = vec![vec![None; points.len()]; n_steps];
        let mut winners: Vec<Vec<Candidate>> = vec![Vec::new(); n_steps];
        let last = points.len().saturating_sub(1);
        let ends = if last == 0 { vec![0] } else { vec![0, last] };
        for at in ends.into_iter().chain(1..last) {
            let is_end = at == 0 || at == last;
            let mut there = Vec::with_capacity(n_steps);
            for (idx, winners) in winners.iter().enumerate() {
                let known = (!is_end).then_some(&winners[..]);
                there.push(self.rivals(idx, &points[at], known));
            }
            let steps = self.draft.steps.iter().zip(&mut there);
            let mut asked: Vec<Asked<'_>> =
                steps.map(|(step, choices)| Asked { step, choices, alone: false }).collect();
            measure(self.draft, &mut asked, self.catalog.backends, self.catalog.options, timings)?;
            for (idx, there) in there.iter().enumerate() {
                let winner = self.own(idx).and_then(|own| faster(there, &own.tactic));
                winners[idx].extend(winner.cloned());
                best[idx][at] = winner.map(|winner| winner.tactic.clone());
            }
        }
        Ok(best)
    }

    /// What a lock says of these sizes. A tactic that is gone is an error, as it is at the tuned sizes; one that is
    /// meant for sizes that no profile has is left out.
    fn locked(&self, lock: &TacticLock, paths: &[Vec<Sizes>]) -> Result<Variants, BuildError> {
        let mut lists = vec![Vec::new(); self.draft.steps.len()];
        for (idx, step) in self.draft.steps.iter().enumerate() {
            for locked in lock.variants(&step.region) {
                let Some(point) = paths.iter().flatten().find(|point| point.is_within(locked)) else {
                    continue;
                };
                let there = self.rivals(idx, point, None);
                let found = there.list.iter().map(|one| &one.candidate.tactic);
                let Some(tactic) = found.clone().find(|tactic| tactic.name == locked.tactic.name) else {
                    let names: Vec<String> = found.map(Tactic::to_string).collect();
                    let message = format!(
                        "step `{}` is locked to {} at other sizes, which is gone; there are {}; save the tactics of a \
                         build without a lock anew",
                        step.region.title(),
                        locked.tactic,
                        names.join(", ")
                    );
                    return Err(BuildError::new(BuildErrorKind::Refused, message));
                };
                lists[idx].push(Variant { tactic: tactic.clone(), ..locked.clone() });
            }
        }
        Ok(lists)
    }
}

/// Two sizes of a range.
type Ends = fn(&SymbolRange) -> (i64, i64);

/// The sizes of a profile to look at, ascending in every symbol: from the smallest over those that it is tuned for to
/// the largest.
pub(crate) fn points(profile: &Profile, sizes: &Sizes) -> Vec<Sizes> {
    let ranges = &profile.ranges;
    let span = |from: i64, to: i64| to.max(1) as f64 / from.max(1) as f64;
    // Steps of two in the symbol that grows most.
    let n_steps = |ends: Ends| {
        let widest = ranges.iter().map(ends).map(|(from, to)| span(from, to)).fold(1.0, f64::max);
        if widest > 1.0 { (widest.log(POINT_RATIO).round() as usize).max(1) } else { 0 }
    };
    let halves: [Ends; 2] = [|range| (range.min, range.opt), |range| (range.opt, range.max)];
    let [mut below, mut above] = halves.map(n_steps);
    if below + above > MAX_POINTS - 1 {
        let least = |n: usize| usize::from(n > 0);
        below =
            (below * (MAX_POINTS - 1) / (below + above)).clamp(least(below), MAX_POINTS - 1 - least(above));
        above = MAX_POINTS - 1 - below;
    }
    let mut points: Vec<Sizes> = Vec::new();
    for (ends, n_steps) in halves.into_iter().zip([below, above]) {
        for step in 0..=n_steps {
            let size = |range: &SymbolRange| {
                let (from, to) = ends(range);
                let share = if n_steps == 0 { 0.0 } else { step as f64 / n_steps as f64 };
                let size = from.max(1) as f64 * span(from, to).powf(share);
                (range.symbol.clone(), if step == 0 { from } else { size.round() as i64 })
            };
            let point = sizes.with(ranges.iter().map(size));
            if points.last() != Some(&point) {
                points.push(point);
            }
        }
    }
    points
}

impl Look<'_> {
    /// The alternatives at other sizes that read and write the same memory in the same way as the choice does, the choice
    /// among them; with `known`, for sizes between others, a device looks at these and few more.
    fn rivals(&self, idx: usize, point: &Sizes, known: Option<&[Candidate]>) -> Choices {
        let Look { draft, choices, picks, catalog, parts } = self;
        let options = catalog.options;
        let nothing = Choices { problem: None, list: Vec::new(), refused: Vec::new() };
        let step = &draft.steps[idx];
        let (DraftKind::Kernel, Some(own)) = (&step.kind, choices[idx].list.get(picks[idx])) else {
            return nothing;
        };
        let backend = catalog.backends.get(step.target);
        if own.view || own.candidate.slow {
            return nothing;
        }
        let Some(problem) = draft.problem(step, point, options.threads) else { return nothing };
        let is_part = |value: Option<&usize>| value.is_some_and(|value| parts.contains(value));
        let is_part_in = |place: usize| is_part(step.inputs.get(place).and_then(Option::as_ref));
        let is_part_out = |place: usize| is_part(step.outputs.get(place));
        let allowed = |candidate: &Candidate| {
            is_within(backend, &problem, candidate, options.workspace)
                && options.selector.as_ref().is_none_or(|asked| asked(&problem, candidate))
        };
        let mut list: Vec<Alternative> = catalog
            .candidates(step.target, &problem)
            .iter()
            .filter(|candidate| {
                !candidate.slow
                    && allowed(candidate)
                    && fits(candidate, &own.candidate, &is_part_in, &is_part_out)
            })
            .cloned()
            .map(|candidate| Alternative {
                ns: candidate.predicted_ns,
                candidate,
                measured: false,
                view: false,
            })
            .collect();
        if known.is_some() && backend.memory_kind() == MemoryKind::Device {
            keep_few(&mut list, MAX_BETWEEN, |alternative| backend.source(&alternative.candidate.tactic));
        }
        add_known(&mut list, std::iter::once(&own.candidate).chain(known.unwrap_or_default()));
        Choices { problem: Some(problem), list, refused: Vec::new() }
    }
}

/// Leaves the best of each source by their prices, so many of each.
fn keep_few(list: &mut Vec<Alternative>, most: usize, source: impl Fn(&Alternative) -> &'static str) {
    list.sort_by(|a, b| a.ns.total_cmp(&b.ns));
    let mut n_kept: HashMap<&'static str, usize> = HashMap::new();
    list.retain(|alternative| {
        let n_kept = n_kept.entry(source(alternative)).or_default();
        *n_kept += 1;
        *n_kept <= most
    });
}

/// Has candidates take part however a backend prices them at these sizes, offered or not.
fn add_known<'a>(list: &mut Vec<Alternative>, known: impl Iterator<Item = &'a Candidate>) {
    let best = list.iter().map(|alternative| alternative.ns).fold(f64::INFINITY, f64::min);
    for candidate in known {
        let ns = if best.is_finite() { best } else { candidate.predicted_ns };
        match list.iter_mut().find(|alternative| alternative.candidate.tactic == candidate.tactic) {
            Some(offered) => offered.ns = ns,
            None => {
                list.push(Alternative { candidate: candidate.clone(), ns, measured: false, view: false });
            }
        }
    }
}

/// Values that may come to lie inside of others: what is concatenated or cut, and what shares memory with that.
fn possible_parts(draft: &Draft, choices: &[Choices], picks: &Picks) -> HashSet<usize> {
    let values = |step: &DraftStep| -> Vec<usize> {
        step.inputs.iter().flatten().chain(&step.outputs).copied().collect()
    };
    let cuts = |step: &&DraftStep| {
        let of_parts = |op: &Op| matches!(op, Op::Concat(_) | Op::Split(_) | Op::Slice(_));
        step.region.nodes.iter().any(|node| of_parts(&node.op))
    };
    let mut parts: HashSet<usize> = draft.steps.iter().filter(cuts).flat_map(values).collect();
    loop {
        let n_known = parts.len();
        for (idx, step) in draft.steps.iter().enumerate() {
            let shares = choices[idx]
                .list
                .get(picks[idx])
                .is_some_and(|choice| choice.view || !choice.candidate.in_place.is_empty());
            let touched = values(step);
            if shares && touched.iter().any(|value| parts.contains(value)) {
                parts.extend(touched);
            }
        }
        if parts.len() == n_known {
            return parts;
        }
    }
}

/// Whether a candidate can stand in for the choice without anything else changing. One that takes an operand alone does
/// for one that takes it inside of another too, where the operand cannot be such a part.
fn fits(
    candidate: &Candidate,
    own: &Candidate,
    is_part_in: &dyn Fn(usize) -> bool,
    is_part_out: &dyn Fn(usize) -> bool,
) -> bool {
    let wants = |a: &[Want], b: &[Want], is_part: &dyn Fn(usize) -> bool| {
        let same = |(place, (a, b)): (usize, (&Want, &Want))| {
            a.layout == b.layout && (a.takes_all_of(*b) || !is_part(place))
        };
        a.len() == b.len() && a.iter().zip(b).enumerate().all(same)
    };
    candidate.packed == own.packed
        && wants(&candidate.inputs, &own.inputs, is_part_in)
        && wants(&candidate.outputs, &own.outputs, is_part_out)
        && own.in_place.iter().all(|sharing| candidate.in_place.contains(sharing))
}

/// The tactic that beats the choice by more than the noise, if one does.
fn faster<'a>(there: &'a Choices, own: &Tactic) -> Option<&'a Candidate> {
    let measured = || there.list.iter().filter(|alternative| alternative.measured);
    // A choice that cannot be measured at this size stays: nothing says by how much another one is better.
    let ns = measured().find(|alternative| alternative.candidate.tactic == *own)?.ns;
    let best = measured().min_by(|a, b| a.ns.total_cmp(&b.ns))?;
    (best.ns < ns * (1.0 - MIN_GAIN)).then_some(&best.candidate)
}

/// Runs of points with one tactic, each up to where the next one begins; of one of several profiles, from its smallest
/// to its largest sizes.
fn guarded(
    best: &[Option<Tactic>],
    own: &Tactic,
    points: &[Sizes],
    profile: Option<&Profile>,
) -> Vec<Variant> {
    let tactic = |at: usize| best[at].as_ref().unwrap_or(own);
    let ends = |end: fn(&SymbolRange) -> i64| -> Vec<(String, i64)> {
        let ranges = profile.iter().flat_map(|profile| &profile.ranges);
        ranges.map(|range| (range.symbol.clone(), end(range))).collect()
    };
    let mut list: Vec<Variant> = Vec::new();
    for at in 0..points.len() {
        let is_last = at + 1 == points.len();
        if !is_last && tactic(at) == tactic(at + 1) {
            continue;
        }
        let mut up_to = ends(|range| range.max);
        if !is_last {
            let border = points[at].between(&points[at + 1]);
            up_to.retain(|(symbol, _)| border.iter().all(|(other, _)| other != symbol));
            up_to.extend(border);
            up_to.sort();
        }
        list.push(Variant { from: ends(|range| range.min), up_to, tactic: tactic(at).clone() });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_plan::SymbolRange;

    fn range(symbol: &str, min: i64, opt: i64, max: i64) -> SymbolRange {
        SymbolRange { symbol: symbol.to_string(), min, opt, max }
    }

    fn sizes_of(ranges: Vec<SymbolRange>) -> Vec<Vec<(String, i64)>> {
        points(&Profile { ranges }, &Sizes::default()).iter().map(Sizes::pairs).collect()
    }

    #[test]
    fn profiles_are_looked_at_in_steps_of_two() {
        let batches: Vec<i64> = sizes_of(vec![range("n", 1, 8, 32)]).iter().map(|point| point[0].1).collect();
        assert_eq!(batches, [1, 2, 4, 8, 16, 32]);
        let far: Vec<i64> =
            sizes_of(vec![range("n", 1, 1, 100_000)]).iter().map(|point| point[0].1).collect();
        assert_eq!((far.len(), far[0], far[7]), (8, 1, 100_000));
        assert_eq!(sizes_of(vec![range("n", 4, 4, 4)]).len(), 1, "a single size has no variants");
        let two = sizes_of(vec![range("n", 1, 2, 4), range("s", 16, 64, 64)]);
        let pair = |n: i64, s: i64| vec![("n".to_string(), n), ("s".to_string(), s)];
        assert_eq!(two, [pair(1, 16), pair(1, 32), pair(2, 64), pair(4, 64)], "over what it is tuned for");
        let odd: Vec<i64> =
            sizes_of(vec![range("n", 1, 100, 1_000_000)]).iter().map(|point| point[0].1).collect();
        assert!(odd.len() <= 8 && odd.contains(&100), "{odd:?}");
    }

    #[test]
    fn borders_lie_between_the_sizes_that_were_measured() {
        let profile = Profile { ranges: vec![range("n", 1, 8, 32)] };
        let points = points(&profile, &Sizes::default());
        let (own, small) = (Tactic::new("large", 1), Tactic::new("small", 1));
        let best = [Some(small.clone()), Some(small.clone()), None, None, None, None];
        let list = guarded(&best, &own, &points, None);
        // The geometric mean of 2 and 4 is 2.8.
        let up_to = |size: i64| vec![("n".to_string(), size)];
        let first = Variant { from: Vec::new(), up_to: up_to(2), tactic: small.clone() };
        assert_eq!(list, [first, Variant { from: Vec::new(), up_to: Vec::new(), tactic: own.clone() }]);
        // One of several keeps to itself.
        let list = guarded(&best, &own, &points, Some(&profile));
        let first = Variant { from: up_to(1), up_to: up_to(2), tactic: small };
        assert_eq!(list, [first, Variant { from: up_to(1), up_to: up_to(32), tactic: own }]);
    }

    fn alternative(name: &str, ns: f64, measured: bool) -> Alternative {
        let candidate = Candidate::new(Tactic::new(name, 1), Vec::new(), Vec::new(), ns);
        Alternative { candidate, ns, measured, view: false }
    }

    #[test]
    fn only_what_is_measured_and_faster_by_more_than_the_noise_takes_over() {
        let own = Tactic::new("own", 1);
        let said = |list: Vec<Alternative>| {
            let choices = Choices { problem: None, list, refused: Vec::new() };
            faster(&choices, &own).map(|winner| winner.tactic.name.clone())
        };
        assert_eq!(said(vec![alternative("own", 100.0, true), alternative("other", 96.0, true)]), None);
        let won = said(vec![alternative("own", 100.0, true), alternative("other", 94.0, true)]);
        assert_eq!(won.as_deref(), Some("other"));
        assert_eq!(said(vec![alternative("own", 100.0, true), alternative("other", 10.0, false)]), None);
        assert_eq!(said(vec![alternative("other", 10.0, true)]), None);
    }

    #[test]
    fn the_choice_is_measured_at_sizes_where_it_is_not_offered() {
        let (own, won) = (alternative("own", 5.0, true).candidate, alternative("won", 7.0, true).candidate);
        let mut list = vec![alternative("won", 900.0, false), alternative("offered", 40.0, false)];
        add_known(&mut list, [&own, &won].into_iter());
        let seen: Vec<(&str, f64)> =
            list.iter().map(|one| (one.candidate.tactic.name.as_str(), one.ns)).collect();
        // Neither price keeps the others from being measured, or them.
        assert_eq!(seen, [("won", 40.0), ("offered", 40.0), ("own", 40.0)]);
        let mut nothing = Vec::new();
        add_known(&mut nothing, [&own].into_iter());
        assert_eq!(nothing[0].ns, 5.0);
    }

    #[test]
    fn a_source_whose_prices_are_low_does_not_crowd_out_the_others() {
        let mut list = vec![alternative("own_slow", 70.0, false), alternative("own_fast", 50.0, false)];
        list.extend((0..4).map(|n| alternative(&format!("cudnn_{n}"), f64::from(n), false)));
        keep_few(
            &mut list,
            2,
            |one| if one.candidate.tactic.name.starts_with("cudnn_") { "cudnn" } else { "own" },
        );
        let names: Vec<&str> = list.iter().map(|one| one.candidate.tactic.name.as_str()).collect();
        assert_eq!(names, ["cudnn_0", "cudnn_1", "own_fast", "own_slow"]);
    }

    #[test]
    fn another_packing_or_layout_does_not_fit() {
        let own = alternative("own", 1.0, true).candidate;
        let with = |change: fn(&mut Candidate)| {
            let mut other = own.clone();
            change(&mut other);
            other
        };
        let fits = |candidate: &Candidate, own: &Candidate| fits(candidate, own, &|_| true, &|_| true);
        let fits_alone =
            |candidate: &Candidate, own: &Candidate| super::fits(candidate, own, &|_| false, &|_| false);
        assert!(fits(&own, &own));
        assert!(!fits(&with(|other| other.packed.push(Some("panels".into()))), &own));
        let inside = with(|other| other.inputs.push(Want::inside(planish_kernel::Layout::Plain)));
        let dense = with(|other| other.inputs.push(Want::dense(planish_kernel::Layout::Plain)));
        assert!(fits(&inside, &dense), "what may lie inside may lie alone");
        assert!(!fits(&dense, &inside));
        assert!(fits_alone(&dense, &inside), "what cannot be a part needs no kernel that takes parts");
        let in_place = with(|other| other.in_place.push((0, 0)));
        assert!(!fits(&own, &in_place) && fits(&in_place, &own));
    }
}
