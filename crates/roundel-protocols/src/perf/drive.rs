//! How an end waits: the one loop around everything that is measured.

use super::end::End;
use super::error::Result;
use super::link::Link;
use super::test::Polling;
use std::time::Duration;

/// How many steps are taken between two looks at whether to go on.
const CHECK_STEPS: u32 = 256;
/// Longest sleep on the completion channel between two such looks.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The work is done.
    Done,
    /// Something happened: the next step may find more.
    Progress,
    /// There is nothing to do until a completion comes.
    Idle,
}

/// Something to do on a queue pair, in steps that never block.
pub(super) trait Work {
    /// Takes the completions that are there, then posts what there is room for.
    fn step(&mut self) -> Result<Step>;

    /// Called now and then, and after each sleep.
    fn look_around(&mut self, link: &mut Link) -> Result<()> {
        link.check()
    }

    /// The end that it works with.
    fn end(&mut self) -> &mut End;
}

/// Does the work.
pub(super) fn drive(work: &mut impl Work, polling: Polling, link: &mut Link) -> Result<()> {
    let mut steps = 0;
    loop {
        match (work.step()?, polling) {
            (Step::Done, _) => return Ok(()),
            (Step::Idle, Polling::Event) => {
                work.end().sleep(SLEEP_MAX)?;
                work.look_around(link)?;
            }
            _ => {}
        }
        steps += 1;
        if steps == CHECK_STEPS {
            steps = 0;
            work.look_around(link)?;
        }
    }
}
