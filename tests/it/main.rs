//! The behaviours of rowdex, tested through its public API.
