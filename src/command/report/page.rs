//! The page: HTML with its style and its charts in it.

use std::fmt::Write;

use indicatif::{HumanBytes, HumanCount};

use super::costs::{Point, Shards};
use super::facts::{Facts, Spread};
use super::fills::Fill;
use super::{Lengths, Part, charts};
use crate::command::advice;
use crate::command::failure::Failure;
use crate::command::output::{counted, tick};

/// The most columns of data that the page lists; the others are told together.
const MOST_COLUMNS: usize = 40;

const STYLE: &str = include_str!("style.css");

pub(super) fn page(parts: &[Part]) -> Result<String, Failure> {
    let names: Vec<String> = parts.iter().map(|part| escape(&part.name)).collect();
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>rowdex report: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        names.join(", ")
    );
    for part in parts {
        html += &section(part)?;
    }
    let _ =
        write!(html, "<footer>rowdex {}, from the index alone</footer>\n</body>\n</html>\n", env!("CARGO_PKG_VERSION"));
    Ok(html)
}

fn section(part: &Part) -> Result<String, Failure> {
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
    html += &sizes(facts)?;
    html += &columns(part);
    html += &memory(part)?;
    html += &shards(part);
    for lengths in &part.lengths {
        html += &length(lengths)?;
    }
    Ok(html)
}

fn sizes(facts: &Facts) -> Result<String, Failure> {
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
    let short: fn(u64) -> String = |number| tick(number as f64);
    let mut html = "<h2>Files and row groups</h2>\n".to_owned();
    html += &table(&["", "least", "median", "most"], &rows);
    html += "<div class=\"charts\">\n";
    html += &figure("Row groups by their rows", &charts::bars(&facts.group_rows.bars, "rows, from", short)?);
    html += &figure("Row groups by their decoded bytes", &charts::bars(&facts.group_bytes.bars, "bytes, from", short)?);
    html += &figure("Files by their rows", &charts::bars(&facts.file_rows.bars, "rows, from", short)?);
    html += &figure("Files by their bytes", &charts::bars(&facts.file_bytes.bars, "bytes, from", short)?);
    Ok(html + "</div>\n")
}

fn columns(part: &Part) -> String {
    let found = &part.columns;
    if found.columns.is_empty() {
        return String::new();
    }
    let all = found.stored().max(1);
    let share = |bytes: u64| format!("{:.1} %", bytes as f64 * 100.0 / all as f64);
    let row = |column: &super::columns::Column| {
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
        let (sampled, files) = (HumanCount(found.sampled_files), counted(part.facts.files, "file"));
        html += &format!("<p>By {sampled} of {files}, evenly spread.</p>\n");
    }
    html + &table(&["column", "type", "stored", "share", "unpacked", "codec", "dictionary"], &rows)
}

fn memory(part: &Part) -> Result<String, Failure> {
    let costs = &part.costs;
    let order = escape(&costs.order);
    let mut html = format!("<h2>Memory and passes</h2>\n<p>A pass decodes every row group once. Order {order}");
    let Some(here) = &costs.here else {
        return Ok(html + ": not told for so many rows. <code>rowdex predict</code> does it.</p>\n");
    };
    html += &format!(", batches of {}, a loader of one rank.", costs.batch_size);
    if here.told.is_none() {
        html += " Of so many rows the passes are what the law of a global order says; <code>rowdex predict</code> \
                 walks the order.";
    }
    html += &format!(
        " The triangle is the budget that was asked about ({}: {:.2} passes)",
        HumanBytes(here.memory),
        here.passes
    );
    html += &match &costs.knee {
        Some(knee) => format!(
            "; the circle is the least of these memories with about two passes at most ({}). More saves little.</p>\n",
            HumanBytes(knee.memory)
        ),
        None => ".</p>\n".to_owned(),
    };
    html += "<div class=\"charts\">\n";
    html += &figure("Passes an epoch over memory", &charts::curve(costs, part.facts.decoded_bytes)?);
    html += "</div>\n";
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
            or_dash(told.map(|told| HumanCount(told.requests).to_string())),
            or_dash(told.map(|told| HumanBytes(told.peak_bytes).to_string())),
        ]
    };
    let rows: Vec<Vec<String>> = points.iter().map(row).collect();
    Ok(html + &table(&["memory", "passes", "bytes read", "requests", "held at most"], &rows))
}

fn shards(part: &Part) -> String {
    let costs = &part.costs;
    let mut html = format!(
        "<h2>Shards and steps</h2>\n<p>Batches of {}; every rank takes as many steps, and has a loader with {}.</p>\n",
        costs.batch_size,
        HumanBytes(costs.memory)
    );
    let row = |shards: &Shards| {
        let told = shards.alone.as_ref().and_then(|point| point.told.as_ref());
        vec![
            HumanCount(shards.world_size.into()).to_string(),
            HumanCount(shards.samples).to_string(),
            HumanCount(shards.steps).to_string(),
            HumanCount(shards.pads).to_string(),
            told.map_or("-".to_owned(), |told| format!("{:.2}", told.passes)),
            told.map_or("-".to_owned(), |told| HumanBytes(told.bytes_read).to_string()),
        ]
    };
    let rows: Vec<Vec<String>> = costs.shards.iter().map(row).collect();
    let head = ["ranks", "rows of a rank", "steps", "rows served twice, and marked", "passes of a rank", "it reads"];
    html += &table(&head, &rows);
    for Shards { world_size, advice: all, .. } in costs.shards.iter().filter(|shards| !shards.advice.is_empty()) {
        let ranks = if *world_size == 1 { "one rank".to_owned() } else { format!("each of {world_size} ranks") };
        let items: String = all.iter().map(|one| format!("<li>{}</li>\n", escape(&advice::line(one)))).collect();
        html += &format!("<h3>What would change it for {ranks}, best first</h3>\n<ul>\n{items}</ul>\n");
    }
    html += &format!("<h2>How random the order is</h2>\n<p>Order {}, beside chance.", escape(&costs.order));
    let Some(quality) = &costs.quality else {
        return html + " Not measured for so many rows: <code>rowdex quality</code> does it.</p>\n";
    };
    let drift = quality.row_correlation.map_or("-".to_owned(), |drift| format!("{drift:.3}"));
    let rows = [
        vec![
            "mean distance of a row from its place".to_owned(),
            format!("{:.3}", quality.displacement),
            "0.333".to_owned(),
        ],
        vec!["correlation of a batch with the next".to_owned(), drift, "0".to_owned()],
        vec![
            "row groups in a batch".to_owned(),
            format!("{:.2}", quality.groups.distinct),
            format!("{:.2}", quality.groups.expected_distinct),
        ],
    ];
    html + "</p>\n" + &table(&["", "found", "chance"], &rows)
}

fn length(lengths: &Lengths) -> Result<String, Failure> {
    let Lengths { told: lengths, fills } = lengths;
    let name = lengths["name"].as_str().unwrap_or_default();
    let number = |value: &serde_json::Value| HumanCount(value.as_u64().unwrap_or_default()).to_string();
    let (sum, longest) = (&lengths["sum"], lengths["longest"].as_u64().unwrap_or_default());
    let mean = lengths["mean"].as_f64().unwrap_or_default();
    let mut html = format!("<h2>Lengths by {}</h2>\n<p>{} in all, {mean:.1} a row.", escape(name), number(sum));
    if longest > 0 {
        let full = mean * 100.0 / longest as f64;
        html += &format!(" Sequences that are padded to the longest ({longest}) are {full:.0} % full.");
    }
    html += "</p>\n<div class=\"charts\">\n";
    html += &figure("Rows by their length", &charts::lengths(&lengths["histogram"])?);
    html += "</div>\n";
    if fills.is_empty() {
        return Ok(html);
    }
    let row = |one: &Fill| {
        vec![
            HumanCount(one.capacity).to_string(),
            HumanCount(one.packs).to_string(),
            format!("{:.2} %", one.fill * 100.0),
            HumanCount(one.rows_split).to_string(),
            HumanCount(one.rows_dropped).to_string(),
        ]
    };
    html += "<p>Packed instead, for one rank:</p>\n";
    let rows: Vec<Vec<String>> = fills.iter().map(row).collect();
    Ok(html + &table(&["tokens of a pack", "packs", "full", "rows split", "rows left out"], &rows))
}

fn figure(title: &str, svg: &str) -> String {
    format!("<figure><figcaption>{title}</figcaption>\n{svg}</figure>\n")
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
