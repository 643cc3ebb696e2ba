//! Which positions are mine.
