//! Files arrive whole over bad lines, and whoever names one uses a key of the project that has it.

#![expect(clippy::unwrap_used, reason = "test helpers; a panic is the failure")]

mod common;

use std::{
    path::Path,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use common::{
    MODEL, OTHER_MODEL, fingerprint, poll_times,
    sim::{Cut, SimRig, world},
};
use keywheel::{
    Clock as _, Content, Error, GenerateRequest, Part,
    files::{File, Source},
};
use keywheel_core::Fingerprint;
use keywheel_sim::{FilesConfig, KeyState, ProjectConfig};

fn naming<'a>(files: impl IntoIterator<Item = &'a File>) -> GenerateRequest {
    let files = files.into_iter().map(|file| file.to_part().unwrap());
    Content::user(files.chain([Part::from_text("Look")])).into()
}

fn name(file: &File) -> &str {
    file.name.as_deref().unwrap()
}

fn small(rig: &SimRig, text: &str) -> File {
    rig.run(rig.gemini.files().upload(text.as_bytes().to_vec(), "text/plain")).unwrap()
}

/// The key of the last request.
fn last_key(rig: &SimRig) -> Fingerprint {
    rig.line.sent().last().unwrap().key.unwrap()
}

/// What the chunks of an upload carried: where from, and how much.
fn chunks(rig: &SimRig) -> Vec<(u64, usize)> {
    let sent = rig.line.sent();
    let chunks = sent.iter().filter_map(|request| {
        let offset = request.headers.get("x-goog-upload-offset")?.to_str().unwrap();
        Some((offset.parse().unwrap(), request.body.len()))
    });
    chunks.collect()
}

const MIB: usize = 1 << 20;

/// Other projects' keys cannot read a file: <https://github.com/snailyp/gemini-balance/issues/401>.
#[test]
fn whoever_names_a_file_uses_a_key_of_the_project_that_has_it() {
    let rig = SimRig::new(3, world(3));
    let file = small(&rig, "hello");
    let owner = last_key(&rig);
    let chat = async {
        let mut chat = rig.gemini.chat(MODEL);
        chat.send(Content::user([file.to_part().unwrap()])).await.unwrap();
        chat.send("and then?").await.unwrap();
    };
    // As often as it takes for every key's turn to have come.
    for _ in 0..3 {
        rig.run(rig.gemini.generate(MODEL, naming([&file]))).unwrap();
        assert_eq!(last_key(&rig), owner);
    }
    rig.run(rig.gemini.count_tokens(MODEL, naming([&file]))).unwrap();
    assert_eq!(last_key(&rig), owner);
    let streamed =
        rig.run(async { rig.gemini.stream(MODEL, naming([&file])).await.unwrap().text().await });
    assert!(!streamed.unwrap().is_empty());
    assert_eq!(last_key(&rig), owner);
    rig.run(chat);
    assert_eq!(last_key(&rig), owner);
    let body = serde_json::to_vec(&naming([&file])).unwrap();
    let call = keywheel::raw::Call::post(format!("models/{MODEL}:generateContent"), body);
    rig.run(rig.gemini.send(call)).unwrap();
    assert_eq!(last_key(&rig), owner);
    // What names nothing goes round as ever.
    let keys: std::collections::BTreeSet<_> = (0..6)
        .map(|_| {
            rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
            last_key(&rig)
        })
        .collect();
    assert_eq!(keys.len(), 3);
    rig.assert_counts_agree(MODEL);
}

#[test]
fn files_of_two_projects_cannot_be_used_together_and_the_error_names_them() {
    let rig = SimRig::new(2, world(2));
    let (one, two) = (small(&rig, "one"), small(&rig, "two"));
    let sent = rig.line.sent().len();
    for request in [naming([&one, &two]), naming([&two, &one, &two])] {
        let error = rig.run(rig.gemini.generate(MODEL, request)).unwrap_err();
        let text = error.to_string();
        let Error::MixedOwners { owners } = error else { panic!("{text}") };
        assert_eq!(owners.len(), 2);
        assert!(text.contains(name(&one)) && text.contains(name(&two)), "{text}");
    }
    assert_eq!(rig.line.sent().len(), sent, "nothing was sent");
}

#[test]
fn a_file_uploaded_beside_another_can_be_used_with_it() {
    let rig = SimRig::new(3, world(3));
    let one = small(&rig, "one");
    let folder = tempfile::tempdir().unwrap();
    for client in [&rig, &rig.again(3, &folder.path().join("pool.json"))] {
        for place in [one.uri.clone().unwrap(), name(&one).to_owned()] {
            let upload = client.gemini.files().upload(b"two".to_vec(), "text/plain");
            let two = client.run(upload.beside(place)).unwrap();
            client.run(client.gemini.generate(MODEL, naming([&one, &two]))).unwrap();
        }
    }
    let owner = rig.run(rig.gemini.owners().owner(name(&one))).unwrap();
    let upload = rig.gemini.files().upload(b"three".to_vec(), "text/plain").owner(owner);
    let three = rig.run(upload).unwrap();
    rig.run(rig.gemini.generate(MODEL, naming([&one, &three]))).unwrap();
    let upload = rig.gemini.files().upload(Vec::new(), "text/plain").beside("files/nobodys");
    assert!(matches!(rig.run(upload), Err(Error::Rejected { .. })));
}

#[test]
fn who_made_a_file_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("pool.json");
    let before =
        SimRig::built(3, world(3), |pool| pool.state(keywheel::StateLocation::File(state.clone())));
    let file = small(&before, "hello");
    let owner = last_key(&before);
    let after = before.again(3, &state);
    for _ in 0..3 {
        after.run(after.gemini.generate(MODEL, naming([&file]))).unwrap();
        assert_eq!(last_key(&after), owner);
    }
}

/// <https://github.com/QuantumNous/new-api/issues/2078>, <https://github.com/router-for-me/CLIProxyAPI/issues/373>: files
/// could not be uploaded through the pool.
#[test]
fn a_file_of_the_disk_is_sent_in_chunks_and_tells_how_far_it_is() {
    let rig = SimRig::new(2, world(2));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.bin");
    let bytes: Vec<u8> = (0..20 * MIB).map(|n| (n % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let upload = rig
        .gemini
        .files()
        .upload(&*path, "application/octet-stream")
        .display_name("talk")
        .progress(move |sent, total| sink.lock().unwrap().push((sent, total)));
    let file = rig.run(upload).unwrap();
    assert_eq!((file.size_bytes, file.display_name.as_deref()), (Some(20 << 20), Some("talk")));
    assert_eq!(chunks(&rig), [(0, 8 * MIB), (8 << 20, 8 * MIB), (16 << 20, 4 * MIB)]);
    assert_eq!(
        *seen.lock().unwrap(),
        [(8 << 20, 20 << 20), (16 << 20, 20 << 20), (20 << 20, 20 << 20)]
    );
    let together: Vec<u8> =
        rig.line.sent()[1..].iter().flat_map(|request| request.body.to_vec()).collect();
    assert!(together == bytes, "every byte, in order");
    let keys: std::collections::BTreeSet<_> =
        rig.line.sent().iter().map(|request| request.key.unwrap()).collect();
    assert_eq!(keys.len(), 1, "all with keys of one project");
}

#[test]
fn an_upload_over_a_bad_line_goes_on_from_what_has_arrived() {
    let bytes = vec![7_u8; 20 * MIB];
    let sources: [fn(Vec<u8>) -> Source; 2] =
        [|bytes| bytes.into(), |bytes| Source::reader(std::io::Cursor::new(bytes), 20 << 20)];
    for source in sources {
        let rig = SimRig::new(1, world(1));
        // The start passes; the first chunk's reply is lost, the second chunk itself.
        let cuts = [None, Some(Cut::Reply), None, Some(Cut::Request)];
        rig.line.cut(cuts);
        let upload = rig.gemini.files().upload(source(bytes.clone()), "text/plain");
        let file = rig.run(upload).unwrap();
        assert_eq!(file.size_bytes, Some(20 << 20));
        let (first, second, third) = ((0, 8 * MIB), (8 << 20, 8 * MIB), (16 << 20, 4 * MIB));
        assert_eq!(chunks(&rig), [first, second, second, third], "what arrived is not sent again");
    }
}

/// The end of an upload that arrived without anybody knowing is found by asking.
#[test]
fn an_upload_whose_last_reply_is_lost_has_ended_all_the_same() {
    let rig = SimRig::new(1, world(1));
    rig.line.cut([None, Some(Cut::Reply)]);
    let file = small(&rig, "hello");
    assert_eq!(chunks(&rig).len(), 1);
    rig.run(rig.gemini.generate(MODEL, naming([&file]))).unwrap();
}

#[test]
fn an_upload_that_cannot_go_on_ends() {
    let rig = SimRig::new(1, world(1));
    let cuts =
        std::iter::once(None).chain(std::iter::repeat_n([Some(Cut::Request), None], 20).flatten());
    rig.line.cut(cuts);
    let error = rig.run(rig.gemini.files().upload(b"hello".to_vec(), "text/plain")).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    assert_eq!(chunks(&rig).len(), 6, "five more tries, without a byte that arrives");
}

/// The pauses between the tries are within it, too.
#[test]
fn an_upload_that_pauses_keeps_its_deadline() {
    let rig = SimRig::new(1, world(1));
    let cuts =
        std::iter::once(None).chain(std::iter::repeat_n([Some(Cut::Request), None], 20).flatten());
    rig.line.cut(cuts);
    let before = rig.clock.now();
    let upload = rig.gemini.files().upload(b"hello".to_vec(), "text/plain");
    let error = rig.run(upload.deadline(Duration::from_secs(4))).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "{error}");
    assert_eq!(rig.clock.now() - before, common::secs(4));
}

#[test]
fn another_project_takes_over_if_the_upload_cannot_be_begun() {
    let dead = ProjectConfig::new("p1").with_key_in_state(common::key(1), KeyState::Leaked);
    let config =
        world(0).with_project(dead).with_project(ProjectConfig::new("p2").with_key(common::key(2)));
    let rig = SimRig::new(2, config);
    let file = small(&rig, "hello");
    let keys: Vec<_> = rig.line.sent().iter().map(|request| request.key.unwrap()).collect();
    assert_eq!(keys, [fingerprint(1), fingerprint(2), fingerprint(2)]);
    rig.run(rig.gemini.generate(MODEL, naming([&file]))).unwrap();
}

#[test]
fn an_empty_file_and_one_that_is_not_there() {
    let rig = SimRig::new(1, world(1));
    let missing = rig.gemini.files().upload(Path::new("/nowhere/at/all"), "text/plain");
    assert!(matches!(rig.run(missing), Err(Error::Setting(_))));
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        rig.run(rig.gemini.files().upload(folder.path(), "text/plain")),
        Err(Error::Setting(_))
    ));
    assert!(rig.line.sent().is_empty());
    let empty = rig.run(rig.gemini.files().upload(Vec::new(), "text/plain")).unwrap();
    assert_eq!(empty.size_bytes, Some(0));
}

#[test]
fn a_file_that_is_being_read_is_waited_for() {
    let files = FilesConfig { processing: Duration::from_secs(25), ..FilesConfig::default() };
    let rig = SimRig::new(2, world(2).with_files(files));
    let file = small(&rig, "hello");
    let early = rig.gemini.files().wait_active(name(&file)).deadline(Duration::from_secs(10));
    assert!(matches!(rig.run(early), Err(Error::DeadlineReached { .. })));
    let file = rig.run(rig.gemini.files().wait_active(name(&file))).unwrap();
    rig.run(rig.gemini.generate(MODEL, naming([&file]))).unwrap();
}

#[test]
fn the_files_of_all_projects_are_listed_found_and_deleted() {
    let rig = SimRig::new(3, world(3));
    let files: Vec<_> = (0..3).map(|n| small(&rig, &format!("file {n}"))).collect();
    // A client that knows nothing of them.
    let folder = tempfile::tempdir().unwrap();
    let other = rig.again(3, &folder.path().join("pool.json"));
    for file in &files {
        let found = other.run(other.gemini.files().get(name(file))).unwrap();
        assert_eq!(found.name, file.name);
    }
    let mut listed: Vec<_> = other
        .run(other.gemini.files().list())
        .unwrap()
        .into_iter()
        .filter_map(|f| f.name)
        .collect();
    let mut names: Vec<_> = files.iter().map(|file| name(file).to_owned()).collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
    for file in &files {
        // Found once, its owner is known.
        let sent = other.line.sent().len();
        other.run(other.gemini.generate(MODEL, naming([file]))).unwrap();
        assert_eq!(other.line.sent().len(), sent + 1);
        other.run(other.gemini.files().delete(file.uri.as_deref().unwrap())).unwrap();
    }
    assert!(other.run(other.gemini.files().list()).unwrap().is_empty());
    let gone = other.run(other.gemini.files().get(name(&files[0]))).unwrap_err();
    assert!(matches!(gone, Error::Rejected { .. }), "{gone}");
}

#[test]
fn a_project_that_cannot_be_asked_hides_no_file_of_another() {
    let rig = SimRig::new(3, world(3));
    let files: Vec<_> = (0..3).map(|n| small(&rig, &format!("file {n}"))).collect();
    let folder = tempfile::tempdir().unwrap();
    let last = files.iter().find(|file| {
        let owner = rig.run(rig.gemini.owners().owner(name(file))).unwrap();
        *owner == *format!("key:{}", fingerprint(3))
    });
    let last = name(last.unwrap());
    let other = rig.again(3, &folder.path().join("pool.json"));
    other.line.cut([Some(Cut::Request); 3]);
    assert!(other.run(other.gemini.files().get(last)).is_ok());
    assert_eq!(other.line.sent().last().unwrap().key, Some(fingerprint(3)));
    let again = rig.again(3, &folder.path().join("other.json"));
    again.line.cut([Some(Cut::Request); 3]);
    let error = again.run(again.gemini.files().get("nobodys")).unwrap_err();
    assert!(matches!(error, Error::UpstreamDown { .. }), "it may be where nobody answers: {error}");
}

/// 403 "You do not have permission to access the File … or it may not exist" is no fault of the key.
#[test]
fn a_file_of_somebody_else_costs_no_key() {
    let rig = SimRig::new(2, world(2));
    let part = Part::from_file(&keywheel_provider::api::FileData {
        mime_type: None,
        file_uri: "https://generativelanguage.googleapis.com/v1beta/files/nobodys".to_owned(),
    });
    let error = rig.run(rig.gemini.generate(MODEL, Content::user([part]))).unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error}");
    assert!(rig.gemini.status().keys.iter().all(|key| key.quarantine.is_none()));
    rig.run(rig.gemini.generate(MODEL, "hi")).unwrap();
}

/// Files cost no quota, so a spent model does not stop them; nor do they stop a model.
#[test]
fn files_draw_on_no_models_quota() {
    let rig = SimRig::new(1, world(1));
    let file = small(&rig, "hello");
    rig.run(rig.gemini.files().get(name(&file))).unwrap();
    let status = rig.gemini.status();
    assert!(
        status.buckets.iter().all(|bucket| bucket.model == "api:files"),
        "{:?}",
        status.buckets
    );
    assert_eq!(rig.line.world().stats().bucket("p1", OTHER_MODEL).counted, 0);
}

#[test]
fn an_upload_dropped_at_any_await_leaves_the_pool_in_balance() {
    let mut ended = false;
    for polls in 0..200 {
        let files = FilesConfig { chunk_bytes: 4, ..FilesConfig::default() };
        let config = world(2)
            .with_files(files)
            .with_latency(Duration::from_millis(100), Duration::from_millis(100));
        let rig = SimRig::new(2, config);
        rig.line.cut([None, Some(Cut::Reply)]);
        let outcome = {
            let upload = rig.gemini.files().upload(b"hello hello".to_vec(), "text/plain");
            poll_times(&rig.clock, pin!(upload.into_future()), polls)
        };
        common::assert_balanced(&rig.gemini);
        if let Some(file) = outcome {
            assert_eq!(file.unwrap().size_bytes, Some(11));
            ended = true;
            break;
        }
        small(&rig, "another");
        common::assert_balanced(&rig.gemini);
    }
    assert!(ended, "it never ended");
}
