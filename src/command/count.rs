//! `rowdex count`: how many rows an index has, of those that meet a condition, and of each class.

use clap::Args;
use rowdex::dataset::Class;
use rowdex::{Dataset, Index};
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg, RootArg, ThreadsArg};
use crate::command::condition::ConditionArgs;
use crate::command::failure::Failure;
use crate::command::output;

#[derive(Debug, Args)]
#[command(after_help = r#"Examples:
  rowdex count train.rdx --where "lang = 'en'"
  rowdex count small.rdx --by class"#)]
pub(crate) struct CountArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    condition: ConditionArgs,

    /// Count the rows of each class: rows with equal values in this column are one. It has integers, booleans,
    /// dates, strings or binary.
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,

    #[command(flatten)]
    root: RootArg,

    #[command(flatten)]
    threads: ThreadsArg,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &CountArgs) -> Result<(), Failure> {
    args.condition.check()?;
    let index = args.index.open()?;
    let mut rows = index.len();
    let mut counts = None;
    if args.by.is_some() || !args.condition.is_empty() {
        let dataset = dataset(args, index)?;
        let kept = args.condition.rows(&dataset, None)?;
        rows = kept.as_ref().map_or(rows, |kept| kept.len());
        if let Some(name) = &args.by {
            let column = dataset.column(name);
            counts = Some(match &kept {
                Some(kept) => column.of(kept).counts()?,
                None => column.counts()?,
            });
        }
    } else if args.root.root.is_some() || args.threads.threads.is_some() {
        return Err(Failure::usage(
            "--root and --threads are for --by and --where; give one of them, or leave them out",
        ));
    }
    if args.json.json {
        let class = |class: &Option<Class>| match class {
            Some(Class::Bool(bool)) => json!(bool),
            Some(Class::Int(int)) => i64::try_from(*int).map_or_else(|_| json!(int.to_string()), |int| json!(int)),
            Some(other) => json!(other.to_string()),
            None => Value::Null,
        };
        let counts = counts.map(|counts| {
            Value::Array(counts.iter().map(|(of, count)| json!({"value": class(of), "rows": count})).collect())
        });
        let mut told = json!({"rows": rows});
        if let Some(counts) = counts {
            told["counts"] = counts;
        }
        return output::print_json(&told);
    }
    let Some(counts) = counts else { return output::print(&format!("{}\n", output::counted(rows, "row"))) };
    let mut table = vec![["rows", "share", "value"].map(str::to_owned).to_vec()];
    for (class, count) in counts {
        let share = format!("{:.2}%", 100.0 * count as f64 / rows.max(1) as f64);
        let class = class.map_or_else(|| "null".to_owned(), |class| class.to_string());
        table.push(vec![count.to_string(), share, class.escape_debug().to_string()]);
    }
    output::print(&output::columns(&table))
}

fn dataset(args: &CountArgs, index: Index) -> Result<Dataset, Failure> {
    let mut builder = Dataset::builder(index).with_cache_bytes(0);
    if let Some(root) = &args.root.root {
        builder = builder.with_root(root);
    }
    if let Some(threads) = args.threads.threads {
        builder = builder.with_threads(usize::from(threads));
    }
    Ok(builder.open()?)
}
