//! Random choices that depend on what they are for, not on what was asked before.
//!
//! A fault is drawn from (seed, bucket, day, number of the request in that bucket and day). Two clients that
//! send the same bucket its hundredth request of the day therefore meet the same fate, whatever else they
//! did: strategies can be compared, and what a day can deliver at best is known beforehand.

/// A generator for the choice that `parts` name.
pub(crate) fn generator(seed: u64, parts: &[&[u8]]) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed ^ hash(parts))
}

/// FNV-1a over the parts, each closed by a byte that UTF-8 never has.
pub(crate) fn hash(parts: &[&[u8]]) -> u64 {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    let mut take = |byte: u8| {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    };
    for part in parts {
        part.iter().copied().for_each(&mut take);
        take(0xff);
    }
    state
}
