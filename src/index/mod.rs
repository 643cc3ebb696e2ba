//! Where a row is.
