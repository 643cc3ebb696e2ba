//! Footers and row groups: from the bytes of a file to Arrow record batches.
//!
//! [`read_end`] and [`FileMetadata`] say what a file holds. [`GroupDecoder`] turns one row group, or some rows of it,
//! into chunks with the columns of a [`Projection`](rowdex_projection::Projection), whatever the file itself looks
//! like, and hands them to a [`RowSink`]. [`finish`] brings such rows to the types that are served.
//!
//! Files are not trusted. Whatever a file claims of itself is checked before anything is allocated for it, a panic of
//! the decoder becomes an error (its message still goes to the panic hook), and every error names the file, the row
//! group and, where it can be known, the column.

mod adapt;
mod annotated;
mod chunks;
mod columns;
mod cost;
mod decode;
mod direct;
mod errors;
mod footer;
mod guard;
mod pages;
mod row_lengths;
mod run;
mod seam;
#[cfg(feature = "filter")]
mod statistics;
#[cfg(test)]
mod tests;
mod thrift;
mod types;
mod unpack;

pub use adapt::{finish, widens};
pub use annotated::Annotated;
pub use columns::{views_pay, views_save_nothing};
pub use cost::ReadCost;
pub use decode::{GroupDecoder, MAX_DECODED_BYTES, RowsToDecode};
pub use footer::{FileMetadata, Footer, read_end};
pub use row_lengths::{Counted, counted};
pub use rowdex_rows::RowSink;
pub use seam::{FileBytes, WholeBatch, length_of};
#[cfg(feature = "filter")]
pub use statistics::{Home, Known, Statistics};
