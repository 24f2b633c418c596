//! The simulated parts keep the laws that they are to test others by.

mod ledger {
    semel_storm::ledger_laws!(semel_storm::suite::SimRig);
}

mod source {
    semel_storm::source_laws!(semel_storm::suite::SimSourceRig);
}

mod sink {
    semel_storm::sink_laws!(semel_storm::suite::SimSourceRig);
}
