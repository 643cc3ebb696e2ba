//! What an index records of the index that it is a view of.

use rowdex::Index;
use serde_json::Value;

/// What became of the base of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    /// It is as it was.
    Same,
    /// It is another one, so that the view is no view of it any more.
    Changed(String),
    /// It is not there, which a view does not need it to be.
    NotThere,
}

/// Compares the base of a view with what is recorded; nothing for an index that is no view.
pub(crate) fn base(index: &Index) -> Option<Base> {
    let build: Value = serde_json::from_str(index.build_info()).ok()?;
    let recorded = build["view"]["base_fingerprint"].as_str()?;
    let Some(path) = index.recorded_base() else { return Some(Base::NotThere) };
    let shown = path.display();
    Some(match Index::open(&path) {
        Ok(base) if format!("{:016x}", base.fingerprint()) == recorded => Base::Same,
        Ok(_) => Base::Changed(format!(
            "{shown} is not the index that the view was made of: it has other rows now (select anew)"
        )),
        Err(error) if error.kind() == rowdex::ErrorKind::NotFound => Base::NotThere,
        Err(error) => Base::Changed(format!("the index that the view was made of cannot be read: {}", error)),
    })
}
