//! The tactic lock: which one each step was built with, in a text file that holds a later build to it.
//!
//! A line per step: its name, what it computes, the tactic, and the layouts that it reads and writes; then, where it
//! has other tactics at other sizes, each after the sizes that it is meant for. Those hold for a build for the same
//! symbols; else sizes and threads are no part of a lock, so that it serves other shapes of the model as long as its
//! tactics can compute them.

use std::collections::BTreeMap;
use std::path::Path;

use planish_kernel::{Candidate, Region, Tactic, Want};
use planish_plan::Variant;

use crate::error::{BuildError, BuildErrorKind};
use crate::lower::candidates::Alternative;
use crate::text_file::{self, Format, bad_line, escape, unescape};

const FORMAT: Format = Format { name: "tactics", version: 1 };
const FIELDS: &str = "step, region, tactic@revision, layouts read > layouts written; for other sizes: \
                      >=SIZE SYMBOL and <=SIZE SYMBOL, then tactic@revision";

/// Tactics that a build must take.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TacticLock {
    /// By the step's name and its region's key. Steps that agree in both have one line.
    choices: BTreeMap<(String, String), Locked>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Locked {
    tactic: String,
    layouts: String,
    variants: Vec<Variant>,
}

impl Locked {
    fn of(candidate: &Candidate) -> Locked {
        let names =
            |wants: &[Want]| wants.iter().map(|want| want.layout.name()).collect::<Vec<_>>().join(",");
        let layouts = format!("{} > {}", names(&candidate.inputs), names(&candidate.outputs));
        Locked { tactic: candidate.tactic.to_string(), layouts, variants: Vec::new() }
    }

    /// Whether a candidate is the one that was locked. A newer revision of a kernel is the same tactic.
    fn is(&self, candidate: &Candidate) -> bool {
        let name = self.tactic.rsplit_once('@').map_or(self.tactic.as_str(), |(name, _)| name);
        name == candidate.tactic.name && self.layouts == Locked::of(candidate).layouts
    }
}

impl TacticLock {
    /// How many steps it holds.
    pub fn len(&self) -> usize {
        self.choices.len()
    }

    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// Whether a step of this region was built.
    pub(crate) fn has(&self, region: &Region) -> bool {
        self.choices.contains_key(&(region.title(), region.key()))
    }

    pub(crate) fn add(&mut self, region: &Region, candidate: &Candidate, variants: &[Variant]) {
        let locked = || Locked { variants: variants.to_vec(), ..Locked::of(candidate) };
        self.choices.entry((region.title(), region.key())).or_insert_with(locked);
    }

    /// A step's tactics at the sizes of profiles; none where one holds everywhere.
    pub(crate) fn variants(&self, region: &Region) -> &[Variant] {
        self.choices.get(&(region.title(), region.key())).map_or(&[], |locked| &locked.variants)
    }

    /// Leaves of a step's alternatives only the locked one.
    pub(crate) fn hold(&self, region: &Region, list: &mut Vec<Alternative>) -> Result<(), BuildError> {
        let title = region.title();
        let refuse = |what: String| {
            let message = format!("{what}; save the tactics of a build without a lock anew");
            Err(BuildError::new(BuildErrorKind::Refused, message))
        };
        let key = (title, region.key());
        let Some(locked) = self.choices.get(&key) else {
            return refuse(format!("the tactic lock does not have the step `{}`", key.0));
        };
        match list.iter().position(|alternative| locked.is(&alternative.candidate)) {
            Some(at) => {
                list.swap(0, at);
                list.truncate(1);
                Ok(())
            }
            None => {
                let there: Vec<String> =
                    list.iter().map(|alternative| alternative.candidate.tactic.to_string()).collect();
                refuse(format!(
                    "step `{}` is locked to {} ({}), which is gone; there are {}",
                    key.0,
                    locked.tactic,
                    locked.layouts,
                    there.join(", ")
                ))
            }
        }
    }

    /// Reads a lock file.
    pub fn load(path: &Path) -> Result<TacticLock, BuildError> {
        let text = text_file::read(path)?.ok_or_else(|| {
            let message = format!("there is no file {}; --save-tactics makes it", path.display());
            BuildError::new(BuildErrorKind::Io, message)
        })?;
        TacticLock::from_text(&text).map_err(|error| error.within(path.display()))
    }

    /// Writes a lock file, in one piece.
    pub fn save(&self, path: &Path) -> Result<(), BuildError> {
        text_file::write(path, &self.to_text())
    }

    pub fn to_text(&self) -> String {
        let line = |((title, region), locked): (&(String, String), &Locked)| {
            let mut fields =
                vec![title.clone(), region.clone(), locked.tactic.clone(), locked.layouts.clone()];
            for Variant { from, up_to, tactic } in &locked.variants {
                fields.extend(from.iter().map(|(symbol, size)| format!(">={size} {symbol}")));
                fields.extend(up_to.iter().map(|(symbol, size)| format!("<={size} {symbol}")));
                fields.push(tactic.to_string());
            }
            fields.iter().map(|field| escape(field)).collect::<Vec<_>>().join("\t")
        };
        FORMAT.text(FIELDS, self.choices.iter().map(line))
    }

    pub fn from_text(text: &str) -> Result<TacticLock, BuildError> {
        let mut lock = TacticLock::default();
        for (number, line) in text_file::lines(FORMAT, text)? {
            let fields: Option<Vec<String>> = line.split('\t').map(unescape).collect();
            let few = || bad_line(number, "four fields or more, separated by tabs, belong here");
            let fields = fields.ok_or_else(few)?;
            let [title, region, tactic, layouts, rest @ ..] = &fields[..] else { return Err(few()) };
            let variants = variants(rest)
                .ok_or_else(|| bad_line(number, "sizes or tactics at other sizes are not as they must be"))?;
            let locked = Locked { tactic: tactic.clone(), layouts: layouts.clone(), variants };
            if lock.choices.insert((title.clone(), region.clone()), locked).is_some() {
                return Err(bad_line(number, "the step stands in the file twice"));
            }
        }
        Ok(lock)
    }
}

/// Tactics after the sizes that each is meant for.
fn variants(fields: &[String]) -> Option<Vec<Variant>> {
    let bound = |text: &str| -> Option<(String, i64)> {
        let (size, symbol) = text.split_once(' ')?;
        Some((symbol.to_string(), size.parse().ok()?))
    };
    let mut list = Vec::new();
    let (mut from, mut up_to) = (Vec::new(), Vec::new());
    for field in fields {
        if let Some(text) = field.strip_prefix(">=") {
            from.push(bound(text)?);
        } else if let Some(text) = field.strip_prefix("<=") {
            up_to.push(bound(text)?);
        } else {
            let (name, revision) = field.rsplit_once('@')?;
            let tactic = Tactic::new(name, revision.parse().ok()?);
            list.push(Variant { from: std::mem::take(&mut from), up_to: std::mem::take(&mut up_to), tactic });
        }
    }
    (from.is_empty() && up_to.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests {
    use planish_kernel::Layout;

    use super::*;

    fn alternative(name: &str, revision: u32, layout: Layout) -> Alternative {
        let candidate = Candidate::new(
            Tactic::new(name, revision),
            vec![Want::dense(layout)],
            vec![Want::inside(Layout::Plain)],
            1.0,
        );
        Alternative { candidate, ns: 1.0, measured: false, view: false }
    }

    fn region(name: &str) -> Region {
        let mut region = Region::single(planish_op::Relu {}.into(), 1, 1);
        region.nodes[0].name = name.to_string();
        region
    }

    fn lock() -> TacticLock {
        let mut lock = TacticLock::default();
        lock.add(&region("relu\t1"), &alternative("fast", 1, Layout::ChannelsLast).candidate, &[]);
        lock
    }

    #[test]
    fn tactics_at_other_sizes_come_back_too() {
        let pair = |symbol: &str, size: i64| vec![(symbol.to_string(), size)];
        let variants = [
            Variant { from: pair("n m", 1), up_to: pair("n m", 8), tactic: Tactic::new("small", 2) },
            Variant { from: Vec::new(), up_to: Vec::new(), tactic: Tactic::new("fast", 1) },
        ];
        let mut lock = TacticLock::default();
        lock.add(&region("r"), &alternative("fast", 1, Layout::Plain).candidate, &variants);
        let text = lock.to_text();
        assert!(text.ends_with("\tfast@1\tplain > plain\t>=1 n m\t<=8 n m\tsmall@2\tfast@1\n"), "{text}");
        let again = TacticLock::from_text(&text).unwrap();
        assert_eq!(again, lock);
        assert_eq!(again.variants(&region("r")), variants);
        for wrong in ["\t<=8 n", "\tsmall", "\t<=many n\tsmall@2"] {
            let text = text.replace("\t>=1 n m\t<=8 n m\tsmall@2\tfast@1", wrong);
            assert!(TacticLock::from_text(&text).is_err(), "{wrong}");
        }
    }

    #[test]
    fn locks_come_back_from_their_text() {
        let lock = lock();
        let text = lock.to_text();
        assert!(text.contains("\nrelu\\t1\tRelu(i0);->n0.0\tfast@1\tchannels_last > plain\n"), "{text}");
        assert_eq!(TacticLock::from_text(&text).unwrap(), lock);
        let line = text.lines().last().unwrap();
        let error = TacticLock::from_text(&format!("{text}{line}\n")).unwrap_err();
        assert!(error.to_string().contains("line 4: the step stands in the file twice"), "{error}");
        assert!(TacticLock::from_text(&format!("{text}a\tb\tc\n")).is_err());
    }

    #[test]
    fn only_the_locked_alternative_stays() {
        let mut list = vec![
            alternative("faster", 1, Layout::ChannelsLast),
            alternative("fast", 2, Layout::Plain),
            alternative("fast", 2, Layout::ChannelsLast),
        ];
        lock().hold(&region("relu\t1"), &mut list).unwrap();
        let [only] = &list[..] else { panic!("{list:?}") };
        assert_eq!(
            (only.candidate.inputs[0].layout, only.candidate.tactic.revision),
            (Layout::ChannelsLast, 2)
        );
    }

    #[test]
    fn what_is_gone_or_unknown_is_refused() {
        let mut list = vec![alternative("fast", 1, Layout::Plain)];
        let error = lock().hold(&region("relu\t1"), &mut list).unwrap_err();
        assert_eq!(*error.kind(), BuildErrorKind::Refused);
        assert!(error.to_string().contains("is locked to fast@1 (channels_last > plain), which is gone"));
        assert!(lock().has(&region("relu\t1")) && !lock().has(&region("relu2")));
        let error = lock().hold(&region("relu2"), &mut list).unwrap_err();
        assert!(error.to_string().contains("does not have the step `relu2`"), "{error}");
    }
}
