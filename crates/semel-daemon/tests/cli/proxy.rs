//! A TCP proxy that can cut its connections, or keep them and say nothing any more.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// What it does with bytes and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes them on.
    Open,
    /// Ends every connection, and each new one at once.
    Cut,
    /// Swallows every byte, on old and new connections.
    Silent,
}

#[derive(Debug)]
struct Shared {
    mode: AtomicU8,
    streams: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::SeqCst) == mode as u8
    }
}

/// The proxy. Its threads end with their connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// In front of `host:port`.
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            mode: AtomicU8::new(Mode::Open as u8),
            streams: Mutex::default(),
        });
        let (server, accepting) = (server.to_owned(), shared.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                accept(&accepting, client, &server);
            }
        });
        Self { address, shared }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
        // What was swallowed is missing: a connection is not used again.
        let mut streams = self.shared.streams.lock().unwrap();
        if mode != Mode::Silent {
            for stream in streams.drain(..) {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }
}

fn accept(shared: &Arc<Shared>, client: TcpStream, server: &str) {
    if shared.is(Mode::Cut) {
        return;
    }
    let Ok(upstream) = TcpStream::connect(server) else {
        return;
    };
    let mut streams = shared.streams.lock().unwrap();
    for (from, to) in [(&client, &upstream), (&upstream, &client)] {
        streams.push(from.try_clone().unwrap());
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let shared = shared.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                if !shared.is(Mode::Silent) && to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
