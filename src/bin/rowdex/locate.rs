//! `rowdex locate`: where rows are. The names are those that `rowdex build --rows` reads.

use clap::Args;
use rowdex::Index;
use serde_json::{Value, json};

use crate::args::{IndexArg, JsonArg, RowsArg};
use crate::failure::Failure;
use crate::output;

pub(crate) struct Place<'a> {
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
    let places = args.rows.ids(&index)?.filter_map(|row_id| locate(&index, row_id));
    if args.json.json {
        let places = places.map(
            |place| json!({"row_id": place.row_id, "file": place.file, "row_group": place.row_group, "row": place.row}),
        );
        return output::print_json(&Value::Array(places.collect()));
    }
    let mut table = vec![["row_id", "row_group", "row", "file"].map(str::to_owned).to_vec()];
    table.extend(places.map(|place| {
        let numbers = [place.row_id.to_string(), place.row_group.to_string(), place.row.to_string()];
        numbers.into_iter().chain([place.file.to_owned()]).collect()
    }));
    output::print(&output::columns(&table))
}

pub(crate) fn locate(index: &Index, row_id: u64) -> Option<Place<'_>> {
    let location = index.locate(row_id)?;
    let file = index.file(location.file)?.path();
    Some(Place { row_id, file, row_group: location.ordinal, row: location.row })
}
