//! A TCP proxy that understands just enough of the PostgreSQL protocol to count requests, and hurts the
//! connection at a chosen one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What is done to a connection at its chosen request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hurt {
    /// The request does not arrive; both sockets close.
    CutRequest,
    /// Half of it arrives; both sockets close.
    HalveRequest,
    /// It arrives; both sockets close at once.
    CutAfterRequest,
    /// It arrives and is answered; the answer is swallowed, then both sockets close.
    SwallowReply,
    /// The request does not arrive, and nobody is told: both sockets stay open and silent.
    HoldRequest,
    /// It arrives and is answered, but nothing reaches the client any more; both sockets stay open.
    HoldReply,
}

pub(crate) const HURTS: [Hurt; 6] = [
    Hurt::CutRequest,
    Hurt::HalveRequest,
    Hurt::CutAfterRequest,
    Hurt::SwallowReply,
    Hurt::HoldRequest,
    Hurt::HoldReply,
];

impl Hurt {
    /// Whether the client is left waiting for ever.
    pub(crate) const fn is_silent(self) -> bool {
        matches!(self, Self::HoldRequest | Self::HoldReply)
    }
}

struct Plan {
    /// Requests still to pass before the chosen one, plus one; 0 is disarmed.
    countdown: AtomicU64,
    hurt: std::sync::Mutex<Hurt>,
    done: AtomicBool,
    reached: Notify,
    /// Ends connections that were left open.
    released: Notify,
    /// Where new connections go.
    server: std::sync::Mutex<String>,
}

/// A proxy before a server.
pub(crate) struct Proxy {
    plan: Arc<Plan>,
    /// The URL of the database behind the proxy.
    pub(crate) url: String,
}

impl Proxy {
    /// Listens on a free port and forwards to the server of `url`.
    pub(crate) async fn before(url: &str) -> Self {
        let (head, rest) = url.split_once('@').expect("a URL with a user");
        let (server, database) = rest.split_once('/').expect("a URL with a database");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let plan = Arc::new(Plan {
            countdown: AtomicU64::new(0),
            hurt: std::sync::Mutex::new(Hurt::CutRequest),
            done: AtomicBool::new(false),
            reached: Notify::new(),
            released: Notify::new(),
            server: std::sync::Mutex::new(server.to_owned()),
        });
        tokio::spawn(accept(listener, Arc::clone(&plan)));
        Self {
            plan,
            url: format!("{head}@127.0.0.1:{port}/{database}?sslmode=disable"),
        }
    }

    /// From now on new connections go to the server of this URL.
    pub(crate) fn turn(&self, url: &str) {
        let (_, rest) = url.split_once('@').expect("a URL with a user");
        let (server, _) = rest.split_once('/').expect("a URL with a database");
        server.clone_into(&mut self.plan.server.lock().unwrap());
    }

    /// Hurts the connection at the `request`-th request from now, counted from 1.
    pub(crate) fn arm(&self, request: u64, hurt: Hurt) {
        *self.plan.hurt.lock().unwrap() = hurt;
        self.plan.done.store(false, Ordering::SeqCst);
        self.plan.countdown.store(request, Ordering::SeqCst);
    }

    /// Whether the chosen request came.
    pub(crate) fn struck(&self) -> bool {
        self.plan.done.load(Ordering::SeqCst)
    }

    /// Waits until the chosen request came and the hurt is done.
    pub(crate) async fn reached(&self) {
        while !self.struck() {
            self.plan.reached.notified().await;
        }
    }

    /// Disarms, and closes what was left open.
    pub(crate) fn rest(&self) {
        self.plan.countdown.store(0, Ordering::SeqCst);
        self.plan.released.notify_waiters();
    }
}

async fn accept(listener: TcpListener, plan: Arc<Plan>) {
    while let Ok((client, _)) = listener.accept().await {
        let server = plan.server.lock().unwrap().clone();
        let server = TcpStream::connect(&server)
            .await
            .expect("the server answers");
        client.set_nodelay(true).expect("a socket");
        server.set_nodelay(true).expect("a socket");
        tokio::spawn(forward(client, server, Arc::clone(&plan)));
    }
}

async fn forward(client: TcpStream, server: TcpStream, plan: Arc<Plan>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let muted = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(Notify::new());
    let up = requests(
        from_client,
        to_server,
        plan,
        Arc::clone(&muted),
        Arc::clone(&answered),
    );
    let down = replies(from_server, to_client, muted, answered);
    // The first direction that ends takes the other one with it, and both sockets close.
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

/// Forwards what the client sends, request by request: a request ends with Sync or is a simple Query.
async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    plan: Arc<Plan>,
    muted: Arc<AtomicBool>,
    answered: Arc<Notify>,
) {
    let mut request = Vec::new();
    let mut started = false;
    loop {
        let Some((kind, bytes)) = message(&mut client, started).await else {
            return;
        };
        request.extend_from_slice(&bytes);
        if started && !matches!(kind, b'S' | b'Q' | b'X' | b'p') {
            continue;
        }
        started = true;
        let whole = std::mem::take(&mut request);
        let chosen = matches!(kind, b'S' | b'Q') && {
            let armed = plan
                .countdown
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
            armed == Ok(1)
        };
        if !chosen {
            if server.write_all(&whole).await.is_err() {
                return;
            }
            continue;
        }
        let hurt = *plan.hurt.lock().unwrap();
        muted.store(true, Ordering::SeqCst);
        let sent = match hurt {
            Hurt::CutRequest | Hurt::HoldRequest => 0,
            Hurt::HalveRequest => whole.len() / 2,
            Hurt::CutAfterRequest | Hurt::SwallowReply | Hurt::HoldReply => whole.len(),
        };
        let _ = server.write_all(&whole[..sent]).await;
        if matches!(hurt, Hurt::SwallowReply | Hurt::HoldReply) {
            answered.notified().await;
        }
        // Listens before it tells, or a quick caller's word would be missed.
        let released = plan.released.notified();
        plan.done.store(true, Ordering::SeqCst);
        plan.reached.notify_one();
        if hurt.is_silent() {
            released.await;
        }
        return;
    }
}

/// Forwards what the server sends, unless muted, and tells when a muted answer is whole.
async fn replies(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    muted: Arc<AtomicBool>,
    answered: Arc<Notify>,
) {
    loop {
        let Some((kind, bytes)) = message(&mut server, true).await else {
            if muted.load(Ordering::SeqCst) {
                // The server closed; a held connection stays open towards the client.
                answered.notify_one();
                std::future::pending::<()>().await;
            }
            return;
        };
        if muted.load(Ordering::SeqCst) {
            if kind == b'Z' {
                answered.notify_one();
            }
        } else if client.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// One protocol message. The very first one of a client has no kind.
async fn message(from: &mut OwnedReadHalf, has_kind: bool) -> Option<(u8, Vec<u8>)> {
    let mut head = vec![0; if has_kind { 5 } else { 4 }];
    from.read_exact(&mut head).await.ok()?;
    let kind = if has_kind { head[0] } else { 0 };
    let length = u32::from_be_bytes(head[head.len() - 4..].try_into().expect("4 bytes"));
    let at = head.len();
    head.resize(
        at + usize::try_from(length).expect("a small message") - 4,
        0,
    );
    from.read_exact(&mut head[at..]).await.ok()?;
    Some((kind, head))
}
