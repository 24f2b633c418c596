//! One connection to the broker. The client runs it in a thread of its own that may wait for ever on a
//! silent peer (TRAPS T48); so the socket is opened here, a second handle of it is kept, and shutting
//! that down ends the thread whatever it waits for.

use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lapin::tcp::{AMQPUriTcpExt, OwnedIdentity, OwnedTLSConfig, TLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties};

use crate::fault::Refusal;
use crate::options::{Broker, Tls, place};

/// How long a polite goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// A connection, and the power to end it.
pub(crate) struct Link {
    connection: Option<Connection>,
    breaker: Breaker,
    vhost: String,
}

impl Link {
    /// Connects within the broker's time-out.
    pub(crate) async fn open(broker: &Broker) -> Result<Self, Refusal> {
        let uri = broker.uri()?;
        let tls = certificates(&broker.tls)?;
        let limit = Duration::from_millis(broker.connect_timeout_ms);
        let deadline = tokio::time::Instant::now() + limit;
        let plain = AMQPUri {
            scheme: AMQPScheme::AMQP,
            ..uri.clone()
        };
        let runtime = lapin::runtime::default_runtime().map_err(Refusal::ended)?;
        let late = |what: &str| Refusal::Unreachable {
            place: place(&uri),
            why: format!("{what} within {} ms", broker.connect_timeout_ms),
        };
        let unreachable = |error: std::io::Error| Refusal::Unreachable {
            place: place(&uri),
            why: error.to_string(),
        };
        let socket = plain.connect_with_config_async(TLSConfig::default(), &runtime);
        let socket = tokio::time::timeout_at(deadline, socket)
            .await
            .map_err(|_| late("no answer"))?
            .map_err(unreachable)?;
        let breaker = match &socket {
            AsyncTcpStream::Plain(socket) => Breaker::of(socket.get_ref()).map_err(unreachable)?,
            _ => {
                return Err(Refusal::ended(
                    "the client gave another stream than it was asked for",
                ));
            }
        };
        let socket = match uri.scheme {
            AMQPScheme::AMQP => socket,
            AMQPScheme::AMQPS => {
                let handshake = socket.into_tls(&uri.authority.host, tls.as_ref());
                let tls = tokio::time::timeout_at(deadline, handshake)
                    .await
                    .map_err(|_| late("no TLS handshake"))?;
                tls.map_err(|error| Refusal::Tls {
                    place: place(&uri),
                    why: error.to_string(),
                })?
            }
        };
        // A second try of the client would find nothing here: reconnecting is ours (TRAPS T43).
        let once = Mutex::new(Some(socket));
        let given = async move |_, _| {
            let socket = once.lock().unwrap_or_else(PoisonError::into_inner).take();
            socket.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::ConnectionAborted).into())
        };
        let properties = ConnectionProperties::default()
            .with_connection_name(broker.connection_name.as_str().into());
        let handshake = Connection::connector(uri.clone(), runtime, given, properties);
        match tokio::time::timeout_at(deadline, handshake).await {
            Ok(Ok(connection)) => Ok(Self {
                connection: Some(connection),
                breaker,
                vhost: uri.vhost,
            }),
            Ok(Err(error)) => Err(Refusal::of_handshake(&uri, &error)),
            Err(_) => {
                breaker.cut();
                Err(late(&format!(
                    "no AMQP handshake for vhost `{}` (does it exist?)",
                    uri.vhost
                )))
            }
        }
    }

    /// A new channel.
    pub(crate) async fn channel(&self) -> Result<Channel, Refusal> {
        let connection = self
            .connection
            .as_ref()
            .ok_or_else(|| Refusal::ended("it was closed here"))?;
        connection.create_channel().await.map_err(Refusal::ended)
    }

    pub(crate) fn vhost(&self) -> &str {
        &self.vhost
    }

    /// Whether the broker lets publishers wait: it is short of memory or disk.
    pub(crate) fn is_blocked(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.status().blocked())
    }

    /// Says goodbye, so that the broker has taken in all that was sent before; then ends it.
    pub(crate) async fn close(mut self) {
        if let Some(connection) = self.connection.take() {
            let goodbye = connection.close(200, "OK".into());
            if tokio::time::timeout(GOODBYE, goodbye).await.is_err() {
                tracing::debug!("the broker did not say goodbye in time");
            }
        }
    }

    /// Ends it at once, without a word: the peer is taken for dead.
    pub(crate) fn cut(self) {
        self.breaker.cut();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.breaker.cut();
    }
}

/// A second handle of a connection's socket.
struct Breaker(TcpStream);

impl Breaker {
    #[cfg(unix)]
    fn of(socket: &tokio::net::TcpStream) -> std::io::Result<Self> {
        use std::os::fd::AsFd;
        Ok(Self(socket.as_fd().try_clone_to_owned()?.into()))
    }

    #[cfg(windows)]
    fn of(socket: &tokio::net::TcpStream) -> std::io::Result<Self> {
        use std::os::windows::io::AsSocket;
        Ok(Self(socket.as_socket().try_clone_to_owned()?.into()))
    }

    fn cut(&self) {
        // An error says that it is cut already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Reads the certificates, so that a missing file is told with its name.
fn certificates(tls: &Tls) -> Result<OwnedTLSConfig, Refusal> {
    let read = |option: &'static str, path: &std::path::Path| {
        std::fs::read(path).map_err(|error| {
            Refusal::options(
                option,
                &format!("cannot be read from {}: {error}", path.display()),
            )
        })
    };
    let cert_chain = match &tls.ca_file {
        None => None,
        Some(path) => {
            let text = String::from_utf8(read("tls.ca_file", path)?);
            Some(text.map_err(|_| Refusal::options("tls.ca_file", "is a PEM file"))?)
        }
    };
    let identity = match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => Some(OwnedIdentity::PKCS8 {
            pem: read("tls.cert_file", cert)?,
            key: read("tls.key_file", key)?,
        }),
        _ => None,
    };
    Ok(OwnedTLSConfig {
        identity,
        cert_chain,
    })
}
