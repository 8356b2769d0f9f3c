//! Lines as trtexec writes them: date, severity, text. What informs goes to standard output, warnings to standard error.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::{printable, progress};

pub(super) struct Log<'a> {
    out: &'a mut dyn Write,
    /// The line that trtexec opens and closes with, after its first words.
    name: String,
}

impl<'a> Log<'a> {
    pub(super) fn new(out: &'a mut dyn Write, arguments: &[String]) -> Log<'a> {
        let version = env!("CARGO_PKG_VERSION");
        let name = format!("TensorRT.trtexec [Planish v{version}] # planish trtexec {}", arguments.join(" "));
        Log { out, name }
    }

    /// `RUNNING`, `PASSED` or `FAILED`: what scripts look for.
    pub(super) fn mark(&mut self, word: &str) -> Result<()> {
        writeln!(self.out, "&&&& {word} {}", self.name)?;
        Ok(self.out.flush()?)
    }

    pub(super) fn info(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.out, "[{}] [I] {text}", date(now()))?)
    }

    pub(super) fn warn(&mut self, text: &str) -> Result<()> {
        // What came before is to be read before.
        self.out.flush()?;
        progress::line(&format!("[{}] [W] {}", date(now()), printable::printable(text)));
        Ok(())
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `11/18/2026-00:31:36`, in UTC.
fn date(seconds: u64) -> String {
    // Days since 0000-03-01, so that leap days come last in a year of 12 months of 153/5 days (Howard Hinnant's
    // civil calendar).
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{month:02}/{day:02}/{year}-{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(date(0), "01/01/1970-00:00:00");
        assert_eq!(date(951_782_399), "02/28/2000-23:59:59");
        assert_eq!(date(951_782_400), "02/29/2000-00:00:00");
        assert_eq!(date(1_794_960_000), "11/18/2026-00:00:00");
    }
}
