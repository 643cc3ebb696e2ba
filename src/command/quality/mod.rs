//! `rowdex quality`: orders side by side, in numbers and in a picture.

mod labels;
mod plot;

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use indicatif::HumanCount;
use rowdex::order::quality::{Composition, Quality, measure};
use rowdex::order::{EpochOrder, OrderSpec, Recipe};
use serde_json::{Value, json};

use self::labels::Labels;
use crate::command::args::{IndexArg, JsonArg};
use crate::command::failure::Failure;
use crate::command::output::{self, Sink};

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  rowdex quality train.rdx --order sequential --order global --batch-size 2048
  rowdex quality train.rdx --label class --plot quality.svg

What is measured, and what chance makes of it:
  moved      mean distance of a row from its place in the index, as a share of all rows; 1/3
  drift      correlation of the mean row id of a batch with that of the next; 0
  groups     row groups in a batch
  entropy    of the labels in a batch, in bits
  chi2/df    chi-square of the labels in a batch per degree of freedom; 1, and more where batches are one-sided
  label corr correlation of the labels of a batch with those of the next; 0
A column (chance) is what batches drawn at random without replacement have.")]
pub(crate) struct QualityArgs {
    #[command(flatten)]
    index: IndexArg,

    /// An order to measure; may be given several times.
    #[arg(
        long = "order",
        value_name = "ORDER",
        default_values = ["sequential", "global"],
        value_parser = OrderSpec::from_str
    )]
    orders: Vec<OrderSpec>,

    /// The seed of the shuffle.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// The epoch to measure.
    #[arg(long, value_name = "E", default_value_t = 0)]
    epoch: u64,

    /// Consecutive positions per batch: for what a step of all ranks trains on, rows per rank times ranks.
    #[arg(long, value_name = "B", default_value_t = 256)]
    batch_size: u64,

    /// Measure what batches are made of by the values of this column, which must have no nulls: integers, booleans,
    /// dates, strings or binary.
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,

    /// With --label: find the data below this directory or URL, instead of where it was when the index was built.
    #[arg(long, value_name = "DIR", requires = "label")]
    root: Option<PathBuf>,

    /// Draw where rows go and what batches are made of, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,

    /// Replace the picture if there is one.
    #[arg(long, requires = "plot")]
    force: bool,

    #[command(flatten)]
    json: JsonArg,
}

/// One order, and what was found of it.
struct Measured {
    name: String,
    order: Arc<dyn EpochOrder>,
    quality: Quality,
}

pub(crate) fn run(args: &QualityArgs) -> Result<(), Failure> {
    let picture = args.plot.as_ref().map(|path| Sink::picture(path, args.force)).transpose()?;
    let index = args.index.open()?;
    let layout = index.layout();
    let groups: Vec<u64> = index.row_groups().map(|group| group.rows()).collect();
    let labels = match &args.label {
        Some(column) => Some(Labels::read(&index, column, args.root.as_deref())?),
        None => None,
    };
    let codes = labels.as_ref().map(|labels| labels.codes.as_slice());
    let measure = |spec: &OrderSpec| -> Result<Measured, Failure> {
        let order = Recipe::new(*spec).with_seed(args.seed).orders(&layout)?.epoch(args.epoch)?;
        let quality = measure(&*order, args.batch_size, &groups, codes)?;
        Ok(Measured { name: spec.to_string(), order, quality })
    };
    let measured = args.orders.iter().map(measure).collect::<Result<Vec<_>, _>>()?;
    if let Some(sink) = picture {
        let drawn = plot::draw(&measured, index.len(), labels.as_ref(), args.label.as_deref())?;
        sink.put(&drawn)?;
    }
    let of =
        format!("{} in {}", output::counted(index.len(), "row"), output::counted(groups.len() as u64, "row group"));
    if args.json.json {
        output::print_json(&to_json(args, index.len(), &measured))
    } else {
        output::print(&to_text(&of, &measured))
    }
}

fn to_json(args: &QualityArgs, rows: u64, measured: &[Measured]) -> Value {
    let composition = |found: &Composition| {
        json!({
            "classes": found.classes,
            "distinct": found.distinct,
            "expected_distinct": found.expected_distinct,
            "entropy": found.entropy,
            "expected_entropy": found.expected_entropy,
            "whole_entropy": found.whole_entropy,
            "chi_square": found.chi_square,
            "correlation": found.correlation,
        })
    };
    let order = |measured: &Measured| {
        let quality = &measured.quality;
        json!({
            "order": measured.name,
            "batch_size": quality.batch_size,
            "batches": quality.batches,
            "displacement": quality.displacement,
            "row_correlation": quality.row_correlation,
            "groups": composition(&quality.groups),
            "labels": quality.labels.as_ref().map(composition),
        })
    };
    json!({
        "rows": rows,
        "seed": args.seed,
        "epoch": args.epoch,
        "label": args.label,
        "orders": measured.iter().map(order).collect::<Vec<_>>(),
    })
}

fn to_text(of: &str, measured: &[Measured]) -> String {
    let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let labelled = measured.iter().any(|measured| measured.quality.labels.is_some());
    let mut names = vec!["order", "batches", "moved", "drift", "groups", "(chance)"];
    if labelled {
        names.extend(["entropy", "(chance)", "(whole)", "chi2/df", "label corr"]);
    }
    let mut table = vec![names.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for Measured { name, quality, .. } in measured {
        let mut row = vec![
            name.clone(),
            quality.batches.to_string(),
            number(Some(quality.displacement), 3),
            number(quality.row_correlation, 3),
            number(Some(quality.groups.distinct), 2),
            number(Some(quality.groups.expected_distinct), 2),
        ];
        if let Some(labels) = &quality.labels {
            row.extend([
                number(Some(labels.entropy), 3),
                number(Some(labels.expected_entropy), 3),
                number(Some(labels.whole_entropy), 3),
                number(labels.chi_square, 2),
                number(labels.correlation, 3),
            ]);
        }
        table.push(row);
    }
    let batch = measured.first().map_or(0, |measured| measured.quality.batch_size);
    format!("{of}, batches of {}\n\n{}", HumanCount(batch), output::columns(&table))
}
