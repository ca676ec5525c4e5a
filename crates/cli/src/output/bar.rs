//! How much is left, as a bar.

/// How wide bars are, in characters.
const WIDTH: u64 = 10;

/// A bar of `part` in `whole`, filled from the left: `[####------]`. More than all is all; of nothing, nothing.
pub(crate) fn bar(part: u64, whole: u64) -> String {
    let filled = match whole {
        0 => 0,
        // Not full until it is, and not empty while something is there.
        _ if part >= whole => WIDTH,
        _ if part == 0 => 0,
        _ => {
            let exact = u128::from(part) * u128::from(WIDTH) / u128::from(whole);
            u64::try_from(exact).unwrap_or(WIDTH).clamp(1, WIDTH - 1)
        }
    };
    let filled = usize::try_from(filled).unwrap_or(0);
    let rest = usize::try_from(WIDTH).unwrap_or(0) - filled;
    format!("[{}{}]", "#".repeat(filled), "-".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_only_when_all_is_used_and_empty_only_when_nothing_is() {
        assert_eq!(bar(0, 500), "[----------]");
        assert_eq!(bar(1, 500), "[#---------]");
        assert_eq!(bar(250, 500), "[#####-----]");
        assert_eq!(bar(499, 500), "[#########-]");
        assert_eq!(bar(500, 500), "[##########]");
        assert_eq!(bar(u64::MAX, 1), "[##########]");
        assert_eq!(bar(1, 0), "[----------]");
        assert_eq!(bar(u64::MAX - 1, u64::MAX), "[#########-]");
    }
}
