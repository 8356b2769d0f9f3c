//! Candidates as CSV and as a chart in SVG: time to the right, error upwards on a scale of powers of ten.

use std::fmt::Write as _;

use super::{Choice, Measure, PrecisionCandidate};

/// The chart's size in pixels, and what its edges leave for words.
const SIZE: [f64; 2] = [760.0, 480.0];
const EDGE: [f64; 2] = [80.0, 60.0];
/// Errors that cannot be told from none stand at the lowest line, this part of the least that can.
const BELOW: f64 = 0.1;

impl Choice {
    /// A line of comma-separated fields for each candidate, under their names.
    pub fn csv(&self) -> String {
        let measure = self.contract.measure.name();
        let mut text = format!(
            "candidate,precision,fp32_layers,low_layers,{measure}_search,{measure}_held_out,latency_ms,front,chosen\n"
        );
        for (at, candidate) in self.candidates.iter().enumerate() {
            let held_out = candidate.held_out.map_or_else(String::new, |value| value.to_string());
            let fields = [
                format!("\"{}\"", candidate.name()),
                candidate.precision.name().to_string(),
                candidate.fp32_layers.len().to_string(),
                candidate.n_low.to_string(),
                candidate.value.to_string(),
                held_out,
                (candidate.latency.as_secs_f64() * 1e3).to_string(),
                candidate.is_on_front.to_string(),
                (self.chosen == Some(at)).to_string(),
            ];
            text.push_str(&fields.join(","));
            text.push('\n');
        }
        text
    }

    /// The candidates as points; those of the front are joined, the one that was chosen is filled.
    pub fn svg(&self) -> String {
        let errors: Vec<f64> = self.candidates.iter().map(|candidate| self.error(candidate)).collect();
        let bound = self.bound_as_error();
        let told = errors.iter().copied().chain([bound]).filter(|error| *error > 0.0 && error.is_finite());
        let (least, most) =
            told.fold((f64::INFINITY, f64::MIN_POSITIVE), |(low, high), x| (low.min(x), high.max(x)));
        let (least, most) = if least < most { (least * BELOW, most * 2.0) } else { (1e-6, 1.0) };
        let latest =
            self.candidates.iter().map(|candidate| candidate.latency.as_secs_f64() * 1e3).fold(0.0, f64::max);
        let right = latest.max(1e-6) * 1.1;
        let x = |ms: f64| EDGE[0] + ms / right * (SIZE[0] - 2.0 * EDGE[0]);
        let y = |error: f64| {
            let part = (error.clamp(least, most) / least).ln() / (most / least).ln();
            SIZE[1] - EDGE[1] - part * (SIZE[1] - 2.0 * EDGE[1])
        };
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{w}\" height=\"{h}\" fill=\"white\"/>\n",
            w = SIZE[0],
            h = SIZE[1]
        );
        let [bottom, left, end] = [SIZE[1] - EDGE[1], EDGE[0], SIZE[0] - EDGE[0]];
        line(&mut text, [left, bottom, end, bottom], "black", "");
        line(&mut text, [left, EDGE[1], left, bottom], "black", "");
        for tick in 0..=5 {
            let ms = right * f64::from(tick) / 5.0;
            words(&mut text, [x(ms) - 12.0, bottom + 18.0], &format!("{ms:.3}"));
        }
        let (first, last) = (least.log10().ceil() as i32, most.log10().floor() as i32);
        for power in first..=last {
            let at = y(10f64.powi(power));
            line(&mut text, [left, at, end, at], "#dddddd", "");
            words(&mut text, [left - 44.0, at + 4.0], &format!("1e{power}"));
        }
        line(&mut text, [left, y(bound), end, y(bound)], "#c00000", " stroke-dasharray=\"6 4\"");
        words(&mut text, [left + 6.0, y(bound) - 4.0], &escaped(&self.contract.to_string()));
        words(&mut text, [SIZE[0] / 2.0 - 60.0, SIZE[1] - 18.0], "median time of a run, ms");
        words(&mut text, [left, 36.0], self.axis());
        let points: Vec<[f64; 2]> = self
            .candidates
            .iter()
            .zip(&errors)
            .map(|(candidate, error)| [x(candidate.latency.as_secs_f64() * 1e3), y(*error)])
            .collect();
        let front: Vec<String> = self
            .candidates
            .iter()
            .zip(&points)
            .filter(|(candidate, _)| candidate.is_on_front)
            .map(|(_, [x, y])| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(text, "<polyline points=\"{}\" fill=\"none\" stroke=\"#3060c0\"/>", front.join(" "));
        for (at, (candidate, [x, y])) in self.candidates.iter().zip(&points).enumerate() {
            let fill = if self.chosen == Some(at) { "#3060c0" } else { "white" };
            let _ = writeln!(
                text,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{fill}\" stroke=\"#3060c0\"/>"
            );
            words(&mut text, [x + 8.0, y - 6.0], &escaped(&candidate.name()));
        }
        text.push_str("</svg>\n");
        text
    }

    /// What is measured, as an error that is 0 at best.
    fn error(&self, candidate: &PrecisionCandidate) -> f64 {
        self.as_error(candidate.held_out.unwrap_or(candidate.value))
    }

    fn bound_as_error(&self) -> f64 {
        self.as_error(self.contract.bound)
    }

    fn as_error(&self, value: f64) -> f64 {
        match self.contract.measure {
            Measure::RelativeL2 | Measure::MaxAbs | Measure::MeanAbs => value,
            Measure::Psnr => 10f64.powf(-value / 20.0),
            Measure::Cosine => 1.0 - value,
            Measure::Top1Drop => value.max(0.0),
        }
    }

    fn axis(&self) -> &'static str {
        match self.contract.measure {
            Measure::RelativeL2 => "relative L2 error against FP32",
            Measure::Psnr => "noise over peak, against FP32 (0.01 are 40 dB)",
            Measure::Cosine => "1 - cosine, against FP32",
            Measure::MaxAbs => "largest absolute difference against FP32",
            Measure::MeanAbs => "mean absolute difference against FP32",
            Measure::Top1Drop => "points of top-1 lost against FP32",
        }
    }
}

fn line(text: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str, more: &str) {
    let _ = writeln!(
        text,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"{more}/>"
    );
}

fn words(text: &mut String, [x, y]: [f64; 2], said: &str) {
    let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\">{said}</text>");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use planish_compile::Precision;

    use super::*;
    use crate::Contract;

    #[test]
    fn candidates_are_lines_and_points() {
        let candidate = |precision, n_out: usize, value: f64, ms: u64| PrecisionCandidate {
            precision,
            fp32_layers: (0..n_out).map(|n| format!("layer{n}")).collect(),
            n_low: 3,
            value,
            held_out: (n_out > 0).then_some(value),
            latency: Duration::from_millis(ms),
            is_on_front: true,
        };
        let candidates = vec![
            candidate(Precision::Int8, 0, 0.2, 1),
            candidate(Precision::Int8, 2, 0.01, 2),
            candidate(Precision::Fp32, 0, 0.0, 4),
        ];
        let contract = Contract::new(Measure::RelativeL2, 0.05);
        let choice = Choice { contract, candidates, chosen: Some(1), closest: 1, n_search: 2, n_held_out: 2 };
        let csv = choice.csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines[2], "\"int8, 2 layers in fp32\",int8,2,3,0.01,0.01,2,true,true");
        assert_eq!(lines.len(), 4);
        let svg = choice.svg();
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("rel&lt;=0.05") && !svg.contains("NaN") && svg.ends_with("</svg>\n"), "{svg}");
        assert_eq!(svg.matches("fill=\"#3060c0\"").count(), 1);
    }
}
