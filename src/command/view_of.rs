//! What an index records of the index that it is a view of.

use rowdex::Index;
use serde_json::Value;

/// Compares the base of a view with what is recorded, which is why the view is none any more, if it is; nothing for an
/// index that is no view. A view does not need its base to be there.
pub(crate) fn base(index: &Index) -> Option<Result<&'static str, String>> {
    let build: Value = serde_json::from_str(index.build_info()).ok()?;
    let recorded = build["view"]["base_fingerprint"].as_str()?;
    let Some(path) = index.recorded_base() else { return Some(Ok("not there")) };
    let shown = path.display();
    Some(match Index::open(&path) {
        Ok(base) if format!("{:016x}", base.fingerprint()) == recorded => Ok("same"),
        Ok(_) => {
            Err(format!("{shown} is not the index that the view was made of: it has other rows now (select again)"))
        }
        Err(error) if error.kind() == rowdex::ErrorKind::NotFound => Ok("not there"),
        Err(error) => Err(format!("the index that the view was made of cannot be read: {error}")),
    })
}
