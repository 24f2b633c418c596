//! `[http]`: the port for health checks and metrics.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Deserialize;

/// A port of `semel run` that answers `GET /healthz`, `/readyz` and `/metrics`. Without this table there is none. It
/// has no login and no TLS, and can change nothing.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    /// The address to listen at, as `IP:PORT`.
    #[serde(default = "listen")]
    #[schemars(length(min = 1))]
    pub(crate) listen: String,
    /// May `listen` be an address that other machines can reach? The names of consumers and sources, and words about what
    /// is away, are then told to whoever asks.
    #[serde(default)]
    pub(crate) allow_remote: bool,
}

impl Http {
    /// The address.
    ///
    /// # Errors
    ///
    /// A sentence: it is none, or reaches further than it is allowed to.
    pub(crate) fn address(&self) -> Result<SocketAddr, String> {
        let listen = &self.listen;
        let address: SocketAddr = listen.parse().map_err(|_| {
            format!("`{listen}` is no address; write an IP and a port, such as `127.0.0.1:9180`")
        })?;
        if !address.ip().to_canonical().is_loopback() && !self.allow_remote {
            return Err(format!(
                "other machines can reach `{listen}`, and the port has no login; listen at `127.0.0.1:{}`, or say \
                 `allow_remote = true`",
                address.port()
            ));
        }
        Ok(address)
    }
}

fn listen() -> String {
    "127.0.0.1:9180".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(listen: &str, allow_remote: bool) -> Result<SocketAddr, String> {
        let listen = listen.to_owned();
        Http {
            listen,
            allow_remote,
        }
        .address()
    }

    #[test]
    fn t85_an_address_that_other_machines_reach_must_be_allowed() {
        for own in [
            "127.0.0.1:9180",
            "[::1]:0",
            "127.8.0.1:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(address(own, false).is_ok(), "{own}");
        }
        for open in ["0.0.0.0:9180", "[::]:9180", "192.168.1.5:80"] {
            let refused = address(open, false).unwrap_err();
            assert!(refused.contains("allow_remote = true"), "{refused}");
            assert!(address(open, true).is_ok(), "{open}");
        }
        for none in ["localhost:80", "127.0.0.1", "9180", ""] {
            assert!(address(none, true).is_err(), "{none}");
        }
    }
}
