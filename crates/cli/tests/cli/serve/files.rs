//! A gateway that may have few files open.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use futures_util::future::join_all;
use keywheel_sim::Limits;
use rustix::process::Signal;

use super::{anywhere, load::Client, process::Gateway};
use crate::common::{Place, Sim};

/// `serve`, with what `ulimit` makes of the limit of open files.
fn serve(place: &Place, ulimit: &str) -> Command {
    let own = place.command(&["serve"]);
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("ulimit {ulimit} && exec \"$0\" \"$@\"")])
        .arg(own.get_program())
        .args(own.get_args())
        .current_dir(own.get_current_dir().unwrap())
        .env_clear()
        .envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null());
    command
}

/// Those that it took before it had a file left for the provider's connection were told that the provider is down.
#[test]
fn far_more_clients_than_files_are_all_served_one_after_the_other() {
    let sim = Sim::slow(2, Duration::from_millis(20));
    let place = anywhere(Place::new()).with_sim(&sim);
    // Each takes some files.
    place.write("keywheel.toml", "[serve]\nthreads = 2\n");
    let gateway = Gateway::of(serve(&place, "-n 90"));
    let clients: Vec<_> = (0..200).map(|_| Client::new(&gateway, "anything")).collect();
    let answers = sim.block_on(join_all(clients.iter().map(async |client| {
        // Over one connection, which it would keep.
        [client.ask("Say one").await, client.ask("Say two").await]
    })));
    for answer in answers.iter().flatten() {
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let ended = gateway.end(Signal::TERM).ends(0).complains("the limit of open files allows");
    let warned = ended.stderr.lines().filter(|line| line.contains("newcomers wait"));
    assert!((1..=3).contains(&warned.count()), "{}", ended.stderr);
}

#[test]
fn the_limit_of_open_files_is_raised_to_what_the_system_allows() {
    let sim = Sim::new(1, Limits::new());
    let place = anywhere(Place::new()).with_sim(&sim).with("RUST_LOG", "keywheel=debug");
    let gateway = Gateway::of(serve(&place, "-S -n 90"));
    let said = gateway.until_it_says("the limit of open files was raised");
    assert!(said.contains("was=90"), "{said}");
    gateway.end(Signal::TERM).ends(0);
}
