//! Where a gateway is in its life, told to everybody who has to do something about it.

use tokio::sync::watch;

/// Where a gateway is in its life. Only ever goes forward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It accepts and answers.
    #[default]
    Serving,
    /// It accepts nothing new; what is under way goes on.
    Draining,
    /// What is still under way says so to its client, and ends.
    Ending,
    /// Everything is settled and written.
    Ended,
}

/// The one who says where a gateway is.
#[derive(Debug, Clone)]
pub(crate) struct Phases(watch::Sender<Phase>);

impl Phases {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }

    /// Goes on to `phase`; never back.
    pub(crate) fn reach(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let forward = phase > *now;
            if forward {
                *now = phase;
            }
            forward
        });
    }

    pub(crate) fn stage(&self) -> Stage {
        Stage(self.0.subscribe())
    }
}

/// Somebody's view of where a gateway is.
#[derive(Debug, Clone)]
pub(crate) struct Stage(watch::Receiver<Phase>);

impl Stage {
    pub(crate) fn now(&self) -> Phase {
        *self.0.borrow()
    }

    /// Ends when `phase` is over, at once if it is over already.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub(crate) async fn left(&mut self, phase: Phase) {
        // Whoever could still say something is gone: it is over.
        let _ = self.0.wait_for(|now| *now > phase).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_phase_is_never_gone_back_to() {
        let phases = Phases::new();
        let mut stage = phases.stage();
        phases.reach(Phase::Ending);
        phases.reach(Phase::Draining);
        assert_eq!(stage.now(), Phase::Ending);
        stage.left(Phase::Serving).await;
        stage.left(Phase::Draining).await;
    }

    #[tokio::test]
    async fn whoever_waits_is_let_go_when_nobody_can_speak_any_more() {
        let phases = Phases::new();
        let mut stage = phases.stage();
        drop(phases);
        stage.left(Phase::Serving).await;
    }
}
