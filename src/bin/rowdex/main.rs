//! The rowdex command.

fn main() {}
