//! `keywheel serve` and `keywheel reload`: starting, stopping, being killed, sharing a folder.

mod files;
mod load;
mod process;

use std::{fs, process::Command, time::Duration};

use keywheel_sim::Limits;
use rustix::process::Signal;
use serde_json::Value;

use self::{load::Client, process::Gateway};
use crate::common::{Ended, MODEL, Place, Sim, assert_form};

/// An address of its own, chosen by the operating system.
fn anywhere(place: Place) -> Place {
    place.with("KEYWHEEL_LISTEN", "127.0.0.1:0")
}

const CONFIG: &str = "[allowance]\ntokens_per_day = 1_000_000\n[projects.default]\n";

#[test]
fn keys_alone_are_enough_and_each_client_is_told_where_to_go() {
    let sim = Sim::new(2, Limits::new());
    let place = anywhere(Place::new()).with_sim(&sim);
    let gateway = Gateway::start(&place);
    let answer = sim.block_on(Client::new(&gateway, "anything").ask("Say hello"));
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("Say hello"), "{}", answer.body);
    let base = gateway.base().to_owned();
    let ended = gateway.end(Signal::TERM).ends(0);
    for client in ["google-genai", "@google/genai", "OpenAI", "LiteLLM", "LangChain", "curl"] {
        assert!(ended.stderr.contains(client), "{client}");
    }
    assert!(ended.stderr.contains("2 in use, from the environment"), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("OPENAI_BASE_URL={base}/v1beta/openai/")));
    assert_eq!(ended.stdout, "", "stdout is for data");
    place.run(&["ledger", "audit"]).ends(0);
    let usage = place.run(&["ledger", "usage", "--json"]).ends(0).json("ledger usage");
    assert_eq!(usage["accounts"][0]["account"], "default");
    assert_eq!(usage["accounts"][0]["day"]["calls"], 1);
}

#[test]
fn a_demo_needs_no_key_and_keeps_nothing() {
    let place = anywhere(Place::new());
    let gateway = Gateway::start_with(&place, &["serve", "--demo"]);
    let runtime = Sim::new(0, Limits::new());
    let answer = runtime.block_on(Client::new(&gateway, "anything").ask("Say hello"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let ended = gateway.end(Signal::INT).ends(0).complains("simulator");
    assert!(!ended.stderr.contains("keywheel.toml"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("from the environment"), "its keys are its own");
    assert!(!place.path("ledger.db").exists() && !place.path("pool.json").exists());
}

#[test]
fn a_demo_says_of_a_configuration_that_it_is_not_read() {
    let place = anywhere(Place::new());
    place.write("keywheel.toml", "listn = 1\n");
    let gateway = Gateway::start_with(&place, &["serve", "--demo"]);
    gateway.end(Signal::INT).ends(0).complains("keywheel.toml is not read in a demo");
}

#[test]
fn three_commands_lead_from_nothing_to_a_budgeted_endpoint() {
    let sim = Sim::new(1, Limits::new());
    let place = anywhere(Place::new()).with_sim(&sim);
    place.run(&["init"]).ends(0);
    let add = ["project", "add", "triage", "--tokens-per-day", "20000"];
    let token = Ended::with_token(place.command(&add).output().unwrap()).ends(0).stdout;
    let gateway = Gateway::start(&place);
    let client = Client::new(&gateway, token.trim());
    assert_eq!(sim.block_on(client.ask("Say hello")).status, 200);
    assert_eq!(sim.block_on(Client::new(&gateway, "stranger").ask("Say hello")).status, 401);
    let refused = sim.block_on(client.ask_for("Say hello", 30_000));
    assert_eq!(refused.status, 400, "it can never fit: {}", refused.body);
    gateway.end(Signal::TERM).ends(0);
}

/// Whoever reaches it could spend the quota.
#[test]
fn a_public_address_without_tokens_is_refused_and_with_one_it_serves() {
    let sim = Sim::new(1, Limits::new());
    let place = Place::new().with_sim(&sim);
    for (name, value) in [("KEYWHEEL_LISTEN", "0.0.0.0:0"), ("PORT", "0")] {
        let place = Place::new().with_sim(&sim).with(name, value);
        place.run(&["serve"]).ends(2).complains("could spend your quota");
    }
    // What a free host gives: a port, and what is put there by hand.
    let place = place.with("PORT", "0").with("KEYWHEEL_TOKEN", "a-token-of-my-own-EXAMPLE");
    let gateway = Gateway::start(&place);
    assert_eq!(sim.block_on(Client::new(&gateway, "anything").ask("hi")).status, 401);
    let own = Client::new(&gateway, "a-token-of-my-own-EXAMPLE");
    assert_eq!(sim.block_on(own.ask("hi")).status, 200);
    let ended = gateway.end(Signal::TERM).ends(0);
    assert!(!ended.stderr.contains("a-token-of-my-own"), "it says the token");
    assert!(!ended.stderr.contains("project add"), "there is no file to add one to");
    ended
        .complains("the token that KEYWHEEL_TOKEN says")
        .complains("all of this machine, at port ");
}

#[test]
fn without_keys_with_faults_or_without_the_address_it_does_not_start() {
    let place = anywhere(Place::new());
    place.run(&["serve"]).ends(2).complains("GEMINI_API_KEY").complains("serve --demo");
    assert!(!place.path("ledger.db").exists(), "a ledger that nobody can spend of");
    place.write("keywheel.toml", "listn = 1\nqueue = 2\n");
    let ended = place.run(&["serve"]).ends(2);
    assert!(
        ended.stderr.contains("toml:1:1:") && ended.stderr.contains("toml:2:"),
        "{}",
        ended.stderr
    );
    fs::remove_file(place.path("keywheel.toml")).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = place
        .with("GEMINI_API_KEY_1", "AQ.EXAMPLE-address")
        .with("KEYWHEEL_LISTEN", taken.local_addr().unwrap().to_string());
    place.run(&["serve"]).ends(1).complains("cannot listen");
}

/// What clients are told by a variable holds for a gateway in the same shell, too: each request would come back to it.
#[test]
fn a_gateway_that_is_its_own_upstream_is_refused_and_another_one_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let place = Place::new()
        .with("GEMINI_API_KEY_1", "AQ.EXAMPLE-itself")
        .with("KEYWHEEL_LISTEN", free.to_string())
        .with("GOOGLE_GEMINI_BASE_URL", format!("http://localhost:{}", free.port()));
    let ended = place.run(&["serve"]).ends(2).complains("this gateway itself");
    ended.complains("unset it for the gateway, or set base_url in [upstream]");
    assert!(!place.path("ledger.db").exists(), "nothing was begun");
    let sim = Sim::new(1, Limits::new());
    let place = anywhere(place.with("GOOGLE_GEMINI_BASE_URL", sim.base_url()));
    let ended = Gateway::start(&place).end(Signal::TERM).ends(0);
    ended.complains(&format!("upstream  {}, in place of Google", sim.base_url()));
}

#[test]
fn sigterm_under_load_ends_every_request_well_and_the_books_balance() {
    // Longer than what is left to connections when the drain is over.
    let sim = Sim::slow(2, Duration::from_millis(2_500));
    let place = anywhere(Place::new()).with_sim(&sim);
    place.write("keywheel.toml", CONFIG);
    let gateway = Gateway::start(&place);
    let client = Client::new(&gateway, "anything");
    let (ended, answers) = sim.block_on(async {
        let load = tokio::spawn(client.many(4));
        // All are with the provider.
        sim.until_asked(4).await;
        let ended = tokio::task::spawn_blocking(move || gateway.end(Signal::TERM)).await.unwrap();
        (ended, load.await.unwrap())
    });
    ended.ends(0).complains("stopped");
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    assert_books(&place, 4);
}

/// What collects it has ended, or it lies on a disk that is full.
#[test]
fn a_log_that_takes_nothing_costs_nobody_an_answer() {
    let sim = Sim::new(1, Limits::new());
    let place = anywhere(Place::new()).with_sim(&sim);
    let gateway = Gateway::start(&place);
    let client = Client::new(&gateway, "anything");
    gateway.turn_away(|| assert_eq!(sim.block_on(client.ask("Say hello")).status, 200));
    assert_eq!(sim.block_on(client.ask("Say hello")).status, 200);
    gateway.end(Signal::TERM).ends(0);
}

/// Whoever cannot wait for the last answer asks twice.
#[test]
fn a_second_signal_ends_it_at_once_and_what_was_open_is_charged() {
    let sim = Sim::slow(1, Duration::from_secs(600));
    let place = anywhere(Place::new()).with_sim(&sim);
    place.write("keywheel.toml", &format!("{CONFIG}[ledger]\nsweep_after_seconds = 1\n"));
    let gateway = Gateway::start(&place);
    let asking = sim.spawn(Client::new(&gateway, "anything").many(1));
    sim.block_on(sim.until_asked(1));
    gateway.send(Signal::TERM);
    gateway.until_it_says("stopping");
    gateway.end(Signal::TERM).ends(0).complains("stopped at once");
    assert_eq!(sim.block_on(asking).unwrap()[0].status, 0, "it was never answered");
    sweep_all(&place);
    let rows = assert_books(&place, 1);
    assert!(rows[0]["charged"]["tokens"].as_u64().unwrap() > 0, "it may have been answered");
}

/// Nothing that was acknowledged is lost, and what was not is charged by the sweep.
#[test]
fn sigkill_under_load_and_a_restart_lose_nothing_that_was_answered() {
    let sim = Sim::slow(2, Duration::from_millis(20));
    let place = anywhere(Place::new()).with_sim(&sim);
    place.write("keywheel.toml", &format!("{CONFIG}[ledger]\nsweep_after_seconds = 1\n"));
    let gateway = Gateway::start(&place);
    let client = Client::new(&gateway, "anything");
    let answers = sim.block_on(async {
        // Far more than are answered until the kill comes, however late.
        let load = tokio::spawn(client.many(2_000));
        sim.until_asked(60).await;
        tokio::task::spawn_blocking(move || gateway.end(Signal::KILL)).await.unwrap();
        load.await.unwrap()
    });
    let answered = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(answered >= 20, "the kill came before there was anything to lose: {answered}");
    let again = Gateway::start(&place);
    let client = Client::new(&again, "anything");
    assert_eq!(sim.block_on(client.ask("Say hello")).status, 200);
    again.end(Signal::TERM).ends(0);
    // Their holder is dead: a second after it was last heard of they are charged at their estimates.
    sweep_all(&place);
    let rows = assert_books(&place, answered + 1);
    // What was answered and not settled when the kill came was reserved on disk before: it is charged at its estimate.
    let charged = |row: &&Value| row["outcome"] == "answered" || row["state"] == "swept";
    let charged = rows.iter().filter(charged).count();
    assert!(
        charged > answered,
        "{charged} rows are charged, and {answered} requests were answered"
    );
    // The state file survived, too: what was counted is there, but for the last quarter of a second.
    let status = place.run(&["status", "--json"]).ends(0).json("status");
    assert_eq!(status["keys"].as_array().unwrap().len(), 2);
}

/// <https://github.com/maximhq/bifrost/issues/3547>: each replica had a budget of its own.
#[test]
fn two_gateways_on_one_state_folder_share_quotas_and_budgets() {
    let sim = Sim::new(2, Limits::new().rpd(10));
    let place = anywhere(Place::new()).with_sim(&sim);
    place.write(
        "keywheel.toml",
        "[projects.default]\ncalls_per_day = 15\n[queue]\nwait = \"120s\"\n",
    );
    let gateways = [Gateway::start(&place), Gateway::start(&place)];
    let running = place.run(&["reload", "--json"]).ends(0).json("reload");
    assert_eq!(running["gateways"].as_array().unwrap().len(), 2);
    place.run(&["status"]).ends(0).says(&format!("gateway on {}", &gateways[0].base()[7..]));
    let clients = gateways.each_ref().map(|gateway| Client::new(gateway, "anything"));
    let answers = sim.block_on(async {
        let [one, other] = clients.map(|client| tokio::spawn(client.many(20)));
        let mut answers = one.await.unwrap();
        answers.extend(other.await.unwrap());
        answers
    });
    let answered = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(answered, 15, "the budget of both together");
    assert!(answers.iter().all(|answer| [200, 429].contains(&answer.status)), "{answers:?}");
    gateways.into_iter().for_each(|gateway| drop(gateway.end(Signal::TERM).ends(0)));
    let stats = sim.server().world().stats();
    assert_eq!(stats.served(), 15);
    assert_books(&place, 15);
    let status = place.run(&["status", "--json"]).json("status");
    let counted = status["buckets"].as_array().unwrap().iter();
    let counted = counted
        .filter(|bucket| bucket["model"] == MODEL)
        .map(|bucket| bucket["day_requests"].as_u64().unwrap());
    assert_eq!(counted.sum::<u64>(), 15, "both count in one pool");
}

/// As on a network drive that is gone.
#[test]
fn a_file_that_does_not_come_keeps_no_gateway_from_its_end() {
    let sim = Sim::new(1, Limits::new());
    let place = anywhere(Place::new()).with_sim(&sim);
    place.write("keywheel.toml", "watch = \"0s\"\n");
    let gateway = Gateway::start(&place);
    let file = place.path("keywheel.toml");
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    gateway.send(Signal::HUP);
    // Opened once somebody reads, who then waits for what is never written.
    let _silent = fs::File::options().write(true).open(&file).unwrap();
    gateway.end(Signal::TERM).ends(0).complains("stopped");
}

#[test]
fn a_reload_under_load_takes_new_projects_and_fails_no_request() {
    let sim = Sim::slow(2, Duration::from_millis(5));
    let place = anywhere(Place::new()).with_sim(&sim);
    place.write("keywheel.toml", "watch = \"0s\"\n[projects.first]\n");
    let first = new_token(&place, &["project", "rotate", "first"]);
    let gateway = Gateway::start(&place);
    let load = sim.spawn(Client::new(&gateway, &first).many(150));
    let second = new_token(&place, &["project", "add", "second"]);
    let newcomer = Client::new(&gateway, &second);
    assert_eq!(sim.block_on(newcomer.ask("Say hello")).status, 401, "not read yet");
    let told = place.run(&["reload", "--json"]).ends(0).json("reload");
    assert!(told["gateways"][0]["reloaded"]["fault"].is_null(), "{told}");
    gateway.until_it_says("read again: 2 projects");
    assert_eq!(sim.block_on(newcomer.ask("Say hello")).status, 200);

    // A faulty one is told to whoever reloads, and to nobody else.
    let good = place.read("keywheel.toml");
    place.write("keywheel.toml", "listn = 1\n");
    place.run(&["reload"]).ends(2).complains("keywheel.toml:1:1");
    place.write("keywheel.toml", &good);
    let answers = sim.block_on(load).unwrap();
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    gateway.end(Signal::TERM).ends(0);
    place.run(&["reload"]).ends(1).complains("no gateway runs");
}

#[test]
fn a_reload_says_what_came_of_it_and_what_needs_a_restart() {
    let sim = Sim::new(1, Limits::new());
    let place = anywhere(Place::new()).with_sim(&sim);
    let file = "watch = \"0s\"\n[projects.first]\n";
    place.write("keywheel.toml", file);
    let token = new_token(&place, &["project", "rotate", "first"]);
    let gateway = Gateway::start(&place);
    let start = place.read("keywheel.toml");
    let ended = place.run(&["reload"]).ends(0).says("has read its keys and projects again");
    assert!(!ended.stdout.contains("restart"), "nothing has changed: {}", ended.stdout);

    let later = "[retry]\nmax_retries = 5\n[serve]\nthreads = 1\n[queue]\ndepth = 3\n";
    place.write("keywheel.toml", &format!("{start}{later}"));
    let names = "changed, and in effect after a restart only: retry.max_retries, serve.threads\n";
    place.run(&["reload"]).ends(0).says(names);
    let told = place.run(&["reload", "--json"]).ends(0).json("reload");
    assert_eq!(
        told["gateways"][0]["reloaded"]["needs_restart"],
        serde_json::json!(["retry.max_retries", "serve.threads"])
    );
    assert_form("reload", &[&told]);
    gateway.until_it_says(names.trim_end());

    // What is read well here, and refused there.
    place.write("keywheel.toml", file);
    place.run(&["reload"]).ends(1).complains("goes on as before: the new file asks for no tokens");
    let told = place.run(&["reload", "--json"]).ends(1).json("reload");
    assert!(told["gateways"][0]["reloaded"]["fault"].is_string(), "{told}");
    assert_eq!(sim.block_on(Client::new(&gateway, &token).ask("Say hello")).status, 200);
    gateway.end(Signal::TERM).ends(0);
}

/// One that has ended a moment ago, whose file is still there.
#[test]
fn a_gateway_that_cannot_be_told_keeps_no_other_from_hearing_of_a_reload() {
    let sim = Sim::new(1, Limits::new());
    let place = anywhere(Place::new()).with_sim(&sim);
    let gateway = Gateway::start(&place);
    let mut files = fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().path());
    let own = files.find(|path| path.extension().is_some_and(|it| it == "run")).unwrap();
    let mut gone: Value = serde_json::from_slice(&fs::read(&own).unwrap()).unwrap();
    // Before the other in the order of their numbers, and no process's.
    gone["pid"] = 0.into();
    let path = place.path("gateway-gone.run");
    fs::write(&path, gone.to_string()).unwrap();
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let ended = place.run(&["reload"]).ends(1).complains("process 0 on");
    assert!(ended.stdout.contains("has read its keys and projects again"), "{}", ended.stdout);
    let told = place.run(&["reload", "--json"]).ends(1).json("reload");
    assert_eq!(told["gateways"].as_array().unwrap().len(), 2, "{told}");
    gateway.end(Signal::TERM).ends(0);
}

/// By its own watching, without a reload.
#[test]
fn a_project_that_is_changed_or_removed_is_so_for_a_gateway_that_runs() {
    let sim = Sim::new(1, Limits::new());
    let place = anywhere(Place::new()).with_sim(&sim);
    place.write("keywheel.toml", "watch = \"50ms\"\n");
    let [first, second] =
        ["first", "second"].map(|name| new_token(&place, &["project", "add", name]));
    let gateway = Gateway::start(&place);
    let [first, second] = [first, second].map(|token| Client::new(&gateway, &token));
    let status = |client: &Client, wanted: u16| {
        let answers = || sim.block_on(client.ask("Say hello")).status == wanted;
        let in_time = (0..2_000).any(|_| {
            let so = answers();
            if !so {
                std::thread::sleep(Duration::from_millis(20));
            }
            so
        });
        assert!(in_time, "never answered with {wanted}");
    };
    status(&first, 200);
    place.run(&["project", "set", "first", "--calls-per-day", "1"]).ends(0);
    status(&first, 429);
    place.run(&["project", "set", "first", "--calls-per-day", "none"]).ends(0);
    status(&first, 200);
    place.run(&["project", "remove", "first"]).ends(0);
    status(&first, 401);
    status(&second, 200);
    gateway.end(Signal::TERM).ends(0);
    let usage = place.run(&["ledger", "usage", "--json"]).ends(0).json("ledger usage");
    let accounts = usage["accounts"].as_array().unwrap();
    assert!(accounts.iter().any(|of| of["account"] == "first"), "its rows stay: {usage}");
}

/// The token that a run printed.
fn new_token(place: &Place, arguments: &[&str]) -> String {
    let ended = Ended::with_token(place.command(arguments).output().unwrap()).ends(0);
    ended.stdout.trim().to_owned()
}

/// Until nothing is open any more.
fn sweep_all(place: &Place) {
    let open = || {
        let usage = place.run(&["ledger", "usage", "--json"]).ends(0).json("ledger usage");
        usage["ledger"]["open"].as_u64().unwrap()
    };
    for _ in 0..1_000 {
        if open() == 0 {
            break;
        }
        place.run(&["ledger", "sweep"]).ends(0);
    }
}

/// Totals and rows agree, nothing is open, and there are at least `fewest` rows, which come back.
#[track_caller]
fn assert_books(place: &Place, fewest: usize) -> Vec<Value> {
    place.run(&["ledger", "audit"]).ends(0).says(", 0 of them wrong");
    let rows = place.run(&["ledger", "rows", "--limit", "1000", "--json"]).json("ledger rows");
    let rows = rows["rows"].as_array().unwrap().clone();
    assert!(rows.len() >= fewest, "{} rows for {fewest} answers", rows.len());
    let open = rows.iter().filter(|row| row["state"] == "reserved").count();
    assert_eq!(open, 0, "of {} rows", rows.len());
    rows
}
