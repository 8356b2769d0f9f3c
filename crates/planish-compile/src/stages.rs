//! What a build spends its time on.

use std::time::{Duration, Instant};

/// The stages of a build by name, in the order in which they first ended, with the time that each took in all.
#[derive(Clone, Debug)]
pub struct Stages {
    list: Vec<(&'static str, Duration)>,
    since: Instant,
}

impl Stages {
    pub(crate) fn start() -> Stages {
        Stages { list: Vec::new(), since: Instant::now() }
    }

    /// The time since the last stage ended, or the start, was this one's.
    pub(crate) fn end(&mut self, name: &'static str) {
        let now = Instant::now();
        let time = now - std::mem::replace(&mut self.since, now);
        match self.list.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += time,
            None => self.list.push((name, time)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.list.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_comes_again_adds_up() {
        let mut stages = Stages::start();
        let began = stages.since;
        for name in ["tactics", "check", "tactics", "check"] {
            stages.end(name);
        }
        let names: Vec<&str> = stages.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["tactics", "check"]);
        let sum: Duration = stages.iter().map(|(_, time)| time).sum();
        assert_eq!(sum, stages.since - began, "no time is lost between stages");
    }
}
