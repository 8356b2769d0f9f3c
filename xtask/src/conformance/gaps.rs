//! The expected gaps of a backend: tests that may fail, each with a reason.

use anyhow::{Context, Result, bail};

use crate::root;

/// `name: reason` lines of `xtask/gaps/BACKEND.txt`.
pub(crate) struct Gaps(Vec<(String, String)>);

impl Gaps {
    pub(crate) fn load(backend: &str) -> Result<Gaps> {
        let path = root().join("xtask/gaps").join(format!("{backend}.txt"));
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut gaps: Vec<(String, String)> = Vec::new();
        for (idx, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, reason)) = line.split_once(':').filter(|(_, reason)| !reason.trim().is_empty())
            else {
                bail!("{}:{}: expected `test_name: reason`", path.display(), idx + 1);
            };
            if gaps.iter().any(|(known, _)| known == name) {
                bail!("{}:{}: `{name}` is listed twice", path.display(), idx + 1);
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
