//! `rowdex locate`: where rows are. The names are those that `rowdex build --rows` reads.

use clap::Args;
use rowdex::Index;
use serde_json::{Value, json};

use crate::command::args::{IndexArg, JsonArg, RowsArg};
use crate::command::failure::Failure;
use crate::command::output;

pub(crate) struct Located<'a> {
    row_id: u64,
    pub(crate) file: &'a str,
    pub(crate) row_group: u32,
    pub(crate) row: u64,
}

#[derive(Debug, Args)]
pub(crate) struct LocateArgs {
    #[command(flatten)]
    index: IndexArg,

    #[command(flatten)]
    rows: RowsArg,

    #[command(flatten)]
    json: JsonArg,
}

pub(crate) fn run(args: &LocateArgs) -> Result<(), Failure> {
    let index = args.index.open()?;
    let located = args.rows.ids(&index)?.filter_map(|row_id| locate(&index, row_id));
    if args.json.json {
        let located = located
            .map(|row| json!({"row_id": row.row_id, "file": row.file, "row_group": row.row_group, "row": row.row}));
        return output::print_json(&Value::Array(located.collect()));
    }
    let mut table = vec![["row_id", "row_group", "row", "file"].map(str::to_owned).to_vec()];
    table.extend(located.map(|row| {
        let numbers = [row.row_id.to_string(), row.row_group.to_string(), row.row.to_string()];
        numbers.into_iter().chain([row.file.to_owned()]).collect()
    }));
    output::print(&output::columns(&table))
}

pub(crate) fn locate(index: &Index, row_id: u64) -> Option<Located<'_>> {
    let location = index.locate(row_id)?;
    let file = index.file(location.file)?.path();
    Some(Located { row_id, file, row_group: location.ordinal, row: location.row })
}
