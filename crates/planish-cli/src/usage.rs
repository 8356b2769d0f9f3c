//! Wrong arguments as one line: what, where, what to try.

use clap::error::ErrorKind;

/// The parser's complaint, which has several paragraphs, as one line; `None` for help and version, which stay as they are.
pub(crate) fn line(error: &clap::Error) -> Option<String> {
    let is_help = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || is_help {
        return None;
    }
    Some(one_line(&error.render().to_string()))
}

fn one_line(text: &str) -> String {
    let (mut complaint, mut more) = (String::new(), Vec::new());
    for paragraph in text.split("\n\n") {
        let joined = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(rest) = joined.strip_prefix("error: ") {
            complaint = rest.to_string();
        } else if let Some(tip) = joined.strip_prefix("tip: ") {
            // How to give a value that begins with `--` is not what a wrong flag needs.
            if !tip.starts_with("to pass ") {
                more.push(tip.to_string());
            }
        } else if let Some(usage) = joined.strip_prefix("Usage: ") {
            more.push(format!("usage: {usage}"));
        } else if joined.starts_with('[') {
            // Possible values.
            complaint = format!("{complaint} {joined}");
        }
    }
    more.push("try --help".to_string());
    format!("{complaint}; {}", more.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;

    fn said(args: &[&str]) -> Option<String> {
        line(&Args::try_parse_from([&["planish"], args].concat()).unwrap_err())
    }

    #[test]
    fn complaints_are_one_line() {
        let lines: &[(&[&str], &str)] = &[
            (
                &["build"],
                "the following required arguments were not provided: <MODEL>; usage: planish build <MODEL>; try --help",
            ),
            (
                &["inspct", "x"],
                "unrecognized subcommand 'inspct'; a similar subcommand exists: 'inspect'; usage: planish [OPTIONS] \
                 <COMMAND>; try --help",
            ),
            (
                &["build", "x.onnx", "--nope"],
                "unexpected argument '--nope' found; usage: planish build <MODEL>; try --help",
            ),
        ];
        for (args, line) in lines {
            assert_eq!(said(args).as_deref(), Some(*line));
        }
        let wrong = said(&["build", "x.onnx", "--precision", "foo"]).unwrap();
        assert!(wrong.contains("'foo'") && wrong.contains("int8") && !wrong.contains('\n'), "{wrong}");
    }

    #[test]
    fn help_stays_as_it_is() {
        assert_eq!(said(&["--help"]), None);
        assert_eq!(said(&["--version"]), None);
        assert_eq!(said(&[]), None);
    }
}
