//! The page: HTML with its style in it.

use indicatif::{HumanBytes, HumanCount};

use super::IndexPage;
use super::costs::{BATCH_SIZE, Point};
use super::facts::{Facts, Spread};
use crate::command::output::counted;

/// The most columns of data that the page lists; the others are told together.
const MOST_COLUMNS: usize = 40;

const STYLE: &str = include_str!("style.css");

pub(super) fn page(told: &IndexPage) -> String {
    let head = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
                <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
                <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n";
    let name = escape(&told.name);
    let section = section(told);
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "{head}<title>rowdex: {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{section}\
         <footer>rowdex {version}, from the index alone</footer>\n</body>\n</html>\n"
    )
}

fn section(part: &IndexPage) -> String {
    let facts = &part.facts;
    let mut html = format!("<h1>{}</h1>\n<p>{}.", escape(&part.name), escape(&facts.summary()));
    if let Some(chosen) = facts.chosen() {
        html += &format!(" {chosen}");
    }
    html += "</p>\n<h2>What is odd, and what to do</h2>\n";
    if part.odd.is_empty() {
        html += "<p>Nothing.</p>\n";
    } else {
        let items =
            part.odd.iter().map(|one| format!("<dt>{}</dt><dd>{}</dd>\n", escape(&one.what), escape(&one.remedy)));
        html += &format!("<dl>\n{}</dl>\n", items.collect::<String>());
    }
    html += &sizes(facts);
    html += &columns(part);
    html += &memory(part);
    if !part.lengths.is_empty() {
        html += &format!("<h2>Lengths of rows</h2>\n<pre>{}</pre>\n", escape(&part.lengths));
    }
    html
}

fn sizes(facts: &Facts) -> String {
    let bytes: fn(u64) -> String = |bytes| HumanBytes(bytes).to_string();
    let count: fn(u64) -> String = |count| HumanCount(count).to_string();
    let row = |name: &str, spread: &Spread, say: fn(u64) -> String| {
        vec![name.to_owned(), say(spread.least), say(spread.median), say(spread.most)]
    };
    let rows = [
        row("rows of a file", &facts.file_rows, count),
        row("bytes of a file, stored", &facts.file_bytes, bytes),
        row("rows of a row group", &facts.group_rows, count),
        row("bytes of a row group, decoded", &facts.group_bytes, bytes),
    ];
    "<h2>Files and row groups</h2>\n".to_owned() + &table(&["", "least", "median", "most"], &rows)
}

fn columns(part: &IndexPage) -> String {
    let found = &part.columns;
    if found.columns.is_empty() {
        return String::new();
    }
    let all = found.stored().max(1);
    let share = |bytes: u64| format!("{:.1} %", bytes as f64 * 100.0 / all as f64);
    let row = |column: &super::columns::ColumnReport| {
        let codecs: Vec<&str> = column.codecs.iter().map(String::as_str).collect();
        vec![
            column.name.clone(),
            column.kind.clone(),
            HumanBytes(column.stored).to_string(),
            share(column.stored),
            HumanBytes(column.unpacked).to_string(),
            codecs.join(", "),
            if column.has_dictionary { "yes" } else { "no" }.to_owned(),
        ]
    };
    let mut rows: Vec<Vec<String>> = found.columns.iter().take(MOST_COLUMNS).map(row).collect();
    let others = found.columns.get(MOST_COLUMNS..).unwrap_or_default();
    if !others.is_empty() {
        let stored = others.iter().map(|column| column.stored).sum();
        let name = format!("{} others", others.len());
        rows.push(vec![name, String::new(), HumanBytes(stored).to_string(), share(stored)]);
    }
    let mut html = "<h2>Columns, by their bytes in the files</h2>\n".to_owned();
    if found.sampled_files < part.facts.files {
        let sampled = HumanCount(found.sampled_files);
        let files = counted(part.facts.files, "file");
        html += &format!("<p>By {sampled} of {files}, evenly spread.</p>\n");
    }
    html + &table(&["column", "type", "stored", "share", "unpacked", "codec", "dictionary"], &rows)
}

fn memory(part: &IndexPage) -> String {
    let costs = &part.costs;
    let html = "<h2>Memory and passes</h2>\n<p>A pass decodes every row group once. ".to_owned();
    let Some(here) = &costs.here else { return html + "There is none to tell of.</p>\n" };
    let mut html = html
        + &format!(
            "Order global, batches of {BATCH_SIZE}, a loader of one rank; with the memory that was asked about ({}) an \
             epoch takes {:.2} passes.",
            HumanBytes(here.memory),
            here.passes
        );
    if here.told.is_none() {
        html += " Of so many rows the passes are what the law of a global order says; <code>rowdex estimate</code> \
                 walks the order.";
    }
    let mut points: Vec<&Point> = costs.curve.iter().chain([here]).collect();
    points.sort_by_key(|point| point.memory);
    points.dedup_by_key(|point| point.memory);
    let row = |point: &&Point| {
        let or_dash = |said: Option<String>| said.unwrap_or_else(|| "-".to_owned());
        let told = point.told.as_ref();
        vec![
            HumanBytes(point.memory).to_string(),
            format!("{:.2}", point.passes),
            or_dash(told.map(|told| HumanBytes(told.bytes_read).to_string())),
            or_dash(told.map(|told| HumanBytes(told.peak_bytes).to_string())),
        ]
    };
    let rows: Vec<Vec<String>> = points.iter().map(row).collect();
    html + "</p>\n" + &table(&["memory", "passes", "bytes read", "held at most"], &rows)
}

fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let heads: String = head.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    let cells = |row: &Vec<String>| row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect::<String>();
    let rows: String = rows.iter().map(|row| format!("<tr>{}</tr>\n", cells(row))).collect();
    format!("<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n")
}

/// Names come from files, and may be anything.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c => escaped.push(c),
        }
    }
    escaped
}
