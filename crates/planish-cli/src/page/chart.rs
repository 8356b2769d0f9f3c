//! Charts, in SVG and PNG: lines and points over numbers or over names, told apart by colour, dash and mark, so that they can be
//! read on paper too.

use std::io;

use super::bitmap::Bitmap;
use super::canvas::{Anchor, Canvas, Pen, Place, Svg, Words};
use super::scale::Scale;

/// The size in pixels, and what the edges leave for words. As wide as a phone nearly is: words can be read there too, and three
/// charts fit side by side on a desk.
const WIDTH: f64 = 420.0;
const PLOT_HEIGHT: f64 = 260.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 44.0;
const BELOW: f64 = 48.0;
/// A line of the legend.
const LEGEND: f64 = 20.0;
/// The width that a letter takes, about.
const LETTER: f64 = 7.0;
/// More points than this get no marks.
const MOST_MARKS: usize = 60;

/// More places than this get round numbers as ticks.
const MOST_OWN_TICKS: usize = 8;

/// Colours that people with any eyes tell apart (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333"];
const DASHES: [&[f64]; 4] = [&[], &[6.0, 3.0], &[2.0, 3.0], &[8.0, 3.0, 2.0, 3.0]];

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
        let mut svg = Svg::new([WIDTH, self.height()], &self.title);
        self.draw(&mut svg);
        svg.finish()
    }

    /// The same in pixels.
    pub(crate) fn write_png(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut bitmap = Bitmap::new([WIDTH, self.height()]);
        self.draw(&mut bitmap);
        bitmap.write_png(out)
    }

    fn height(&self) -> f64 {
        TOP + PLOT_HEIGHT + BELOW + self.legend().len() as f64 * LEGEND
    }

    fn draw(&self, canvas: &mut dyn Canvas) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = match self.names.len() {
            0 => self.x.scale(points().map(|point| point.x)),
            n => Scale::close([-0.5, n as f64 - 0.5].into_iter()),
        };
        let y = self.y.scale(points().map(|point| point.y).chain(self.limit.iter().map(|(at, _)| *at)));
        let place = |point: &Point| {
            [LEFT + x.place(point.x) * (WIDTH - LEFT - RIGHT), TOP + (1.0 - y.place(point.y)) * PLOT_HEIGHT]
        };
        let title = Words { size: 14.0, is_bold: true, ..Words::small(Anchor::Start, "#111") };
        canvas.text(&self.title, [LEFT, 18.0], title);
        canvas.text(&self.y_label, [LEFT, 35.0], Words::small(Anchor::Start, "#555"));
        self.draw_axes(canvas, &x, &y);
        if let Some((at, name)) = &self.limit {
            let y = TOP + (1.0 - y.place(*at)) * PLOT_HEIGHT;
            let pen = Pen { colour: "#b00020", width: 1.0, dash: &[6.0, 4.0] };
            canvas.line(&[[LEFT, y], [WIDTH - RIGHT, y]], pen);
            canvas.text(name, [WIDTH - RIGHT, y - 4.0], Words::small(Anchor::End, "#b00020"));
        }
        for (number, series) in self.series.iter().enumerate() {
            draw(canvas, series, number, &place);
        }
        for (row, entries) in self.legend().iter().enumerate() {
            let y = TOP + PLOT_HEIGHT + BELOW + row as f64 * LEGEND + 4.0;
            for &(number, x) in entries {
                canvas.line(&[[x, y - 4.0], [x + 22.0, y - 4.0]], pen(number));
                mark(canvas, number, [x + 11.0, y - 4.0]);
                canvas.text(&self.series[number].name, [x + 28.0, y], Words::small(Anchor::Start, "#333"));
            }
        }
    }

    fn draw_axes(&self, canvas: &mut dyn Canvas, x: &Scale, y: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, TOP + PLOT_HEIGHT);
        for (value, text) in y.ticks() {
            let at = TOP + (1.0 - y.place(value)) * PLOT_HEIGHT;
            canvas.line(&[[LEFT, at], [right, at]], Pen::thin("#ddd"));
            canvas.text(&text, [LEFT - 6.0, at + 4.0], Words::small(Anchor::End, "#555"));
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
            canvas.line(&[[at, bottom], [at, bottom + 4.0]], Pen::thin("#555"));
            canvas.text(text, [at, bottom + 16.0], Words::small(Anchor::Middle, "#555"));
        }
        canvas.line(&[[LEFT, TOP], [LEFT, bottom], [right, bottom]], Pen::thin("#555"));
        canvas.text(
            &self.x_label,
            [(LEFT + right) / 2.0, bottom + 34.0],
            Words::small(Anchor::Middle, "#555"),
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
            let width = 44.0 + series.name.chars().count() as f64 * LETTER;
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

fn pen(number: usize) -> Pen {
    let dash = DASHES[number / COLOURS.len() % DASHES.len()];
    Pen { colour: COLOURS[number % COLOURS.len()], width: 2.0, dash }
}

/// The mark of a series: its shape tells it from its neighbours without colour.
fn mark(canvas: &mut dyn Canvas, number: usize, [x, y]: Place) {
    let colour = COLOURS[number % COLOURS.len()];
    let around = |corners: &[Place]| corners.iter().map(|[dx, dy]| [x + dx, y + dy]).collect::<Vec<_>>();
    let corners: &[Place] = match number % 4 {
        0 => return canvas.disc([x, y], 3.5, colour),
        1 => &[[-3.5, -3.5], [3.5, -3.5], [3.5, 3.5], [-3.5, 3.5]],
        2 => &[[0.0, -5.0], [4.5, 3.0], [-4.5, 3.0]],
        _ => &[[0.0, -5.0], [5.0, 0.0], [0.0, 5.0], [-5.0, 0.0]],
    };
    canvas.shape(&around(corners), colour);
}

fn draw(canvas: &mut dyn Canvas, series: &Series, number: usize, place: &dyn Fn(&Point) -> Place) {
    let places: Vec<Place> = series.points.iter().map(place).collect();
    if !series.is_scattered && places.len() > 1 {
        canvas.line(&places, pen(number));
    }
    let has_marks = series.is_scattered || places.len() <= MOST_MARKS;
    for (point, at) in series.points.iter().zip(places) {
        if has_marks {
            mark(canvas, number, at);
        }
        canvas.about(at, &point.about);
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
        assert_eq!(svg.matches("</title></circle>").count(), 4);
        assert_eq!(svg.matches("stroke-width=\"2\"").count(), 3, "one line, and two in the legend");
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
        let mut png = Vec::new();
        named.write_png(&mut png).unwrap();
        let read = image::load_from_memory(&png).unwrap();
        assert_eq!((read.width(), read.height()), (840, 704));
    }
}
