//! The staged engine on the simulated ledger.

mod bisecting;
mod colliding;
mod recalling;
mod rig;
mod staging;
mod toy;
