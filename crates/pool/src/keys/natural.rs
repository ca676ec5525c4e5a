//! The order in which people count: `2` before `10`, numbers before words.

use std::{cmp::Ordering, iter::Peekable, str::Chars};

/// Compares two suffixes of variables as a person would.
///
/// Runs of digits compare as numbers of any length, everything else letter by letter without regard
/// to case, and a digit comes before anything else. What is equal by that (`a` and `A`, `1` and
/// `01`) is ordered by its bytes, so two different texts never count as equal.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    by_tokens(a, b).then_with(|| a.cmp(b))
}

fn by_tokens(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.chars().peekable(), b.chars().peekable());
    loop {
        let order = match (a.peek().copied(), b.peek().copied()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (x, y) = (number(&mut a), number(&mut b));
                // Without leading zeros the longer number is the larger one.
                x.len().cmp(&y.len()).then_with(|| x.cmp(&y))
            }
            (Some(x), Some(y)) => {
                a.next();
                b.next();
                let digit_first = y.is_ascii_digit().cmp(&x.is_ascii_digit());
                digit_first.then_with(|| x.to_lowercase().cmp(y.to_lowercase()))
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Takes the digits at the front, without leading zeros.
fn number(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut digits = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        if digit != '0' || !digits.is_empty() {
            digits.push(digit);
        }
    }
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_comes_before_ten_and_numbers_before_words() {
        let mut suffixes = [
            "WORK",
            "10",
            "2",
            "1",
            "home",
            "HOME",
            "01",
            "A10",
            "A2",
            "99999999999999999999999",
            "é",
        ];
        suffixes.sort_by(|a, b| compare(a, b));
        let expected = [
            "01",
            "1",
            "2",
            "10",
            "99999999999999999999999",
            "A2",
            "A10",
            "HOME",
            "home",
            "WORK",
            "é",
        ];
        assert_eq!(suffixes, expected);
    }

    proptest! {
        #[test]
        fn natural_order_is_total(a in "[aAb0-2_é]{0,5}", b in "[aAb0-2_é]{0,5}", c in "[aAb0-2_é]{0,5}") {
            prop_assert_eq!(compare(&a, &b), compare(&b, &a).reverse());
            prop_assert_eq!(compare(&a, &b).is_eq(), a == b);
            if compare(&a, &b).is_le() && compare(&b, &c).is_le() {
                prop_assert!(compare(&a, &c).is_le());
            }
        }

        #[test]
        fn numbers_are_ordered_by_value(a: u64, b: u64) {
            prop_assert_eq!(compare(&a.to_string(), &b.to_string()), a.cmp(&b));
        }
    }
}
