//! The library for C, and for every language that can call C: `include/rowdex.h` is generated from these files.
//!
//! Nothing is decided here: arguments are converted, the library is called, and what it returns is converted back. The
//! conventions that callers are bound to, on which every `SAFETY` comment of this module relies, open the header
//! (`cbindgen.toml`).
//!
//! Handles come in as `Option<&T>` and go out as boxes, so that the compiler sees to NULL and ownership; strings,
//! arrays and structs that may be shorter than ours come in as raw pointers and are read in `handle` alone.

#![allow(unsafe_code)]
#![allow(non_camel_case_types, reason = "types are named as they are in C")]
#![allow(unreachable_pub, reason = "what C sees must be `pub` for cbindgen")]

mod any;
mod arrow;
mod batch;
mod columns;
#[cfg(rowdex_command)]
mod command;
mod dataset;
mod error;
mod fork;
mod handle;
mod id_set;
mod index;
mod kind;
mod loader;
mod operands;
mod orders;
mod packs;
mod prefetched;
mod progress;
mod run;
mod sampler;
mod sequences;
mod stop;
#[cfg(test)]
mod tests;
mod version;
