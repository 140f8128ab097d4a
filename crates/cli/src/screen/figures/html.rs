//! For a browser: one page without scripts and without anything to fetch.

use std::fmt::Write;

use skyhaul_lab::compare::{Answer, Published, Verdict};
use skyhaul_lab::figure::{Chart, Figure, Table, Value};
use skyhaul_lab::plot::{escape, svg};

use super::page::{header, name};
use super::{cells, counts, shown, COLUMNS, VERDICTS};
use crate::commands::paper::Made;

/// The page; `how` is the command that makes it again.
pub fn html(made: &[Made], how: &str) -> String {
    let papers = made.iter().any(|made| !made.published.is_empty());
    let title = if papers {
        "Papers on TCP over satellite, repeated in virtual time"
    } else {
        "Skyhaul's controller in virtual time"
    };
    let mut page = HEAD.replace("{title}", title);
    line(&mut page, &format!("<h1>{title}</h1>"));
    let beside = if papers {
        ", and every value that a paper prints stands beside ours. Intervals hold the mean with 95 % confidence \
         (Student, over the seeds)"
    } else {
        ""
    };
    line(
        &mut page,
        &format!(
            "<p>Every figure was made anew by simulation{beside}. The same command gives the same page: \
             <code>{}</code>.</p>",
            escape(how)
        ),
    );
    contents(&mut page, made);
    summary(&mut page, made);
    for made in made {
        paper(&mut page, made);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

/// The target of a link; ids of figures are numbers and words.
fn id(made: &Made, figure: &Figure) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    format!("{}-{}", made.paper.name, figure.id.chars().map(plain).collect::<String>())
}

fn contents(page: &mut String, made: &[Made]) {
    line(page, "<nav aria-label=\"Contents\">\n<h2>Contents</h2>\n<ul>");
    if made.iter().any(|made| !made.published.is_empty()) {
        line(page, "<li><a href=\"#summary\">Summary</a></li>");
    }
    for made in made {
        let Made { paper, figures, .. } = made;
        line(page, &format!("<li><a href=\"#{0}\">{0}: {1}</a>\n<ul>", paper.name, escape(paper.title)));
        for figure in figures {
            let title = escape(&figure.title);
            line(
                page,
                &format!("<li><a href=\"#{}\">{}: {title}</a></li>", id(made, figure), escape(&name(figure))),
            );
        }
        line(page, "</ul></li>");
    }
    line(page, "</ul>\n</nav>");
}

fn summary(page: &mut String, made: &[Made]) {
    if made.iter().all(|made| made.published.is_empty()) {
        return;
    }
    line(page, "<section id=\"summary\">\n<h2>How many of the published values hold</h2>");
    line(page, "<div class=\"wide\"><table>\n<thead><tr><th>paper</th><th class=\"n\">values</th>");
    for verdict in VERDICTS {
        line(page, &format!("<th class=\"n\">{}</th>", badge(verdict)));
    }
    line(page, "<th class=\"n\">without an answer</th></tr></thead>\n<tbody>");
    // Our own controller has no values that others printed.
    for made in made.iter().filter(|made| !made.published.is_empty()) {
        let mut row = format!(
            "<tr><td><a href=\"#{0}\">{0}</a></td><td class=\"n\">{1}</td>",
            made.paper.name,
            made.published.len()
        );
        for count in counts(made).iter().copied().chain([made.unanswered().count()]) {
            let _ = write!(row, "<td class=\"n\">{count}</td>");
        }
        line(page, &(row + "</tr>"));
    }
    line(page, "</tbody></table></div>\n</section>");
}

fn paper(page: &mut String, made: &Made) {
    let Made { paper, figures, .. } = made;
    line(page, &format!("<section id=\"{0}\">\n<h2>{0}: {1}</h2>", paper.name, escape(paper.title)));
    line(page, &format!("<p class=\"source\">{}</p>", escape(paper.published_in)));
    for figure in figures {
        part(page, made, figure);
    }
    let missing: Vec<String> = made.unanswered().map(|published| escape(&published.id)).collect();
    if !missing.is_empty() {
        line(page, &format!("<p>Without an answer: {}.</p>", missing.join(", ")));
    }
    line(page, "</section>");
}

fn part(page: &mut String, made: &Made, figure: &Figure) {
    line(page, &format!("<section id=\"{}\" class=\"part\">", id(made, figure)));
    line(page, &format!("<h3>{}: {}</h3>", escape(&name(figure)), escape(&figure.title)));
    for chart in &figure.charts {
        // The heading has said it already.
        let title = if chart.title == figure.title { String::new() } else { chart.title.clone() };
        let picture = svg(&Chart { title, ..chart.clone() });
        line(page, &format!("<figure aria-label=\"{}\">{picture}</figure>", escape(&chart.title)));
    }
    for each in &figure.tables {
        table(page, each);
    }
    answers(page, made, figure);
    if !figure.notes.is_empty() {
        line(page, "<ul class=\"notes\">");
        for note in &figure.notes {
            line(page, &format!("<li>{}</li>", escape(note)));
        }
        line(page, "</ul>");
    }
    line(page, "</section>");
}

fn table(page: &mut String, table: &Table) {
    let class: Vec<&str> = (0..table.columns.len())
        .map(|index| {
            let cells = || table.rows.iter().filter_map(|row| row.get(index));
            let is_number =
                |value: &Value| matches!(value, Value::Count(_) | Value::Number(_) | Value::Spread(_));
            let is_long = |value: &Value| matches!(value, Value::Text(text) if text.chars().count() > LONG);
            match (cells().any(is_number), cells().any(is_long)) {
                (true, _) => " class=\"n\"",
                (false, true) => " class=\"long\"",
                (false, false) => "",
            }
        })
        .collect();
    line(
        page,
        &format!("<div class=\"wide\"><table>\n<caption>{}</caption>\n<thead><tr>", escape(&table.title)),
    );
    for (column, class) in table.columns.iter().zip(&class) {
        line(page, &format!("<th{class}>{}</th>", escape(&header(column))));
    }
    line(page, "</tr></thead>\n<tbody>");
    for row in &table.rows {
        page.push_str("<tr>");
        for ((index, column), class) in table.columns.iter().enumerate().zip(&class) {
            let text = row.get(index).map_or(String::new(), |value| shown(value, column.unit));
            let _ = write!(page, "<td{class}>{}</td>", escape(&text));
        }
        line(page, "</tr>");
    }
    line(page, "</tbody></table></div>");
}

/// Published values beside ours, each with the reason for its verdict below.
fn answers(page: &mut String, made: &Made, figure: &Figure) {
    let answer = |published: &Published| figure.answers.iter().find(|answer| answer.row == published.id);
    let answered: Vec<(&Published, &Answer)> =
        made.published.iter().filter_map(|published| Some((published, answer(published)?))).collect();
    if answered.is_empty() {
        return;
    }
    line(page, "<div class=\"wide\"><table class=\"answers\">\n<caption>What the paper says, and ours</caption>\n<thead><tr>");
    for column in COLUMNS {
        line(page, &format!("<th>{}</th>", escape(column)));
    }
    line(page, "</tr></thead>");
    for (published, answer) in answered {
        let mut cells = cells(published, Some(answer));
        cells.pop();
        page.push_str("<tbody><tr>");
        for cell in cells {
            let _ = write!(page, "<td>{}</td>", escape(&cell));
        }
        line(page, &format!("<td>{}</td></tr>", badge(answer.verdict)));
        if !answer.why.is_empty() {
            let why = escape(&answer.why);
            line(page, &format!("<tr class=\"why\"><td colspan=\"{}\">{why}</td></tr>", COLUMNS.len()));
        }
        line(page, "</tbody>");
    }
    line(page, "</table></div>");
}

/// A verdict in words on its colour.
fn badge(verdict: Verdict) -> String {
    let class = match verdict {
        Verdict::Holds => "holds",
        Verdict::Partly => "partly",
        Verdict::Differs => "differs",
        Verdict::RealStack | Verdict::NotReproducible => "apart",
    };
    format!("<span class=\"verdict {class}\">{}</span>", verdict.name())
}

/// Longer texts get lines of some length.
const LONG: usize = 24;

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>{title}</title>
<style>
:root { --ink: #1d2329; --faint: #59636e; --paper: #ffffff; --line: #d5dae0; --shade: #f3f5f7; --link: #0060a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e7eb; --faint: #9aa5b1; --paper: #15191d; --line: #3a424b; --shade: #20262c; --link: #7cbcf0; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3rem 0 .5rem; padding-top: .8rem; border-top: 2px solid var(--line); }
h3 { font-size: 1.08rem; margin: 2.2rem 0 .6rem; }
nav h2 { border: 0; margin: 1rem 0 0; padding: 0; font-size: 1.08rem; }
nav ul { margin: .3rem 0; padding-left: 1.2rem; }
a { color: var(--link); }
code { background: var(--shade); padding: .1em .3em; border-radius: 3px; font-size: .9em; }
.source, caption, .why { color: var(--faint); }
figure { margin: 1rem 0; width: fit-content; max-width: 100%; overflow-x: auto; background: #ffffff; border: 1px solid var(--line); border-radius: 6px; }
figure svg { display: block; min-width: 34rem; max-width: 100%; height: auto; }
@media screen and (prefers-color-scheme: dark) {
  /* Light and dark change places, hues stay; a tenth less keeps paper from black and ink from white. */
  figure { background: #191919; } figure svg { filter: invert(.9) hue-rotate(180deg); }
}
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .88rem; line-height: 1.35; }
caption { text-align: left; font-weight: 600; padding: 0 0 .35rem; }
th, td { padding: .32rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { background: var(--shade); font-weight: 600; vertical-align: bottom; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n, .answers td:first-child { white-space: nowrap; }
.answers .why td { white-space: normal; }
.long { min-width: 15rem; }
.answers { min-width: 46rem; }
.answers tr:has(+ .why) td { border-bottom: 0; }
.why td { padding: 0 .6rem .5rem 1.6rem; }
.notes { padding-left: 1.2rem; font-size: .94rem; }
.verdict { display: inline-block; padding: .05rem .5rem; border-radius: 1rem; white-space: nowrap; font-size: .8rem;
  font-weight: 600; color: #10151a; }
.holds { background: #a6dbc6; } .partly { background: #f5d690; } .differs { background: #f3b79a; } .apart { background: #ccd3da; }
@media print {
  body { font-size: 10pt; } main { max-width: none; padding: 0; } figure, tbody, .verdict { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; } .wide, figure { overflow: visible; } .answers { min-width: 0; }
  a { color: inherit; text-decoration: none; } .verdict, th { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
</style>
</head>
<body>
<main>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::paper::make;
    use skyhaul_lab::experiment::Effort;
    use skyhaul_lab::hybic;

    /// The figures that are formulas, for they take no time.
    fn page() -> (Vec<Made>, String) {
        let one = |id| make(&[&hybic::PAPER], Some(id), &Effort::quick()).unwrap();
        let mut made = one("table-1");
        made[0].figures.extend(one("3").remove(0).figures);
        let page = html(&made, "skyhaul report <now>");
        (made, page)
    }

    #[test]
    fn the_page_has_every_table_chart_value_and_note_once() {
        let (made, page) = page();
        let count = |what: &str| page.matches(what).count();
        for figure in &made[0].figures {
            assert_eq!(count(&format!("<section id=\"hybic-{}\"", figure.id)), 1);
            assert_eq!(count(&format!("<a href=\"#hybic-{}\"", figure.id)), 1);
            for note in &figure.notes {
                assert_eq!(count(&escape(note)), 1, "{note}");
            }
        }
        let all = || made[0].figures.iter();
        assert_eq!(count("<svg "), all().map(|figure| figure.charts.len()).sum::<usize>());
        assert!(count("<svg ") > 0);
        let tables =
            all().map(|figure| figure.tables.len() + usize::from(!figure.answers.is_empty())).sum::<usize>();
        assert_eq!(count("<table"), tables + 1);
        assert_eq!(count("<td>p4.analytic</td>"), made[0].published.len());
    }

    #[test]
    fn nothing_is_fetched_and_text_cannot_become_markup() {
        let (mut made, page) = page();
        for fetching in ["<script", "<link", "src=", "url(", "@import", "<iframe"] {
            assert!(!page.contains(fetching), "{fetching}");
        }
        let links = page.match_indices("href=\"").filter(|(at, _)| !page[at + 6..].starts_with('#')).count();
        assert_eq!(links, 0);
        assert!(page.contains("skyhaul report &lt;now&gt;"));
        let bad = "<b onclick=\"x\">&";
        made[0].figures[0].title = bad.to_owned();
        made[0].figures[0].notes.push(bad.to_owned());
        made[0].figures[0].tables[0].title = bad.to_owned();
        made[0].figures[0].tables[0].rows[0][0] = Value::Text(bad.to_owned());
        made[0].figures[0].answers[0].why = bad.to_owned();
        assert!(!html(&made, bad).contains("<b onclick"));
    }

    #[test]
    fn tags_match() {
        let (_, page) = page();
        let mut open = Vec::new();
        for piece in page.split('<').skip(1) {
            let (tag, _) = piece.split_once('>').unwrap();
            let name = tag.split([' ', '\n']).next().unwrap();
            match tag.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed), "{tag}"),
                None if tag.ends_with('/') || ["!DOCTYPE", "meta"].contains(&name) => {}
                None => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
}
