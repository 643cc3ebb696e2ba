//! Generates `include/rowdex.h` from `src/capi`, as `cbindgen.toml` beside this file says.
//!
//! `tools/header.sh` runs it; with `--check` it compares what is there instead.

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..");
    let mut builder = cbindgen::Builder::new().with_config(cbindgen::Config::from_file(here.join("cbindgen.toml"))?);
    // In the order in which the header is best read, and without mod.rs, whose order would come first.
    for file in [
        "version",
        "error",
        "any",
        "progress",
        "index/mod",
        "dataset",
        "operands",
        "run",
        "id_set",
        "columns",
        "orders",
        "packs",
        "sampler",
        "arrow",
        "batch",
        "sequences",
        "loader/options",
        "loader/mod",
        "loader/standing",
        "prefetched",
        "stop",
    ] {
        builder = builder.with_src(root.join("src/capi").join(file).with_extension("rs"));
    }
    let mut bindings = builder.generate()?;
    // A mod.rs brings what its modules declare, which are on the list for their place in the header.
    let mut declared = HashSet::new();
    bindings.functions.retain(|function| declared.insert(function.path.name().to_owned()));
    let mut header = Vec::new();
    bindings.write(&mut header);
    let path = root.join("include/rowdex.h");
    if !env::args().any(|argument| argument == "--check") {
        fs::create_dir_all(root.join("include"))?;
        fs::write(path, header)?;
    } else if fs::read(path)? != header {
        return Err("include/rowdex.h is not what src/capi says: run tools/header.sh".into());
    }
    Ok(())
}
