//! Forks of the process, which wait for what a child must not find half done.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use rowdex_base::fork;

unsafe extern "C" {
    fn pthread_atfork(before: extern "C" fn(), after: extern "C" fn(), after_in_child: extern "C" fn()) -> c_int;
}

extern "C" fn before() {
    fork::before();
}

extern "C" fn after() {
    fork::after();
}

extern "C" fn after_in_child() {
    fork::after_in_child();
}

/// Sees to it that every fork from now on waits, before there is anything to wait for. Threads that come here at once
/// may each do so, which is as good.
pub(super) fn ready() {
    static READY: AtomicBool = AtomicBool::new(false);
    if READY.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: the functions only count and wait, and stay as long as the library does. There is no memory for more
    // handlers if it fails, and forks then do not wait.
    unsafe { pthread_atfork(before, after, after_in_child) };
    fork::make_statics();
    READY.store(true, Ordering::Release);
}
