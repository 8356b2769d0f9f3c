//! The expected gaps: tests that may fail, each with a reason.

use anyhow::{Result, bail};

/// Part of the program, so that it runs where the repository is not.
const REFERENCE: &str = include_str!("../../gaps/reference.txt");
const FILE: &str = "xtask/gaps/reference.txt";

/// `name: reason` lines of the file.
pub(crate) struct Gaps(Vec<(String, String)>);

impl Gaps {
    pub(crate) fn load() -> Result<Gaps> {
        let mut gaps: Vec<(String, String)> = Vec::new();
        for (idx, line) in REFERENCE.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, reason)) = line.split_once(':').filter(|(_, reason)| !reason.trim().is_empty())
            else {
                bail!("{FILE}:{}: expected `test_name: reason`", idx + 1);
            };
            if gaps.iter().any(|(known, _)| known == name) {
                bail!("{FILE}:{}: `{name}` is listed twice", idx + 1);
            }
            gaps.push((name.trim().to_string(), reason.trim().to_string()));
        }
        Ok(Gaps(gaps))
    }

    pub(crate) fn reason(&self, test: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == test).map(|(_, reason)| reason.as_str())
    }

    /// Listed names that no test has.
    pub(crate) fn stale<'a>(&'a self, tests: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.0.iter().map(|(name, _)| name.as_str()).filter(move |name| !tests.contains(name))
    }
}
