//! The staged engine on the simulated ledger.

mod adding;
mod bisecting;
mod colliding;
mod recalling;
mod rig;
mod staging;
mod toy;
