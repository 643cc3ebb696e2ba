//! The statistics that the built-in orders are tested with, scaled so that chance gives a standard normal number. The
//! bench `quality` runs them over many seeds.

mod battery;
mod statistics;

use self::statistics::{correlation, independence, uniformity, window};
