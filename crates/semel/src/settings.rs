//! What a consumer can be told. Every field has an effect that a test sees.

use std::sync::Arc;

use semel_core::Pointer;

/// How messages are spread over lanes. Messages of one lane stay in source order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LaneRule {
    /// By the broker's message key where there is one, else by partition.
    #[default]
    Auto,
    /// By partition.
    Partition,
    /// By the value at this place of the JSON payload; by partition where it is absent.
    Pointer(Pointer),
    /// By the handler's own choice ([`crate::handler::Bound::lane`]); by partition where it has none.
    Handler,
}

/// Chance, by the door: uniform in `0..=u32::MAX`. A simulated run gives a seeded one.
pub type Dice = Arc<dyn Fn() -> u32 + Send + Sync>;

/// Settings of a consumer. The defaults suit most.
#[derive(Clone)]
pub struct Settings {
    /// How many lanes run at once, each with a connection of its own. 1 to 64.
    pub lanes: u16,
    /// How messages are spread over them.
    pub lane: LaneRule,
    /// The most messages of one unit of work.
    pub batch_count_max: usize,
    /// The most bytes ([`semel_core::Message::size`]) of one unit, unless a single message is larger.
    pub batch_bytes_max: usize,
    /// The most bytes of messages from sources held in memory by this consumer, over all lanes. Parked messages that
    /// are brought back take as much again at most.
    pub memory_bytes_max: usize,
    /// The largest payload; a larger one is `dead(too_large)`.
    pub message_bytes_max: usize,
    /// How often a handler may ask to be run again, or the process end while it runs, before its message is
    /// `dead(poison)`.
    pub attempts_max: u32,
    /// After this a unit's task is aborted together with its connection, and its outcome is unknown.
    /// Longer than every time-out of the server, so that the server speaks first.
    pub unit_deadline_ms: u64,
    /// How often parked messages whose time has come are looked for.
    pub sweep_interval_ms: u64,
    /// Return when every source is drained and nothing parked can be released.
    pub until_idle: bool,
    /// Accept that the key rules are not those the consumer's keys were made with.
    pub accept_key_change: bool,
    /// Chance for jitter and for the instance's id.
    pub dice: Dice,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lanes: 1,
            lane: LaneRule::Auto,
            batch_count_max: 1_000,
            batch_bytes_max: 8 << 20,
            memory_bytes_max: 64 << 20,
            message_bytes_max: 1 << 20,
            attempts_max: 10,
            unit_deadline_ms: 90_000,
            sweep_interval_ms: 1_000,
            until_idle: false,
            accept_key_change: false,
            dice: Arc::new(rand::random),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("lanes", &self.lanes)
            .field("lane", &self.lane)
            .field("batch_count_max", &self.batch_count_max)
            .field("batch_bytes_max", &self.batch_bytes_max)
            .field("memory_bytes_max", &self.memory_bytes_max)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("attempts_max", &self.attempts_max)
            .field("unit_deadline_ms", &self.unit_deadline_ms)
            .field("sweep_interval_ms", &self.sweep_interval_ms)
            .field("until_idle", &self.until_idle)
            .finish_non_exhaustive()
    }
}
