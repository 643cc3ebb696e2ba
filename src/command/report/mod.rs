//! The page of `rowdex info --html`, for people who rather look.

mod columns;
mod odd;

use std::path::Path;

use indicatif::{HumanBytes, HumanCount};
use rowdex::order::{OrderSpec, Recipe, RecipeBase};
use rowdex::{Dataset, DistributedSampler, Index, Loader, Shard};
use serde_json::{Value, json};

use self::columns::ColumnReports;
use crate::command::args::decodable;
use crate::command::estimate::{SHARES, later_epochs};
use crate::command::failure::Failure;
use crate::command::output::{self, Sink};

/// What a job is asked about: a global order, of one rank.
const BATCH_SIZE: usize = 256;

/// Row groups up to which loaders are asked what they would do.
const MOST_GROUPS: u32 = 100_000;

/// What a loader holds if nobody says how much.
const MEMORY: u64 = 1 << 30;

const STYLE: &str = include_str!("style.css");

/// Writes the page of what `given` names, with these figures of its index, and says what is odd.
pub(crate) fn write(given: &Path, index: &Index, figures: Value, path: &Path) -> Result<(), Failure> {
    let sink = Sink::called(path, "html")?;
    let name = given.display().to_string();
    let dataset = decodable(index)?;
    let columns = ColumnReports::of(index)?;
    let passes = passes(&dataset)?;
    let here = passes.first().and_then(|here| here["passes"].as_f64());
    let odd: Vec<Value> = odd::of(index, &columns, MEMORY, here)
        .into_iter()
        .map(|(what, remedy)| json!({"what": what, "what to do": remedy}))
        .collect();
    let found = json!({
        "odd": odd,
        "index": figures,
        "sizes": sizes(index),
        "columns by their bytes in the files": columns.told(),
        "memory and passes, in a global order": passes,
    });
    sink.put(&page(&name, &found))?;
    output::tell(false, &json!({"page": path.display().to_string(), "rows": index.len(), "odd": odd}))
}

/// What an epoch takes with [`MEMORY`], and with shares of all that is decoded.
fn passes(dataset: &Dataset) -> Result<Vec<Value>, Failure> {
    if dataset.is_empty() || dataset.index().num_row_groups() > MOST_GROUPS {
        return Ok(Vec::new());
    }
    let order = Recipe::of(RecipeBase::Named(OrderSpec::Global)).orders(&dataset.index().layout())?;
    let sampler = DistributedSampler::new(order, Shard::new(0, 1)?, BATCH_SIZE)?;
    let loader = Loader::builder(dataset, sampler);
    let decoded = u128::from(dataset.decoded_bytes());
    let shares = SHARES.iter().map(|percent| (decoded * u128::from(*percent) / 100) as u64);
    let at = |memory| Ok(later_epochs(memory, &loader.clone().memory(memory).estimate()?));
    std::iter::once(MEMORY).chain(shares).map(at).collect()
}

/// How files and row groups are spread.
fn sizes(index: &Index) -> Value {
    let row = |of: &str, numbers: Vec<u64>| {
        let shown =
            |number| if of.contains("bytes") { HumanBytes(number).to_string() } else { HumanCount(number).to_string() };
        let [least, median, most] = spread(numbers).map(shown);
        json!({"of": of, "least": least, "median": median, "most": most})
    };
    json!([
        row("rows of a file", index.files().map(|file| file.rows()).collect()),
        row("bytes of a file, stored", index.files().map(|file| file.size()).collect()),
        row("rows of a row group", index.row_groups().map(|group| group.rows()).collect()),
        row("bytes of a row group, decoded", index.row_groups().map(|group| group.decoded_bytes()).collect()),
    ])
}

/// The least, the median and the most of some numbers.
fn spread(mut numbers: Vec<u64>) -> [u64; 3] {
    numbers.sort_unstable();
    [0, numbers.len() / 2, numbers.len().saturating_sub(1)].map(|at| numbers.get(at).copied().unwrap_or_default())
}

fn page(name: &str, found: &Value) -> String {
    let name = escape(name);
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>rowdex: {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{name}</h1>\n{}\
         <footer>rowdex {version}, from the index alone</footer>\n</body>\n</html>\n",
        html(found, 2)
    )
}

/// What [`output::text`] tells, as HTML below headings of a level.
fn html(found: &Value, level: usize) -> String {
    let Value::Object(fields) = found else {
        let mut rows = output::table(found).into_iter();
        let head = rows.next().unwrap_or_default();
        return table(&format!("<thead>{}</thead>\n", row("th", &head)), rows);
    };
    let lines = output::lines(fields);
    let lines = if lines.is_empty() { String::new() } else { table("", lines.into_iter().map(Vec::from)) };
    let part =
        |(name, part): (String, &Value)| format!("<h{level}>{}</h{level}>\n{}", escape(&name), html(part, level + 1));
    lines + &output::parts(fields).map(part).collect::<String>()
}

fn table(head: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: String = rows.map(|cells| row("td", &cells)).collect();
    format!("<div class=\"wide\"><table>\n{head}<tbody>\n{rows}</tbody>\n</table></div>\n")
}

fn row(tag: &str, cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
    format!("<tr>{cells}</tr>\n")
}

/// Names come from files, and may be anything.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
