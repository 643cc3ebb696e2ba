//! `rowdex report`: a page about indexes, for people who rather look.

mod charts;
mod columns;
mod costs;
mod facts;
mod fills;
mod oddities;
mod page;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use rowdex::order::OrderSpec;
use rowdex::{Dataset, Error, ErrorKind, Index};
use serde_json::json;

use self::columns::Columns;
use self::costs::Costs;
use self::facts::Facts;
use self::fills::Fill;
use self::oddities::Oddity;
use crate::command::args::JsonArg;
use crate::command::failure::Failure;
use crate::command::lengths;
use crate::command::output::{self, Sink};
use crate::command::sampling::BatchArg;
use crate::command::size::Memory;

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex report train.rdx -o report.html
  rowdex report web.rdx code.rdx -o report.html --memory 64GiB --world-size 64 --batch-size 32
  rowdex report train.rdx -o report.html --columns image,label --json

The page needs no network and no other file. It is made from the index alone; no data is read. Of
what columns take, a sample of the files' footers tells where there are very many.")]
pub(crate) struct ReportArgs {
    /// Indexes that `rowdex build` wrote, files or URLs: a part of the page for each.
    #[arg(required = true, value_name = "INDEX")]
    indexes: Vec<PathBuf>,

    /// The page to write.
    #[arg(short, long, value_name = "FILE.html")]
    output: PathBuf,

    /// Replace the page if there is one.
    #[arg(long)]
    force: bool,

    /// What a loader may hold: bytes, a size like 4GiB, or a share like 25% of the chosen columns when decoded.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Memory,

    /// Tell the shards of so many ranks; may be given several times.
    #[arg(
        long,
        value_name = "R",
        default_values_t = [1, 8, 64],
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    world_size: Vec<u32>,

    #[command(flatten)]
    batch: BatchArg,

    /// The order of the rows, as `epoch` takes it.
    #[arg(long, value_name = "ORDER", default_value = "global")]
    order: OrderSpec,

    /// Costs are those of these columns; `a.b` is field b of column a.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    columns: Option<Vec<String>>,

    #[command(flatten)]
    json: JsonArg,
}

/// Lengths that an index has: what `rowdex lengths` tells, and how full packs of them would be.
struct Lengths {
    told: serde_json::Value,
    fills: Vec<Fill>,
}

/// All that the page tells of one index.
struct Part {
    name: String,
    facts: Facts,
    columns: Columns,
    costs: Costs,
    lengths: Vec<Lengths>,
    odd: Vec<Oddity>,
}

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if args.output.extension().is_none_or(|extension| !extension.eq_ignore_ascii_case("html")) {
        let message = format!("a report is HTML, which {} does not say it is", args.output.display());
        let error = Error::new(ErrorKind::InvalidArgument, message).with_hint("name it with .html at the end");
        return Err(error.into());
    }
    let mut sink = Sink::file(&args.output, args.force)?;
    let parts = args.indexes.iter().map(|path| Part::of(args, path)).collect::<Result<Vec<_>, _>>()?;
    if let Err(error) = sink.write_all(page::page(&parts)?.as_bytes()) {
        return Err(sink.failure(error));
    }
    sink.commit()?;
    if args.json.json {
        return output::print_json(&json!({"indexes": parts.iter().map(Part::to_json).collect::<Vec<_>>()}));
    }
    for part in &parts {
        let found = part.odd.iter().map(|one| format!("  {}: {}\n", one.what, one.remedy));
        output::print(&format!("{}: {}\n{}", part.name, part.facts.summary(), found.collect::<String>()))?;
    }
    Ok(())
}

impl Part {
    fn of(args: &ReportArgs, path: &PathBuf) -> Result<Self, Failure> {
        let index = Index::open(path)?;
        let mut builder = Dataset::builder(index.clone()).with_cache_bytes(0);
        if let Some(columns) = &args.columns {
            builder = builder.with_columns(columns);
        }
        let dataset = builder.open()?;
        let facts = Facts::of(&index, &dataset);
        let columns = Columns::of(&index)?;
        let costs = Costs::of(args, &dataset)?;
        let lengths = |told: serde_json::Value| {
            let fills = Fill::of(&dataset, told["name"].as_str().unwrap_or_default(), args.order)?;
            Ok(Lengths { told, fills })
        };
        let lengths = lengths::as_json(&index)?.into_iter().map(lengths).collect::<Result<_, Failure>>()?;
        let odd = oddities::of(&facts, &columns, &costs);
        Ok(Self { name: path.display().to_string(), facts, columns, costs, lengths, odd })
    }

    fn to_json(&self) -> serde_json::Value {
        json!({
            "index": self.name,
            "facts": self.facts.to_json(),
            "columns": self.columns.to_json(),
            "costs": self.costs.to_json(),
            "lengths": self.lengths.iter().map(Lengths::to_json).collect::<Vec<_>>(),
            "odd": self.odd.iter().map(|one| json!({"what": one.what, "remedy": one.remedy})).collect::<Vec<_>>(),
        })
    }
}

impl Lengths {
    fn to_json(&self) -> serde_json::Value {
        let mut told = self.told.clone();
        told["packs"] = self.fills.iter().map(Fill::to_json).collect();
        told
    }
}
