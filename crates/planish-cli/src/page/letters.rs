//! Letters as strokes of a pen, for pictures that are drawn without a font of the system: our own, after the plain shapes
//! that plotters wrote.

/// A unit of a letter's height for text of size 1: capitals are six units high.
pub(super) const UNIT: f64 = 0.12;
/// Letters are narrower than they are drawn.
const NARROWED: f64 = 0.82;
/// Units between letters, and of a space.
const GAP: f64 = 1.6;
const SPACE: f64 = 2.6;
/// The width of the pen for text of size 1.
pub(super) const PEN: f64 = 0.095;
pub(super) const BOLD: f64 = 0.135;
/// Where the base line is in the drawings.
const BASE: f64 = 2.0;
/// Corners of curves are cut so often.
const ROUNDED: usize = 3;

/// Strokes by letter: points of two digits, x and y, where 2 is the base line, 6 the height of small letters, 8 that of
/// capitals. After `~` the points are those that a curve bends to, and one that ends where it begins is closed.
const LETTERS: &[(char, &str)] = &[
    ('0', "~0242480802"),
    ('1', "072822"),
    ('2', "~0608484502 0242"),
    ('3', "~0728484525 ~2545422203"),
    ('4', "32380444"),
    ('5', "480805 ~052646422203"),
    ('6', "~380804 ~0242460602"),
    ('7', "084812"),
    ('8', "~0545480805 ~0242450502"),
    ('9', "~0444480804 ~464212"),
    ('a', "~0242460602 4642"),
    ('b', "0802 ~0242460602"),
    ('c', "~454606024243"),
    ('d', "~0242460602 4842"),
    ('e', "0444 ~444606024243"),
    ('f', "~381816 1612 0636"),
    ('g', "~0242460602 4641 ~41400001"),
    ('h', "0802 ~04064644 4442"),
    ('i', "0602 0808"),
    ('j', "1611 ~111000 1818"),
    ('k', "0802 3603 1432"),
    ('l', "0802"),
    ('m', "0602 ~04063634 3432 ~34366664 6462"),
    ('n', "0602 ~04064644 4442"),
    ('o', "~0242460602"),
    ('p', "0600 ~0242460602"),
    ('q', "~0242460602 4640"),
    ('r', "0602 ~040636"),
    ('s', "~4536060444421203"),
    ('t', "1813 ~131232 0636"),
    ('u', "0604 ~04024244 4642"),
    ('v', "062246"),
    ('w', "0612365266"),
    ('x', "0642 0246"),
    ('y', "0622 4610"),
    ('z', "06460242"),
    ('A', "022842 1434"),
    ('B', "0802 ~08484505 ~05454202"),
    ('C', "~474808024243"),
    ('D', "0802 ~08484202"),
    ('E', "48080242 0535"),
    ('F', "480802 0535"),
    ('G', "~474808024244 4424"),
    ('H', "0802 4842 0545"),
    ('I', "0802"),
    ('J', "3834 ~34320203"),
    ('K', "0802 4804 1542"),
    ('L', "080242"),
    ('M', "0208346862"),
    ('N', "02084248"),
    ('O', "~0242480802"),
    ('P', "0802 ~08484404"),
    ('Q', "~0242480802 2442"),
    ('R', "0802 ~08484404 2442"),
    ('S', "~4738080545421203"),
    ('T', "0848 2822"),
    ('U', "0804 ~04024244 4448"),
    ('V', "082248"),
    ('W', "0812365268"),
    ('X', "0842 0248"),
    ('Y', "082548 2522"),
    ('Z', "08480242"),
    ('.', "0202"),
    (',', "0201"),
    (':', "0202 0505"),
    (';', "0201 0505"),
    ('-', "0434"),
    ('–', "0444"),
    ('_', "0141"),
    ('+', "0444 2226"),
    ('=', "0343 0545"),
    ('/', "0138"),
    ('\\', "0831"),
    ('|', "0901"),
    ('(', "~19070311"),
    (')', "~09171301"),
    ('[', "19090111"),
    (']', "09191101"),
    ('{', "~29181605 ~05141221"),
    ('}', "~09181625 ~25141201"),
    ('<', "460442"),
    ('>', "064402"),
    ('≤', "470543 0242"),
    ('≥', "074503 0242"),
    ('%', "0248 ~0616180806 ~3242443432"),
    ('*', "0547 0745 2428"),
    ('#', "1218 3238 0444 0646"),
    ('&', "~4206182803021244"),
    ('@', "~34242636343343480802 0242"),
    ('!', "0804 0202"),
    ('?', "~0708484525 2524 2222"),
    ('"', "0806 1816"),
    ('\'', "0806"),
    ('`', "0817"),
    ('~', "~04162544"),
    ('^', "062846"),
    ('$', "~4738080545421203 2921"),
    ('µ', "0600 0604 ~04024244 4642"),
    ('×', "0336 0633"),
    ('·', "0505"),
    ('±', "0545 2327 0242"),
    ('°', "~0626280806"),
    ('…', "0202 2222 4242"),
    ('→', "0444 264422"),
];
/// What stands for letters that are not drawn: a box.
const UNKNOWN: &str = "0242480802";

fn drawing(letter: char) -> &'static str {
    LETTERS.iter().find(|(known, _)| *known == letter).map_or(UNKNOWN, |(_, drawing)| drawing)
}

/// Points of a stroke as they are drawn, and whether they are those of a curve.
fn points(stroke: &str) -> (Vec<[f64; 2]>, bool) {
    let digits: Vec<f64> = stroke.chars().filter_map(|digit| digit.to_digit(10)).map(f64::from).collect();
    (
        digits.chunks_exact(2).map(|pair| [pair[0] * NARROWED, pair[1] - BASE]).collect(),
        stroke.starts_with('~'),
    )
}

/// Lines that draw a letter, in units from the left end of its base line.
pub(super) fn strokes(letter: char) -> Vec<Vec<[f64; 2]>> {
    if letter.is_whitespace() {
        return Vec::new();
    }
    let stroke = |stroke: &str| {
        let (mut points, is_curve) = points(stroke);
        for _ in 0..if is_curve { ROUNDED } else { 0 } {
            points = cut(&points);
        }
        points
    };
    drawing(letter).split(' ').map(stroke).collect()
}

/// Units to the next letter.
pub(super) fn advance(letter: char) -> f64 {
    if letter.is_whitespace() {
        return SPACE;
    }
    let xs = drawing(letter).split(' ').flat_map(|stroke| points(stroke).0).map(|point| point[0]);
    xs.fold(0.0, f64::max) + GAP
}

/// Units of a text.
pub(super) fn width(text: &str) -> f64 {
    text.chars().map(advance).sum::<f64>() - if text.is_empty() { 0.0 } else { GAP }
}

/// A line with its corners cut, a quarter from each: after a few times it is a curve (Chaikin).
fn cut(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let is_closed = points.len() > 2 && points.first() == points.last();
    let between =
        |a: [f64; 2], b: [f64; 2], part: f64| [0, 1].map(|axis| a[axis] + part * (b[axis] - a[axis]));
    let mut cut = Vec::with_capacity(2 * points.len());
    for (number, pair) in points.windows(2).enumerate() {
        let is_end = |at: usize| !is_closed && at == number;
        cut.push(if is_end(0) { pair[0] } else { between(pair[0], pair[1], 0.25) });
        cut.push(if is_end(points.len() - 2) { pair[1] } else { between(pair[0], pair[1], 0.75) });
    }
    if is_closed {
        cut.push(cut[0]);
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_that_charts_use_is_drawn_inside_its_box() {
        for letter in (33u8..127).map(char::from).chain("µ–×±".chars()) {
            assert!(LETTERS.iter().any(|(known, _)| *known == letter), "{letter} is not drawn");
            let strokes = strokes(letter);
            assert!(!strokes.is_empty() && strokes.iter().all(|stroke| !stroke.is_empty()), "{letter}");
            for [x, y] in strokes.into_iter().flatten() {
                assert!(
                    (0.0..advance(letter)).contains(&x) && (-2.0..=7.0).contains(&y),
                    "{letter}: {x} {y}"
                );
            }
        }
        assert_eq!(strokes('\u{4e00}').len(), 1, "a box stands for what is not drawn");
    }

    #[test]
    fn curves_are_smooth_and_closed_ones_stay_so() {
        let ring = &strokes('o')[0];
        assert!(ring.len() > 20 && ring.first() == ring.last());
        let hook = &strokes('r')[1];
        assert_eq!((hook[0], *hook.last().unwrap()), ([0.0, 2.0], [3.0 * NARROWED, 4.0]));
        assert_eq!(width(""), 0.0);
        assert!(width("il") < width("mm") && width("a b") > width("ab"));
    }
}
