//! The hash that tells whether two runs see the same orders.

use xxhash_rust::xxh3::xxh3_64;

/// Begins every fingerprinted message, so that it can not be a message of another purpose.
const TAG: &[u8] = b"rowdex orders v1";

/// xxh3-64 over the tag, the name, and everything that the orders depend on.
///
/// Every field has a stated length, so two different lists of fields never give the same message. Frozen: saved states
/// carry fingerprints.
pub(crate) fn fingerprint(name: &str, len: u64, parameters: &[u64]) -> u64 {
    let mut message = Vec::with_capacity(TAG.len() + name.len() + 8 * (4 + parameters.len()));
    message.extend_from_slice(TAG);
    message.extend_from_slice(&(name.len() as u64).to_le_bytes());
    message.extend_from_slice(name.as_bytes());
    // The 1 is the version of the order of this name.
    for field in [1, len, parameters.len() as u64].iter().chain(parameters) {
        message.extend_from_slice(&field.to_le_bytes());
    }
    xxh3_64(&message)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_field_counts() {
        let distinct: HashSet<u64> = [
            fingerprint("global", 10, &[0]),
            fingerprint("globak", 10, &[0]),
            fingerprint("global", 11, &[0]),
            fingerprint("global", 10, &[1]),
            fingerprint("global", 10, &[]),
            fingerprint("global", 10, &[0, 0]),
        ]
        .into();
        assert_eq!(distinct.len(), 6);
    }

    /// Changing this refuses every state that people have saved.
    #[test]
    fn the_fingerprint_of_version_1_is_frozen() {
        assert_eq!(fingerprint("global", 1_000_000, &[42]), 0xfea8_faa3_53f2_6a03);
    }
}
