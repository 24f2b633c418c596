//! Parts for the tests of single pieces of the engine: a consumer of simulated ones, whose handler binds nothing.

use std::sync::Arc;

use semel_core::fingerprint::{FieldSums, Fingerprint};
use semel_core::law::Reject;
use semel_core::ledger::{ConsumerId, SourceId};
use semel_core::{Answer, Fault, Message, Unit, codes};
use semel_storm::{SimLedger, SimSource};

use crate::handler::{Bound, Fresh, Handler, Said};
use crate::observe::Observer;
use crate::settings::Settings;
use crate::shared::{Feed, Flow, Shared};

/// Binds nothing, and applies what was bound for it.
pub(crate) struct Mute;

impl<U: Unit> Handler<U> for Mute {
    type Work = ();

    fn name(&self) -> &str {
        "mute"
    }

    fn rules(&self) -> Fingerprint {
        Fingerprint::of_bytes(b"")
    }

    fn bind(&self, _: &Message) -> Result<Bound<()>, Reject> {
        Err(Reject {
            code: codes::NO_KEY,
            detail: String::new(),
            field: None,
        })
    }

    fn differing(&self, _: &Message, (): &(), _: &FieldSums) -> Option<String> {
        None
    }

    async fn handle(&self, _: &mut U, fresh: &[Fresh<'_, ()>]) -> Result<Vec<Said>, Fault> {
        let applied = |_| Said::Answer(Answer::applied());
        Ok(fresh.iter().map(applied).collect())
    }
}

pub(crate) fn shared(
    source: &SimSource,
    observer: Arc<dyn Observer>,
) -> Arc<Shared<SimLedger, Mute>> {
    let feed = Feed {
        name: "sim".to_owned(),
        id: SourceId(1),
        source: Arc::new(source.clone()),
        flow: Flow::Open.into(),
    };
    Arc::new(Shared::new(
        "toy".to_owned(),
        (Arc::new(SimLedger::new(1)), Arc::new(Mute)),
        Settings::default(),
        ConsumerId(1),
        vec![feed],
        observer,
    ))
}
