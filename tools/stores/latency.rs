//! A slow proxy before a local server, for measuring: `store_latency PORT UPSTREAM_PORT MILLISECONDS`. Runs until it is killed.

#![allow(dead_code, reason = "it makes no faults here")]

#[path = "../../tests/it/stores/proxy.rs"]
mod proxy;

use std::net::TcpListener;
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let numbers: Vec<u16> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [port, upstream, latency] = numbers[..] else {
        eprintln!("store_latency PORT UPSTREAM_PORT MILLISECONDS");
        std::process::exit(2);
    };
    let weather = proxy::Weather { latency: Duration::from_millis(latency.into()), ..Default::default() };
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let _proxy = proxy::Proxy::serve(listener, ([127, 0, 0, 1], upstream).into(), weather)?;
    loop {
        std::thread::park();
    }
}
