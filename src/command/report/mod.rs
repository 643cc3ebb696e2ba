//! The page of `rowdex info --html`, for people who rather look.

mod columns;
mod costs;
mod facts;
mod oddities;
mod page;

use std::path::Path;

use rowdex::{Dataset, Error, ErrorKind, Index};

use self::columns::ColumnReports;
use self::costs::Costs;
use self::facts::Facts;
use self::oddities::Oddity;
use crate::command::failure::Failure;
use crate::command::lengths;
use crate::command::output::{self, Sink};
use crate::command::size::Memory;

/// All that the page tells of an index.
struct IndexPage {
    name: String,
    facts: Facts,
    columns: ColumnReports,
    costs: Costs,
    lengths: String,
    odd: Vec<Oddity>,
}

/// Writes the page, and says what is odd.
pub(crate) fn write(index: &Index, path: &Path, memory: Memory, json: bool) -> Result<(), Failure> {
    if path.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("html")) {
        let message = format!("a page is HTML, which {} does not say it is", path.display());
        let error = Error::new(ErrorKind::InvalidArgument, message).with_hint("name it with .html at the end");
        return Err(error.into());
    }
    if json {
        return Err(Failure::usage("a page is no JSON; leave out --json or --html"));
    }
    let sink = Sink::file(path)?;
    let dataset = Dataset::builder(index.clone()).with_cache_bytes(0).open()?;
    let facts = Facts::of(index, &dataset);
    let columns = ColumnReports::of(index)?;
    let costs = Costs::of(memory, &dataset)?;
    let odd = oddities::of(&facts, &columns, &costs);
    let name = index.path().unwrap_or(Path::new("an index")).display().to_string();
    let told = IndexPage { name, facts, columns, costs, lengths: lengths::as_text(index)?, odd };
    sink.put(&page::page(&told))?;
    let found: String = told.odd.iter().map(|one| format!("  {}: {}\n", one.what, one.remedy)).collect();
    output::print(&format!("{}: {}\n{found}", told.name, told.facts.summary()))
}
