//! Patterns of names, as users give them.

/// Whether a name fits a pattern with `*` for any letters and `?` for one.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut place) = (0, 0);
    // Where the last star was, and what it had taken by then.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        if at < pattern.len() && (pattern[at] == '?' || (pattern[at] == name[place] && pattern[at] != '*')) {
            (at, place) = (at + 1, place + 1);
        } else if at < pattern.len() && pattern[at] == '*' {
            star = Some((at, place));
            at += 1;
        } else if let Some((star_at, taken)) = star {
            star = Some((star_at, taken + 1));
            (at, place) = (star_at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|&letter| letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, fits) in [
            ("conv*", "conv1/a", true),
            ("*/out?", "block/out1", true),
            ("*a*b", "xaybzb", true),
            ("conv", "conv1", false),
            ("*a*b", "xayb1", false),
            ("", "x", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
