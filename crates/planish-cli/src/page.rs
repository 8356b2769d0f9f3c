//! Pages and pictures of our own: HTML in one file without a network, and charts in SVG and PNG; shared by `compare`, `explore`
//! and `sweep`.

mod bitmap;
mod canvas;
pub(crate) mod chart;
mod letters;
mod scale;

use serde_json::Value;

/// How every page looks, on a screen, a phone and on paper.
const STYLE: &str = include_str!("page/page.css");

/// Text as HTML and SVG take it, in attributes too.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML has none of the others, whatever a model calls its nodes.
            c if c.is_control() && !matches!(c, '\n' | '\t') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A page in one file.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// Styles and scripts of its own, as they are.
    pub(crate) style: &'static str,
    pub(crate) script: &'static str,
    /// What scripts read, by name.
    pub(crate) data: Vec<(&'static str, Value)>,
    /// HTML.
    pub(crate) body: String,
}

impl Page {
    pub(crate) fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
             script-src 'unsafe-inline'; img-src data: blob:\">\n<title>{title}</title>\n\
             <style>\n{STYLE}{}</style>\n</head>\n<body>\n{}\n",
            self.style, self.body
        );
        for (name, value) in &self.data {
            // A `<` in a name must not end the element.
            let text = value.to_string().replace('<', "\\u003c");
            html += &format!("<script type=\"application/json\" id=\"{name}\">{text}</script>\n");
        }
        if !self.script.is_empty() {
            html += &format!("<script>\n{}</script>\n", self.script);
        }
        html + "</body>\n</html>\n"
    }
}

/// A table of text; cells of the columns in `right` are aligned there.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n");
    for (number, row) in rows.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = if right.contains(&column) { " class=\"n\"" } else { "" };
            html += &format!("<{tag}{class}>{}</{tag}>", escaped(cell));
        }
        html.push_str("</tr>\n");
    }
    html + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        let odd = "</script><b a='1' b=\"2\">&\u{1b}";
        assert_eq!(escaped(odd), "&lt;/script&gt;&lt;b a=&#39;1&#39; b=&quot;2&quot;&gt;&amp;\u{fffd}");
        let page = Page {
            title: odd.to_string(),
            data: vec![("data", serde_json::json!({ "name": odd }))],
            body: table(&[vec![odd.to_string()]], &[0]),
            ..Page::default()
        };
        let html = page.html();
        assert_eq!(html.matches("</script>").count(), 1, "{html}");
        assert!(!html.contains("<b a=") && html.ends_with("</html>\n"), "{html}");
    }
}
