//! Signals that ask the program to end in good order.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::command::failure::Failure;

/// Whether Ctrl-C, SIGTERM or SIGQUIT has come. When another one comes, the program ends at once.
pub(crate) fn asked_to_end() -> Result<Arc<AtomicBool>, Failure> {
    use signal_hook::consts::TERM_SIGNALS;
    use signal_hook::flag;

    let asked = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        // In this order, so that the first one ends nothing.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))
            .and_then(|_| flag::register(signal, Arc::clone(&asked)))
            .map_err(|error| Failure::new(format!("cannot wait for signals: {error}")))?;
    }
    Ok(asked)
}
