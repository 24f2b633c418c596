//! tmp
mod outcomes;
mod signals;
mod summary;
mod watch;
