//! What a scenario says: printed as it goes, and in the end written as Markdown, plots and one page.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use anyhow::Result;

use crate::page::chart::Chart;
use crate::page::{self, Page, escaped};
use crate::{files, print};

/// A part of what is said.
enum Part {
    Heading(String),
    Text(String),
    Table { rows: Vec<Vec<String>>, right: Vec<usize> },
    Chart { name: &'static str, chart: Chart },
}

/// A scenario's report.
pub(super) struct Report<'a> {
    out: &'a mut dyn Write,
    title: String,
    parts: Vec<Part>,
}

impl<'a> Report<'a> {
    pub(super) fn new(title: &str, out: &'a mut dyn Write) -> Result<Report<'a>> {
        let machine = planish::machine::Machine::look();
        let about = format!(
            "{}, {} usable threads; Planish {}",
            machine.cpu.as_deref().unwrap_or("an unnamed CPU"),
            machine.n_threads,
            env!("CARGO_PKG_VERSION")
        );
        let mut report = Report { out, title: title.to_string(), parts: Vec::new() };
        writeln!(report.out, "{title}")?;
        report.text(&about)?;
        Ok(report)
    }

    pub(super) fn heading(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "\n{text}\n")?;
        self.out.flush()?;
        self.parts.push(Part::Heading(text.to_string()));
        Ok(())
    }

    pub(super) fn text(&mut self, text: &str) -> Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()?;
        self.parts.push(Part::Text(text.to_string()));
        Ok(())
    }

    /// A table under its headings; all columns but the first `left` are numbers.
    pub(super) fn table(&mut self, rows: Vec<Vec<String>>, left: usize) -> Result<()> {
        let right: Vec<usize> = (left..rows.first().map_or(0, Vec::len)).collect();
        print::table(self.out, &rows, &right)?;
        self.out.flush()?;
        self.parts.push(Part::Table { rows, right });
        Ok(())
    }

    pub(super) fn chart(&mut self, name: &'static str, chart: Chart) {
        self.parts.push(Part::Chart { name, chart });
    }

    /// Writes it all into the folder.
    pub(super) fn write(self, folder: &Path) -> Result<()> {
        let mut charts = Vec::new();
        for part in &self.parts {
            if let Part::Chart { name, chart } = part {
                let mut png = Vec::new();
                chart.write_png(&mut png)?;
                charts.push((format!("{name}.png"), png, files::Kind::Png));
                charts.push((format!("{name}.svg"), chart.svg().into_bytes(), files::Kind::Svg));
            }
        }
        charts.push(("report.html".to_string(), self.html().into_bytes(), files::Kind::Html));
        for (name, bytes, kind) in charts {
            let path = folder.join(name);
            files::check_target(&path, kind, &[])?;
            files::write(&path, |file| file.write_all(&bytes))?;
        }
        let text = self.markdown();
        files::write(&folder.join("tables.md"), |file| file.write_all(text.as_bytes()))?;
        let page = folder.join("report.html");
        writeln!(self.out, "\nreport   {} (tables.md and plots beside it)", page.display())?;
        Ok(())
    }

    fn markdown(&self) -> String {
        let mut text = format!("# {}\n", self.title);
        for part in &self.parts {
            match part {
                Part::Heading(heading) => {
                    let _ = write!(text, "\n## {heading}\n");
                }
                Part::Text(words) => {
                    let _ = write!(text, "\n{words}\n");
                }
                Part::Chart { name, .. } => {
                    let _ = write!(text, "\n![{name}]({name}.png)\n");
                }
                Part::Table { rows, right } => {
                    text.push('\n');
                    for (number, row) in rows.iter().enumerate() {
                        let _ = writeln!(text, "| {} |", row.join(" | "));
                        if number == 0 {
                            let side = |at: usize| if right.contains(&at) { "--:" } else { "---" };
                            let line: Vec<&str> = (0..row.len()).map(side).collect();
                            let _ = writeln!(text, "|{}|", line.join("|"));
                        }
                    }
                }
            }
        }
        text
    }

    fn html(&self) -> String {
        let mut body = format!("<h1>{}</h1>\n", escaped(&self.title));
        let mut is_among_charts = false;
        for part in &self.parts {
            let is_chart = matches!(part, Part::Chart { .. });
            if is_chart != is_among_charts {
                body += if is_chart { "<div class=\"charts\">\n" } else { "</div>\n" };
                is_among_charts = is_chart;
            }
            body += &match part {
                Part::Heading(heading) => format!("<h2>{}</h2>\n", escaped(heading)),
                Part::Text(words) => format!("<p>{}</p>\n", escaped(words)),
                Part::Table { rows, right } => page::table(rows, right),
                Part::Chart { chart, .. } => format!("<figure>{}</figure>\n", chart.svg()),
            };
        }
        if is_among_charts {
            body += "</div>\n";
        }
        Page { title: self.title.clone(), body, ..Page::default() }.html()
    }
}
