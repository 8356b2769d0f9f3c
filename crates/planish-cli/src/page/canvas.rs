//! What charts are drawn on: a few primitives, as text in SVG (`Svg`) or as pixels (`bitmap`).

use std::fmt::Write as _;

use super::escaped;

/// A colour as `#rgb` or `#rrggbb`.
pub(super) type Colour = &'static str;

/// How a line is drawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pen {
    pub(super) colour: Colour,
    pub(super) width: f64,
    /// Lengths of strokes and gaps in turn; empty for a line without gaps.
    pub(super) dash: &'static [f64],
}

impl Pen {
    pub(super) fn thin(colour: Colour) -> Pen {
        Pen { colour, width: 1.0, dash: &[] }
    }
}

/// Where a text stands beside its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Words {
    pub(super) anchor: Anchor,
    pub(super) colour: Colour,
    pub(super) size: f64,
    pub(super) is_bold: bool,
}

impl Words {
    pub(super) fn small(anchor: Anchor, colour: Colour) -> Words {
        Words { anchor, colour, size: 12.0, is_bold: false }
    }
}

/// A place in pixels, from the upper left.
pub(super) type Place = [f64; 2];

/// What a chart is drawn on.
pub(super) trait Canvas {
    fn line(&mut self, points: &[Place], pen: Pen);
    /// A disc.
    fn disc(&mut self, middle: Place, radius: f64, colour: Colour);
    /// A filled convex shape.
    fn shape(&mut self, corners: &[Place], colour: Colour);
    /// Text on its base line.
    fn text(&mut self, text: &str, at: Place, words: Words);
    /// What is said when a pointer rests at a place; nothing on paper.
    fn about(&mut self, _at: Place, _text: &str) {}
}

/// SVG.
pub(super) struct Svg(String);

impl Svg {
    pub(super) fn new([width, height]: [f64; 2], title: &str) -> Svg {
        Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\" role=\"img\">\n\
             <title>{}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
            escaped(title)
        ))
    }

    pub(super) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}

fn path(points: &[Place]) -> String {
    let step = |(idx, [x, y]): (usize, &Place)| format!("{}{x:.1} {y:.1}", if idx == 0 { 'M' } else { 'L' });
    points.iter().enumerate().map(step).collect()
}

impl Canvas for Svg {
    fn line(&mut self, points: &[Place], pen: Pen) {
        let width = if pen.width == 1.0 { String::new() } else { format!(" stroke-width=\"{}\"", pen.width) };
        let dash = match pen.dash {
            [] => String::new(),
            lengths => {
                let lengths: Vec<String> = lengths.iter().map(f64::to_string).collect();
                format!(" stroke-dasharray=\"{}\"", lengths.join(" "))
            }
        };
        let _ = writeln!(
            self.0,
            "<path d=\"{}\" fill=\"none\" stroke=\"{}\"{width}{dash}/>",
            path(points),
            pen.colour
        );
    }

    fn disc(&mut self, [x, y]: Place, radius: f64, colour: Colour) {
        let _ = writeln!(self.0, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"/>");
    }

    fn shape(&mut self, corners: &[Place], colour: Colour) {
        let _ = writeln!(self.0, "<path d=\"{}z\" fill=\"{colour}\"/>", path(corners));
    }

    fn text(&mut self, text: &str, [x, y]: Place, words: Words) {
        let anchor = match words.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let size = if words.size == 12.0 { String::new() } else { format!(" font-size=\"{}\"", words.size) };
        let weight = if words.is_bold { " font-weight=\"600\"" } else { "" };
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\"{anchor}{size}{weight} fill=\"{}\">{}</text>",
            words.colour,
            escaped(text)
        );
    }

    fn about(&mut self, [x, y]: Place, text: &str) {
        let _ = writeln!(
            self.0,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill-opacity=\"0\"><title>{}</title></circle>",
            escaped(text)
        );
    }
}
