//! Reads of byte ranges.
