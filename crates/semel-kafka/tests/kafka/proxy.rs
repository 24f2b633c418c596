//! A proxy in front of a broker that can fall silent. Clients stay behind it: where the broker's answers name its own
//! address, they name the proxy's.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    pub(crate) address: String,
    /// Of the connections that pass bytes; what is dropped here falls silent and stays open.
    lines: Arc<Mutex<watch::Sender<()>>>,
}

impl Proxy {
    /// In front of `127.0.0.1:PORT`.
    pub(crate) async fn to(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let lines = Arc::new(Mutex::new(watch::Sender::new(())));
        let (from, to) = (named(broker), named(&address));
        let (broker, known) = (broker.to_owned(), lines.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&broker).await.unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let line = known.lock().unwrap().subscribe();
                let names = (from.clone(), to.clone());
                tokio::spawn(carry(from_server, to_client, Some(names), line.clone()));
                tokio::spawn(carry(from_client, to_server, None, line));
            }
        });
        Self { address, lines }
    }

    /// All connections stay open, and nothing passes any more. New ones work.
    pub(crate) fn freeze(&self) {
        *self.lines.lock().unwrap() = watch::Sender::new(());
    }
}

/// An address as a broker writes it into its answers: the host's text, and the port behind it.
fn named(address: &str) -> Vec<u8> {
    let (host, port) = address.rsplit_once(':').unwrap();
    let port: i32 = port.parse().unwrap();
    [host.as_bytes(), &port.to_be_bytes()].concat()
}

/// Carries frames, a length and so many bytes, until its line is cut off.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    names: Option<(Vec<u8>, Vec<u8>)>,
    mut line: watch::Receiver<()>,
) {
    let pass = async {
        loop {
            let mut frame = vec![0; from.read_u32().await? as usize];
            from.read_exact(&mut frame).await?;
            if let Some((own, ours)) = &names {
                rename(&mut frame, own, ours);
            }
            to.write_u32(u32::try_from(frame.len()).unwrap()).await?;
            to.write_all(&frame).await?;
        }
    };
    let ended: Result<std::io::Result<()>, _> = tokio::select! {
        ended = pass => Ok(ended),
        cut = line.changed() => Err(cut),
    };
    if ended.is_err() {
        // Half-open: neither end hears of it.
        std::future::pending::<()>().await;
    }
}

fn rename(frame: &mut [u8], own: &[u8], ours: &[u8]) {
    for at in 0..frame.len().saturating_sub(own.len() - 1) {
        let place = &mut frame[at..at + own.len()];
        if place == own {
            place.copy_from_slice(ours);
        }
    }
}
