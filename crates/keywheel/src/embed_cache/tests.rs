use std::{collections::HashMap, sync::Mutex};

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use keywheel_core::ManualClock;
use proptest::prelude::*;

use super::*;

const SPACE: Space<'_> = Space {
    provider: "gcp.gemini",
    base_url: "https://generativelanguage.googleapis.com",
    model: "gemini-embedding-001",
    task: None,
    dimensions: None,
    title: None,
};

fn key(text: &str) -> EmbedKey {
    EmbedKey::new(&SPACE, text)
}

fn keys<const N: usize>(texts: [&str; N]) -> [EmbedKey; N] {
    texts.map(key)
}

fn vector(number: f32) -> Vector {
    [number, 0.5].into()
}

fn cache() -> EmbedCache {
    made(EmbedCacheConfig::default())
}

fn made(config: EmbedCacheConfig) -> EmbedCache {
    EmbedCache::new(config, Arc::new(clock()))
}

fn clock() -> ManualClock {
    ManualClock::at("2026-11-30T08:00:00Z".parse().unwrap())
}

/// Fetches what is claimed: each text's vector begins with its place.
async fn fetch(cache: &EmbedCache, looked: &mut Looked) {
    let claims = std::mem::take(&mut looked.claims);
    let fetched = claims.into_iter().map(|(place, claim)| (claim, vector(place as f32)));
    cache.fill(fetched.collect()).await;
}

#[tokio::test]
async fn what_was_fetched_once_is_served_again() {
    let cache = cache();
    let mut looked = cache.look(&keys(["a", "b"])).await;
    assert_eq!((looked.hits.len(), looked.claims.len(), looked.waits.len()), (0, 2, 0));
    fetch(&cache, &mut looked).await;
    let looked = cache.look(&keys(["b", "c", "a"])).await;
    assert_eq!(looked.hits, [(0, vector(1.0)), (2, vector(0.0))]);
    assert_eq!(looked.claims.len(), 1);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (2, 3, 2));
    assert_eq!(stats.bytes, 2 * (8 + OVERHEAD_BYTES as u64));
}

#[tokio::test]
async fn callers_that_miss_one_text_at_once_make_one_call() {
    let cache = cache();
    let calls = AtomicU64::new(0);
    let call = async || {
        let mut looked = cache.look(&keys(["a"])).await;
        if let Some((_, claim)) = looked.claims.pop() {
            calls.fetch_add(1, Relaxed);
            tokio::task::yield_now().await;
            cache.fill(vec![(claim, vector(7.0))]).await;
            return vector(7.0);
        }
        match looked.waits.pop() {
            Some((_, wait)) => wait.vector().await.unwrap(),
            None => looked.hits.pop().unwrap().1,
        }
    };
    let vectors = join_all((0..100).map(|_| call())).await;
    assert!(vectors.iter().all(|found| *found == vector(7.0)));
    assert_eq!(calls.load(Relaxed), 1);
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.shared + stats.hits), (1, 99));
}

#[test]
fn threads_that_miss_one_text_at_once_make_one_call() {
    const TEXTS: usize = 5_000;
    let cache = cache();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for text in 0..TEXTS {
                    futures_executor::block_on(async {
                        let mut looked = cache.look(&[key(&text.to_string())]).await;
                        fetch(&cache, &mut looked).await;
                        for (_, wait) in looked.waits {
                            wait.vector().await.unwrap();
                        }
                    });
                }
            });
        }
    });
    assert_eq!(cache.stats().misses, TEXTS as u64);
}

#[tokio::test]
async fn when_the_first_gives_up_one_of_those_who_wait_takes_over() {
    let cache = cache();
    let first = cache.look(&keys(["a"])).await;
    let (mut second, mut third) = (cache.look(&keys(["a"])).await, cache.look(&keys(["a"])).await);
    let (second, third) = (second.waits.pop().unwrap().1, third.waits.pop().unwrap().1);
    let (mut second, mut third) = (Box::pin(second.vector()), Box::pin(third.vector()));
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    drop(first);
    assert_eq!((second.await, third.await), (None, None), "nobody waits for who is gone");
    let mut second = cache.look(&keys(["a"])).await;
    let mut third = cache.look(&keys(["a"])).await;
    assert_eq!((second.claims.len(), third.waits.len()), (1, 1), "one fetches, one waits");
    fetch(&cache, &mut second).await;
    assert_eq!(third.waits.pop().unwrap().1.vector().await, Some(vector(0.0)));
}

#[tokio::test]
async fn a_part_that_came_is_handed_on_although_the_rest_did_not() {
    let cache = cache();
    let mut first = cache.look(&keys(["a", "b"])).await;
    let mut second = cache.look(&keys(["a", "b"])).await;
    let (_, claim) = first.claims.remove(0);
    cache.fill(vec![(claim, vector(1.0))]).await;
    drop(first);
    let (b, a) = (second.waits.pop().unwrap().1, second.waits.pop().unwrap().1);
    assert_eq!((a.vector().await, b.vector().await), (Some(vector(1.0)), None));
}

#[tokio::test]
async fn a_text_that_stands_twice_in_one_call_is_fetched_once() {
    let cache = cache();
    let mut looked = cache.look(&keys(["a", "b", "a"])).await;
    assert_eq!((looked.claims.len(), looked.waits.len()), (2, 1));
    fetch(&cache, &mut looked).await;
    assert_eq!(looked.waits.pop().unwrap().1.vector().await, Some(vector(0.0)));
}

#[tokio::test]
async fn callers_that_need_each_others_texts_do_not_wait_for_ever() {
    let cache = cache();
    let call = async |texts: [&'static str; 3]| {
        let mut looked = cache.look(&keys(texts)).await;
        tokio::task::yield_now().await;
        fetch(&cache, &mut looked).await;
        for (_, wait) in looked.waits {
            wait.vector().await.unwrap();
        }
    };
    let all = join_all([call(["a", "b", "c"]), call(["c", "d", "a"]), call(["d", "b", "e"])]);
    let timeout = Duration::from_secs(60);
    tokio::time::timeout(timeout, all).await.unwrap();
    assert_eq!(cache.stats().misses, 5);
}

#[tokio::test]
async fn memory_is_bounded_whatever_is_asked() {
    let bytes = 100 * (8 + OVERHEAD_BYTES as u64);
    let cache = made(EmbedCacheConfig::default().with_max_bytes(bytes));
    for number in 0..1_000 {
        let mut looked = cache.look(&[key(&number.to_string())]).await;
        fetch(&cache, &mut looked).await;
        assert!(cache.stats().bytes <= bytes);
    }
    assert!(cache.stats().entries > 50, "{:?}", cache.stats());
    assert!(cache.shared.flights.lock().is_empty(), "nor is anything left of who fetched");
}

#[tokio::test]
async fn a_cache_without_room_still_hands_vectors_to_those_who_wait() {
    let cache = made(EmbedCacheConfig::default().with_max_bytes(0));
    let mut first = cache.look(&keys(["a"])).await;
    let mut second = cache.look(&keys(["a"])).await;
    fetch(&cache, &mut first).await;
    assert_eq!(second.waits.pop().unwrap().1.vector().await, Some(vector(0.0)));
}

/// Remembers everything, and says how often it was asked.
#[derive(Debug, Default)]
struct Shelf {
    vectors: Mutex<HashMap<EmbedKey, Vector>>,
    asked: AtomicU64,
    broken: bool,
}

impl EmbedStore for Shelf {
    fn get_many<'a>(
        &'a self,
        keys: &'a [EmbedKey],
    ) -> BoxFuture<'a, Result<Vec<Option<Vector>>, StoreFault>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.broken {
                return Err("broken".into());
            }
            self.asked.fetch_add(keys.len() as u64, Relaxed);
            let vectors = self.vectors.lock().unwrap();
            Ok(keys.iter().map(|key| vectors.get(key).cloned()).collect())
        })
    }

    fn put_many(&self, vectors: Vec<(EmbedKey, Vector)>) -> BoxFuture<'_, Result<(), StoreFault>> {
        Box::pin(async move {
            if self.broken {
                return Err("broken".into());
            }
            self.vectors.lock().unwrap().extend(vectors);
            Ok(())
        })
    }
}

#[tokio::test]
async fn what_the_store_knows_costs_no_request_and_the_store_is_asked_once() {
    let shelf = Arc::new(Shelf::default());
    let open = || {
        let store: Arc<dyn EmbedStore> = Arc::<Shelf>::clone(&shelf);
        made(EmbedCacheConfig::default().with_store(store))
    };
    let cache = open();
    let mut looked = cache.look(&keys(["a", "b"])).await;
    fetch(&cache, &mut looked).await;
    // As after a restart.
    let (cache, asked) = (open(), shelf.asked.load(Relaxed));
    let looked = join_all((0..10).map(|_| async {
        let looked = cache.look(&keys(["b"])).await;
        assert!(looked.claims.is_empty());
        for (_, wait) in looked.waits {
            assert_eq!(wait.vector().await, Some(vector(1.0)));
        }
    }));
    looked.await;
    assert_eq!(shelf.asked.load(Relaxed) - asked, 1);
    assert_eq!((cache.stats().store_hits, cache.stats().misses), (1, 0));
}

#[tokio::test]
async fn a_store_that_fails_costs_requests_and_no_call() {
    let store: Arc<dyn EmbedStore> = Arc::new(Shelf { broken: true, ..Shelf::default() });
    let cache = made(EmbedCacheConfig::default().with_store(store));
    let mut looked = cache.look(&keys(["a"])).await;
    assert_eq!(looked.claims.len(), 1);
    fetch(&cache, &mut looked).await;
    assert_eq!(cache.look(&keys(["a"])).await.hits.len(), 1);
}

#[tokio::test]
async fn who_stops_while_the_store_is_asked_leaves_the_text_to_others() {
    let store: Arc<dyn EmbedStore> = Arc::new(Shelf::default());
    let cache = made(EmbedCacheConfig::default().with_store(store));
    let asked = keys(["a"]);
    let mut stopped = Box::pin(cache.look(&asked));
    assert!((&mut stopped).now_or_never().is_none(), "the store takes its time");
    drop(stopped);
    assert_eq!(cache.look(&asked).await.claims.len(), 1);
}

/// Never answers, or panics.
#[derive(Debug)]
struct Abyss {
    panics: bool,
}

impl EmbedStore for Abyss {
    fn get_many<'a>(
        &'a self,
        _: &'a [EmbedKey],
    ) -> BoxFuture<'a, Result<Vec<Option<Vector>>, StoreFault>> {
        assert!(!self.panics, "the store panics");
        Box::pin(std::future::pending())
    }

    fn put_many(&self, _: Vec<(EmbedKey, Vector)>) -> BoxFuture<'_, Result<(), StoreFault>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_store_that_never_answers_is_waited_for_two_seconds_and_no_longer() {
    let clock = Arc::new(clock());
    let config = EmbedCacheConfig::default().with_store(Arc::new(Abyss { panics: false }));
    let cache = EmbedCache::new(config, Arc::<ManualClock>::clone(&clock));
    let asked = keys(["a"]);
    let mut look = Box::pin(cache.look(&asked));
    assert!((&mut look).now_or_never().is_none());
    clock.advance(STORE_PATIENCE);
    let mut looked = look.now_or_never().expect("it is waited for no longer");
    assert_eq!(looked.claims.len(), 1);
    let mut fill = Box::pin(fetch(&cache, &mut looked));
    assert!((&mut fill).now_or_never().is_none());
    clock.advance(STORE_PATIENCE);
    fill.now_or_never().expect("it is waited for no longer");
    assert_eq!(cache.look(&asked).await.hits.len(), 1);
}

#[tokio::test]
async fn what_a_panic_leaves_unfetched_is_fetched_by_others() {
    let cache = cache();
    let first = cache.clone();
    let panics = tokio::spawn(async move {
        let _looked = first.look(&keys(["a", "b"])).await;
        panic!("whoever fetches panics");
    });
    panics.await.unwrap_err();
    assert_eq!(cache.look(&keys(["a", "b"])).await.claims.len(), 2);

    let config = EmbedCacheConfig::default().with_store(Arc::new(Abyss { panics: true }));
    let broken = made(config);
    let panics = broken.clone();
    tokio::spawn(async move { drop(panics.look(&keys(["a"])).await) }).await.unwrap_err();
    assert!(broken.shared.flights.lock().is_empty());
}

#[tokio::test]
async fn a_thousand_who_wait_for_what_always_fails_take_turns_and_end() {
    const CALLERS: usize = 1_000;
    let cache = cache();
    let tried = AtomicU64::new(0);
    let call = async || {
        loop {
            let mut looked = cache.look(&keys(["a"])).await;
            if let Some(claim) = looked.claims.pop() {
                tokio::task::yield_now().await;
                tried.fetch_add(1, Relaxed);
                drop(claim);
                return;
            }
            let (_, wait) = looked.waits.pop().unwrap();
            assert_eq!(wait.vector().await, None);
        }
    };
    let mut callers = futures_util::stream::FuturesUnordered::new();
    callers.extend((0..CALLERS).map(|_| call()));
    futures_util::StreamExt::count(callers).await;
    assert_eq!(tried.load(Relaxed), CALLERS as u64);
    assert!(cache.shared.flights.lock().is_empty());
}

#[tokio::test]
async fn whoever_stops_anywhere_leaves_no_text_claimed() {
    let store: Arc<dyn EmbedStore> = Arc::new(Shelf::default());
    let cache = made(EmbedCacheConfig::default().with_store(store));
    for polls in 0.. {
        let (a, b) = (format!("a{polls}"), format!("b{polls}"));
        let asked = keys([&a, &b]);
        let call = async {
            let mut looked = cache.look(&asked).await;
            tokio::task::yield_now().await;
            fetch(&cache, &mut looked).await;
        };
        let ended = {
            let mut call = Box::pin(call);
            (0..polls).any(|_| (&mut call).now_or_never().is_some())
        };
        assert!(cache.shared.flights.lock().is_empty(), "after {polls} polls");
        let looked = cache.look(&asked).await;
        assert!(looked.waits.is_empty(), "nobody fetches it");
        if ended {
            assert_eq!(looked.hits.len(), 2);
            break;
        }
    }
}

/// Parts that are alike at their seams, where keys that merely join them would collide.
fn part() -> impl Strategy<Value = String> {
    "[ab|\u{0}]{0,3}"
}

type Parts = (String, String, String, Option<String>, Option<u32>, Option<String>, String);

fn parts() -> impl Strategy<Value = Parts> {
    let maybe = || proptest::option::of(part());
    (part(), part(), part(), maybe(), proptest::option::of(0..3_u32), maybe(), part())
}

fn key_of(parts: &Parts) -> EmbedKey {
    let (provider, base_url, model, task, dimensions, title, text) = parts;
    let space = Space {
        provider,
        base_url,
        model,
        task: task.as_deref(),
        dimensions: *dimensions,
        title: title.as_deref(),
    };
    EmbedKey::new(&space, text)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn a_vector_is_never_served_for_another_model_task_dimension_title_or_text(
        a in parts(),
        b in parts(),
        changed in 0..11_usize,
    ) {
        prop_assert_eq!(key_of(&a) == key_of(&b), a == b);
        let mut c = a.clone();
        match changed {
            // One part longer.
            0 => c.0.push('a'),
            1 => c.1.push('a'),
            2 => c.2.push('a'),
            3 => c.3 = Some(c.3.map_or_else(String::new, |task| task + "a")),
            4 => c.4 = c.4.map_or(Some(0), |_| None),
            5 => c.5 = Some(c.5.map_or_else(String::new, |title| title + "a")),
            6 => c.6.push('a'),
            // The same characters, cut elsewhere.
            7 => move_one(&mut c.0, &mut c.1),
            8 => move_one(&mut c.1, &mut c.2),
            9 => move_one(&mut c.2, &mut c.6),
            _ => std::mem::swap(&mut c.3, &mut c.5),
        }
        prop_assert_eq!(key_of(&a) == key_of(&c), a == c);
    }
}

fn move_one(from: &mut String, to: &mut String) {
    if let Some(last) = from.pop() {
        to.insert(0, last);
    }
}
