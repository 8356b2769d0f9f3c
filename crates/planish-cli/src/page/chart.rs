//! Charts in SVG: lines and points over numbers or over names, told apart by colour, dash and mark, so that they can be
//! read on paper too.

use std::fmt::Write as _;

use super::escaped;
use super::scale::Scale;

/// The size in pixels, and what the edges leave for words.
const WIDTH: f64 = 560.0;
const PLOT_HEIGHT: f64 = 260.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 44.0;
const BELOW: f64 = 48.0;
/// A line of the legend.
const LEGEND: f64 = 20.0;
/// The width that a letter takes, about.
const LETTER: f64 = 6.6;
/// More points than this get no marks.
const MOST_MARKS: usize = 60;

/// More places than this get round numbers as ticks.
const MOST_OWN_TICKS: usize = 8;

/// Colours that people with any eyes tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"];
const DASHES: [&str; 4] = ["", "6 3", "2 3", "8 3 2 3"];

/// How numbers are spread along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Spread {
    /// From zero.
    #[default]
    Linear,
    /// From the least to the largest.
    Close,
    /// By powers of ten; what is not positive stands at the lower edge.
    Log,
}

impl Spread {
    fn scale(self, values: impl Iterator<Item = f64>) -> Scale {
        match self {
            Spread::Linear => Scale::linear(values),
            Spread::Close => Scale::close(values),
            Spread::Log => Scale::log(values),
        }
    }
}

/// A point, and what is said of it when a pointer rests there.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) about: String,
}

/// Points that belong together.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    /// Not joined by a line.
    pub(crate) is_scattered: bool,
}

/// A chart.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    pub(crate) x: Spread,
    pub(crate) y: Spread,
    /// Where there are names, x counts them.
    pub(crate) names: Vec<String>,
    pub(crate) series: Vec<Series>,
    /// A line across, with its name.
    pub(crate) limit: Option<(f64, String)>,
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = match self.names.len() {
            0 => self.x.scale(points().map(|point| point.x)),
            n => Scale::close([-0.5, n as f64 - 0.5].into_iter()),
        };
        let y = self.y.scale(points().map(|point| point.y).chain(self.limit.iter().map(|(at, _)| *at)));
        let legend = self.legend();
        let height = TOP + PLOT_HEIGHT + BELOW + legend.len() as f64 * LEGEND;
        let place = |point: &Point| {
            [LEFT + x.place(point.x) * (WIDTH - LEFT - RIGHT), TOP + (1.0 - y.place(point.y)) * PLOT_HEIGHT]
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n\
             <title>{title}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"{LEFT}\" y=\"18\" font-size=\"14\" font-weight=\"600\" fill=\"#111\">{title}</text>\n\
             <text x=\"{LEFT}\" y=\"35\" fill=\"#555\">{}</text>\n",
            escaped(&self.y_label),
            title = escaped(&self.title),
        );
        self.draw_axes(&mut svg, &x, &y);
        if let Some((at, name)) = &self.limit {
            let y = TOP + (1.0 - y.place(*at)) * PLOT_HEIGHT;
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#b00020\" stroke-dasharray=\"6 4\"/>\
                 <text x=\"{}\" y=\"{:.1}\" fill=\"#b00020\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                WIDTH - RIGHT,
                y - 4.0,
                escaped(name)
            );
        }
        for (number, series) in self.series.iter().enumerate() {
            draw(&mut svg, series, number, &place);
        }
        for (row, entries) in legend.iter().enumerate() {
            let y = TOP + PLOT_HEIGHT + BELOW + row as f64 * LEGEND + 4.0;
            for &(number, x) in entries {
                let _ = writeln!(
                    svg,
                    "<path d=\"M{x} {:.1}h22\" {}/>{}<text x=\"{}\" y=\"{y}\" fill=\"#333\">{}</text>",
                    y - 4.0,
                    stroke(number),
                    mark(number, [x + 11.0, y - 4.0]),
                    x + 28.0,
                    escaped(&self.series[number].name)
                );
            }
        }
        svg + "</svg>\n"
    }

    fn draw_axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
        for (value, text) in y.ticks() {
            let at = TOP + (1.0 - y.place(value)) * PLOT_HEIGHT;
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" \
                 fill=\"#555\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                escaped(&text)
            );
        }
        let ticks = match self.names.len() {
            0 => self.own_ticks().unwrap_or_else(|| x.ticks()),
            _ => self.names.iter().enumerate().map(|(at, name)| (at as f64, name.clone())).collect(),
        };
        let longest = ticks.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(1);
        let room = (right - LEFT) / (longest as f64 * LETTER + 8.0);
        let every = (ticks.len() as f64 / room).ceil().max(1.0) as usize;
        for (value, text) in ticks.iter().step_by(every) {
            let at = LEFT + x.place(*value) * (right - LEFT);
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {bottom}v4\" stroke=\"#555\"/><text x=\"{at:.1}\" y=\"{}\" \
                 text-anchor=\"middle\" fill=\"#555\">{}</text>",
                bottom + 16.0,
                escaped(text)
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#555\"/><text x=\"{:.1}\" y=\"{}\" \
             text-anchor=\"middle\" fill=\"#555\">{}</text>",
            (LEFT + right) / 2.0,
            bottom + 34.0,
            escaped(&self.x_label)
        );
    }

    /// Where there are only a few places along x, and these matter more than round numbers, all of them.
    fn own_ticks(&self) -> Option<Vec<(f64, String)>> {
        let mut places: Vec<f64> =
            self.series.iter().flat_map(|series| &series.points).map(|point| point.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let are_few = self.x == Spread::Close && places.len() <= MOST_OWN_TICKS;
        are_few.then(|| places.into_iter().map(|x| (x, x.to_string())).collect())
    }

    /// The rows of the legend: which series stands where. One series needs none.
    fn legend(&self) -> Vec<Vec<(usize, f64)>> {
        let mut rows: Vec<Vec<(usize, f64)>> = Vec::new();
        if self.series.len() < 2 {
            return rows;
        }
        let mut x = f64::INFINITY;
        for (number, series) in self.series.iter().enumerate() {
            let width = 40.0 + series.name.chars().count() as f64 * LETTER;
            if x + width > WIDTH - RIGHT {
                rows.push(Vec::new());
                x = LEFT;
            }
            if let Some(row) = rows.last_mut() {
                row.push((number, x));
            }
            x += width;
        }
        rows
    }
}

fn stroke(number: usize) -> String {
    let dash = DASHES[number / COLOURS.len() % DASHES.len()];
    let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{dash}", COLOURS[number % COLOURS.len()])
}

/// The mark of a series: its shape tells it from its neighbours without colour.
fn mark(number: usize, [x, y]: [f64; 2]) -> String {
    let colour = COLOURS[number % COLOURS.len()];
    match number % 4 {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"),
        1 => format!("<path d=\"M{:.1} {:.1}h7v7h-7z\" fill=\"{colour}\"/>", x - 3.5, y - 3.5),
        2 => format!("<path d=\"M{x:.1} {:.1}l4.5 8h-9z\" fill=\"{colour}\"/>", y - 5.0),
        _ => format!("<path d=\"M{x:.1} {:.1}l5 5l-5 5l-5 -5z\" fill=\"{colour}\"/>", y - 5.0),
    }
}

fn draw(svg: &mut String, series: &Series, number: usize, place: &dyn Fn(&Point) -> [f64; 2]) {
    let places: Vec<[f64; 2]> = series.points.iter().map(place).collect();
    if !series.is_scattered && places.len() > 1 {
        let steps: Vec<String> = places.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" {}/>", steps.join(" "), stroke(number));
    }
    let has_marks = series.is_scattered || places.len() <= MOST_MARKS;
    for (point, at) in series.points.iter().zip(places) {
        // Without a mark a wide invisible one still says what is there.
        let shown = match has_marks {
            true => mark(number, at),
            false => format!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill-opacity=\"0\"/>", at[0], at[1]),
        };
        let _ = writeln!(svg, "<g><title>{}</title>{shown}</g>", escaped(&point.about));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        let points = points.iter().map(|&(x, y)| Point { x, y, about: format!("{name} <{x}>") });
        Series { name: name.to_string(), points: points.collect(), is_scattered: false }
    }

    #[test]
    fn a_chart_has_its_points_and_keeps_them_inside() {
        let chart = Chart {
            title: "error & layer".to_string(),
            y: Spread::Log,
            series: vec![
                series("own", &[(0.0, 1e-4), (1.0, 0.0), (2.0, f64::NAN)]),
                series("all", &[(0.0, 1e-3)]),
            ],
            limit: Some((1e-2, "rel<=0.01".to_string())),
            ..Chart::default()
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<g><title>").count(), 4);
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert!(
            svg.contains("error &amp; layer")
                && svg.contains("rel&lt;=0.01")
                && svg.contains("own &lt;0&gt;")
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn nothing_to_draw_is_an_empty_chart() {
        let svg = Chart::default().svg();
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"), "{svg}");
        let named = Chart { names: vec!["a".into(), "b".into()], ..Chart::default() };
        assert!(named.svg().contains(">b</text>"));
    }
}
