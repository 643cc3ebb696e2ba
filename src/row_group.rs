//! Decoding of row groups.
