//! A sweep's plots and its page.

use super::findings;
use super::row::Row;
use crate::page::chart::{Chart, Point, Series, Spread};
use crate::page::{self, Page, escaped};

/// More lines than these nobody can follow.
const MOST_SERIES: usize = 12;

/// Columns of the table that are aligned right.
pub(super) const RIGHT: [usize; 12] = [1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];

/// The table of all rows, under its headings.
pub(super) fn table(rows: &[&Row]) -> Vec<Vec<String>> {
    let headings = [
        "model",
        "size",
        "batch",
        "in",
        "device",
        "threads",
        "median ms",
        "± %",
        "p99 ms",
        "samples/s",
        "ms/sample",
        "TFLOP/s",
        "of peak",
        "memory MB",
        "error",
    ];
    let mut table = vec![headings.map(String::from).to_vec()];
    for row in rows {
        let mut cells = vec![
            row.family.clone(),
            row.size.to_string(),
            row.batch.to_string(),
            row.precision.clone(),
            row.device.clone(),
        ];
        cells.push(row.threads.to_string());
        if let Some(why) = &row.failed {
            cells.push(format!("failed: {why}"));
            table.push(cells);
            continue;
        }
        let number = |name: &str, decimals: usize| {
            row.number(name).map_or("–".to_string(), |number| format!("{number:.decimals$}"))
        };
        let half = row.number("median_high_ms").zip(row.number("median_low_ms")).zip(row.number("median_ms"));
        let half = half.map(|((high, low), median)| format!("{:.1}", 50.0 * (high - low) / median));
        let memory = row.number("weight_bytes").zip(row.number("arena_bytes"));
        let share = row.number("compute_peak_share").map(|share| format!("{:.0} %", 100.0 * share));
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_string());
        cells.extend([
            number("median_ms", 3),
            or_dash(half),
            number("p99_ms", 3),
            number("samples_per_second", 1),
            number("ms_per_sample", 3),
            number("tflop_per_second", 3),
            or_dash(share),
            or_dash(memory.map(|(weights, arena)| format!("{:.1}", (weights + arena) / 1e6))),
            or_dash(row.number("relative_l2").map(|error| format!("{error:.1e}"))),
        ]);
        table.push(cells);
    }
    table
}

/// What a chart shows of a row.
struct View<'a> {
    name: &'a str,
    title: &'a str,
    x_label: &'a str,
    y_label: &'a str,
    y: Spread,
    /// The rows of one line have this in common.
    line: &'a dyn Fn(&Row) -> String,
    place: &'a dyn Fn(&Row) -> Option<(f64, f64)>,
    is_scattered: bool,
}

/// All plots that these rows give, by the names of their files.
pub(super) fn charts(rows: &[&Row]) -> Vec<(String, Chart)> {
    let number = |row: &Row, name: &str| row.number(name);
    let samples = |row: &Row| number(row, "samples_per_second");
    let largest =
        |row: &Row| rows.iter().filter(|other| other.family == row.family).map(|other| other.batch).max();
    let at_largest = |row: &Row| largest(row) == Some(row.batch);
    let views = [
        View {
            name: "throughput_over_batch",
            title: "Throughput over batch",
            x_label: "batch",
            y_label: "samples per second",
            y: Spread::Linear,
            line: &|row| format!("{} at {}, {}", row.family, row.size, row.how()),
            place: &|row| Some((row.batch as f64, samples(row)?)),
            is_scattered: false,
        },
        View {
            name: "throughput_over_size",
            title: "Throughput over size",
            x_label: "size",
            y_label: "samples per second, logarithmic",
            y: Spread::Log,
            line: &|row| format!("{}, batch {}, {}", row.family, row.batch, row.how()),
            place: &|row| Some((row.size as f64, samples(row)?)),
            is_scattered: false,
        },
        View {
            name: "speed_up_over_size",
            title: "Speed-up against fp32 over size",
            x_label: "size",
            y_label: "times fp32 at the same setting",
            y: Spread::Linear,
            line: &|row| format!("{}, batch {}, {}", row.family, row.batch, row.how()),
            place: &|row| {
                Some((row.size as f64, findings::speed_up(row, rows).filter(|_| row.precision != "fp32")?))
            },
            is_scattered: false,
        },
        View {
            name: "efficiency_over_size",
            title: "Arithmetic over size, at the largest batch",
            x_label: "size",
            y_label: "TFLOP/s, a multiply-add counted as two",
            y: Spread::Linear,
            line: &|row| format!("{}, {}", row.family, row.how()),
            place: &|row| {
                Some((row.size as f64, number(row, "tflop_per_second").filter(|_| at_largest(row))?))
            },
            is_scattered: false,
        },
        View {
            name: "memory_over_batch",
            title: "Memory over batch",
            x_label: "batch",
            y_label: "MB of weights and arena",
            y: Spread::Linear,
            line: &|row| format!("{} at {}, {}", row.family, row.size, row.how()),
            place: &|row| {
                let bytes = number(row, "weight_bytes")? + number(row, "arena_bytes")?;
                Some((row.batch as f64, bytes / 1e6))
            },
            is_scattered: false,
        },
        View {
            name: "error_over_speed",
            title: "Error over speed",
            x_label: "ms per sample",
            y_label: "relative L2 error against fp32, logarithmic",
            y: Spread::Log,
            line: &|row| format!("{}, {}", row.family, row.how()),
            place: &|row| Some((number(row, "ms_per_sample")?, number(row, "relative_l2")?)),
            is_scattered: true,
        },
    ];
    let mut charts: Vec<(String, Chart)> = views.iter().filter_map(|view| chart(view, rows)).collect();
    charts.extend(percentiles(rows));
    charts
}

/// A chart; `None` where there is nothing to see: lines need two points.
fn chart(view: &View<'_>, rows: &[&Row]) -> Option<(String, Chart)> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|row| row.failed.is_none()) {
        let Some((x, y)) = (view.place)(row) else { continue };
        let name = (view.line)(row);
        let about = format!("{} at {}, batch {}, {}: {y:.4}", row.family, row.size, row.batch, row.how());
        let point = Point { x, y, about };
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, points: vec![point], is_scattered: view.is_scattered }),
        }
    }
    for line in &mut series {
        line.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    series.retain(|line| view.is_scattered || line.points.len() > 1);
    let n_more = series.len().saturating_sub(MOST_SERIES);
    series.truncate(MOST_SERIES);
    let more = if n_more > 0 {
        format!(" (the first {MOST_SERIES} of {} lines)", MOST_SERIES + n_more)
    } else {
        String::new()
    };
    let chart = Chart {
        title: format!("{}{more}", view.title),
        x_label: view.x_label.to_string(),
        y_label: view.y_label.to_string(),
        x: if view.is_scattered { Spread::Linear } else { Spread::Close },
        y: view.y,
        series,
        ..Chart::default()
    };
    (!chart.series.is_empty()).then_some((view.name.to_string(), chart))
}

/// Latency percentiles of every setting of the first batch.
fn percentiles(rows: &[&Row]) -> Option<(String, Chart)> {
    let smallest = rows.iter().map(|row| row.batch).min()?;
    let shown: Vec<&&Row> = rows
        .iter()
        .filter(|row| row.failed.is_none() && row.batch == smallest)
        .take(MOST_SERIES * 2)
        .collect();
    let one = |(what, name): (&str, &str)| {
        let points = shown.iter().enumerate().filter_map(|(at, row)| {
            let y = row.number(name)?;
            let about = format!("{} at {}, {}: {what} {y:.3} ms", row.family, row.size, row.how());
            Some(Point { x: at as f64, y, about })
        });
        Series { name: what.to_string(), points: points.collect(), is_scattered: true }
    };
    let series =
        [("median", "median_ms"), ("p90", "p90_ms"), ("p95", "p95_ms"), ("p99", "p99_ms")].map(one).to_vec();
    let chart = Chart {
        title: format!("Latency percentiles at batch {smallest}"),
        x_label: "size and precision".to_string(),
        y_label: "ms".to_string(),
        names: shown.iter().map(|row| format!("{} {}", row.size, row.precision)).collect(),
        series,
        ..Chart::default()
    };
    (!shown.is_empty()).then_some(("latency_percentiles".to_string(), chart))
}

/// Saves a chart as a PNG picture, in the browser: the page has all that it takes.
const SCRIPT: &str = r##"document.querySelectorAll("figure button").forEach((button) => button.addEventListener("click", () => {
  const svg = button.parentElement.querySelector("svg"), { width, height } = svg.viewBox.baseVal, picture = new Image();
  picture.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width; canvas.height = 2 * height;
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    const link = document.createElement("a");
    link.download = button.dataset.name + ".png"; link.href = canvas.toDataURL("image/png"); link.click();
  };
  picture.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(svg));
}));
"##;

/// One page with all of it.
pub(super) fn page(rows: &[&Row], charts: &[(String, Chart)]) -> Page {
    let mut families: Vec<&str> = rows.iter().map(|row| row.family.as_str()).collect();
    families.dedup();
    let machine = planish::machine::Machine::look();
    let title = format!("Sweep of {}", families.join(", "));
    let mut body = format!(
        "<h1>{}</h1>\n<p class=\"faint\">{} measurements; {} usable threads of {}; Planish {}</p>\n",
        escaped(&title),
        rows.len(),
        machine.n_threads,
        escaped(machine.cpu.as_deref().unwrap_or("an unnamed CPU")),
        env!("CARGO_PKG_VERSION")
    );
    body += "<h2>What was found</h2>\n<ul>\n";
    for finding in findings::of(rows) {
        body += &format!("<li>{}</li>\n", escaped(&finding));
    }
    body += "</ul>\n<h2>Plots</h2>\n<div class=\"charts\">\n";
    for (name, chart) in charts {
        body += &format!(
            "<figure>{}<button class=\"screen\" data-name=\"{name}\">PNG</button></figure>\n",
            chart.svg()
        );
    }
    body += "</div>\n<h2>All measurements</h2>\n";
    body += &page::table(&table(rows), &RIGHT);
    body += "<p class=\"faint\">Medians of runs with their 95 % interval; a multiply-add counts as two operations; the error is \
             the relative L2 distance of the worst output from a plan in fp32 on the CPU, on seeded random inputs; the \
             peak is what <code>planish doctor --measure</code> found.</p>\n";
    Page { title, script: SCRIPT, body, ..Page::default() }
}
