//! The order that Go's `sort.Slice` gives, equal elements included.
//!
//! Upstream sorts its open claims with it before each attempt, so which of two equally full claims takes a pod depends on it. The
//! algorithm is pattern-defeating quicksort as the Go standard library (BSD-3-Clause, The Go Authors) has it since 1.19: up to 12
//! elements insertion sort, beyond that not stable but always the same.

/// Longest run that is sorted by insertion.
const INSERTION: usize = 12;
/// From here on the pivot is a median of medians; also the shortest run in which single elements are shifted.
const LONG: usize = 50;
/// Out-of-order places that are mended before giving up on "nearly sorted".
const MENDS: usize = 5;
/// Swaps of a pivot search on a run that falls throughout.
const FALLING: usize = 12;

/// Sorts `items` by `less`, equal ones in the order in which Go leaves them.
pub(super) fn sort<T>(items: &mut [T], less: impl Fn(&T, &T) -> bool) {
    let bits = (usize::BITS - items.len().leading_zeros()) as usize;
    let end = items.len();
    Sorter { items, less }.quick(0, end, bits);
}

struct Sorter<'a, T, F> {
    items: &'a mut [T],
    less: F,
}

impl<T, F: Fn(&T, &T) -> bool> Sorter<'_, T, F> {
    fn less(&self, i: usize, j: usize) -> bool {
        (self.less)(&self.items[i], &self.items[j])
    }

    fn insertion(&mut self, a: usize, b: usize) {
        for i in a + 1..b {
            self.sink(i, a);
        }
    }

    /// Moves the element at `i` down towards `floor` past all that are greater.
    fn sink(&mut self, mut i: usize, floor: usize) {
        while i > floor && self.less(i, i - 1) {
            self.items.swap(i, i - 1);
            i -= 1;
        }
    }

    fn quick(&mut self, mut a: usize, mut b: usize, mut patience: usize) {
        let (mut balanced, mut partitioned) = (true, true);
        loop {
            let length = b - a;
            if length <= INSERTION {
                return self.insertion(a, b);
            }
            if patience == 0 {
                return self.heap(a, b);
            }
            if !balanced {
                self.scatter(a, b);
                patience -= 1;
            }
            let (mut pivot, swaps) = self.pivot(a, b);
            if swaps == FALLING {
                self.items[a..b].reverse();
                pivot = (b - 1) - (pivot - a);
            }
            let rising = swaps == 0 || swaps == FALLING;
            if balanced && partitioned && rising && self.mend(a, b) {
                return;
            }
            if a > 0 && !self.less(a - 1, pivot) {
                a = self.split_equal(a, b, pivot);
                continue;
            }
            let middle;
            (middle, partitioned) = self.split(a, b, pivot);
            let (left, right) = (middle - a, b - middle);
            balanced = left.min(right) >= length / 8;
            if left < right {
                self.quick(a, middle, patience);
                a = middle + 1;
            } else {
                self.quick(middle + 1, b, patience);
                b = middle;
            }
        }
    }

    /// Less than the pivot to the left, the rest to the right; says where the pivot is and whether nothing had to move.
    fn split(&mut self, a: usize, b: usize, pivot: usize) -> (usize, bool) {
        self.items.swap(a, pivot);
        let (mut i, mut j) = (a + 1, b - 1);
        let mut settled = true;
        loop {
            while i <= j && self.less(i, a) {
                i += 1;
            }
            while i <= j && !self.less(j, a) {
                j -= 1;
            }
            if i > j {
                break;
            }
            settled = false;
            self.items.swap(i, j);
            i += 1;
            j -= 1;
        }
        self.items.swap(j, a);
        (j, settled)
    }

    /// Equal to the pivot to the left, greater to the right, where nothing is smaller; says where the greater ones begin.
    fn split_equal(&mut self, a: usize, b: usize, pivot: usize) -> usize {
        self.items.swap(a, pivot);
        let (mut i, mut j) = (a + 1, b - 1);
        loop {
            while i <= j && !self.less(a, i) {
                i += 1;
            }
            while i <= j && self.less(a, j) {
                j -= 1;
            }
            if i > j {
                return i;
            }
            self.items.swap(i, j);
            i += 1;
            j -= 1;
        }
    }

    /// Mends a few places of a nearly sorted run; true if it is sorted then.
    fn mend(&mut self, a: usize, b: usize) -> bool {
        let mut i = a + 1;
        for _ in 0..MENDS {
            while i < b && !self.less(i, i - 1) {
                i += 1;
            }
            if i == b {
                return true;
            }
            if b - a < LONG {
                return false;
            }
            self.items.swap(i, i - 1);
            if i - a >= 2 {
                self.sink(i - 1, 0);
            }
            if b - i >= 2 {
                let mut j = i + 1;
                while j < b && self.less(j, j - 1) {
                    self.items.swap(j, j - 1);
                    j += 1;
                }
            }
        }
        false
    }

    /// Breaks patterns that lead to lopsided splits, with numbers drawn from the length alone.
    fn scatter(&mut self, a: usize, b: usize) {
        let length = b - a;
        let mut random = length as u64;
        let mask = (1_usize << (usize::BITS - length.leading_zeros())) - 1;
        let middle = a + (length / 4) * 2;
        for place in middle - 1..=middle + 1 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let mut other = (random as usize) & mask;
            if other >= length {
                other -= length;
            }
            self.items.swap(place, a + other);
        }
    }

    fn pivot(&self, a: usize, b: usize) -> (usize, usize) {
        let length = b - a;
        let mut swaps = 0;
        let [mut i, mut j, mut k] = [1, 2, 3].map(|quarter| a + length / 4 * quarter);
        if length >= LONG {
            i = self.median(i - 1, i, i + 1, &mut swaps);
            j = self.median(j - 1, j, j + 1, &mut swaps);
            k = self.median(k - 1, k, k + 1, &mut swaps);
        }
        (self.median(i, j, k, &mut swaps), swaps)
    }

    fn median(&self, mut a: usize, mut b: usize, c: usize, swaps: &mut usize) -> usize {
        if self.less(b, a) {
            *swaps += 1;
            (a, b) = (b, a);
        }
        if self.less(c, b) {
            *swaps += 1;
            b = c;
        }
        if self.less(b, a) {
            *swaps += 1;
            b = a;
        }
        b
    }

    fn heap(&mut self, a: usize, b: usize) {
        let length = b - a;
        for i in (0..=(length - 1) / 2).rev() {
            self.sift(i, length, a);
        }
        for i in (0..length).rev() {
            self.items.swap(a, a + i);
            self.sift(0, i, a);
        }
    }

    fn sift(&mut self, mut root: usize, end: usize, first: usize) {
        loop {
            let mut child = 2 * root + 1;
            if child >= end {
                return;
            }
            if child + 1 < end && self.less(first + child, first + child + 1) {
                child += 1;
            }
            if !self.less(first + root, first + child) {
                return;
            }
            self.items.swap(first + root, first + child);
            root = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from Go 1.26: a hash over 20 sorts of `n` elements with about `distinct` keys, one element growing between two sorts.
    const RECORDED: [(&str, usize, u64, u64); 33] = [
        ("random", 5, 3, 0xf350d7258e9b3335),
        ("random", 12, 4, 0xafa8ed422e069bdd),
        ("random", 13, 2, 0x2c110f014582046f),
        ("random", 20, 3, 0x81ba793b0ae84cd3),
        ("random", 49, 5, 0xb134d9e51333eda5),
        ("random", 50, 4, 0x9002a73e83410581),
        ("random", 51, 1000, 0x3cd9bcf075d72eed),
        ("random", 120, 3, 0x48144e0cb2fbd963),
        ("random", 500, 7, 0x9246691abd20ab1),
        ("random", 1000, 2, 0x25ec022844c1d903),
        ("random", 1000, 100000, 0xfcf53f253dc35c75),
        ("falling", 5, 3, 0xa11434719956a183),
        ("falling", 12, 4, 0x23be1801166b6525),
        ("falling", 13, 2, 0xbb83fc351a241009),
        ("falling", 20, 3, 0x47eef0616566a53d),
        ("falling", 49, 5, 0xdacad75cbf7b53d),
        ("falling", 50, 4, 0x8f34068f7694077b),
        ("falling", 51, 1000, 0xde7b63a55e4776c3),
        ("falling", 120, 3, 0x186e120e32971f27),
        ("falling", 500, 7, 0x98e699290d346311),
        ("falling", 1000, 2, 0x90514f6c3b225af),
        ("falling", 1000, 100000, 0xe563688fbf8cce13),
        ("rising", 5, 3, 0x47f32081f8bbc6b),
        ("rising", 12, 4, 0xd287fb91c1bf1f47),
        ("rising", 13, 2, 0xd9ac63c4489fbcc9),
        ("rising", 20, 3, 0x25065e628e8d5c8b),
        ("rising", 49, 5, 0xea9b68db3c49cbab),
        ("rising", 50, 4, 0x36750889e7872b79),
        ("rising", 51, 1000, 0xde7b63a55e4776c3),
        ("rising", 120, 3, 0xe4266765f3d319d9),
        ("rising", 500, 7, 0xe2142d95b67b1a67),
        ("rising", 1000, 2, 0x1b4395031f8dd899),
        ("rising", 1000, 100000, 0xe563688fbf8cce13),
    ];

    #[test]
    fn equal_elements_end_up_where_go_puts_them() {
        for (shape, n, distinct, wanted) in RECORDED {
            let mut seed = 42_u64;
            let mut draw = || {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                seed
            };
            let mut items: Vec<(u64, u64)> = (0..n as u64)
                .map(|i| {
                    let random = (draw() >> 33) % distinct;
                    match shape {
                        "falling" => ((n as u64 - i) / distinct, i),
                        "rising" => (i / distinct, i),
                        _ => (random, i),
                    }
                })
                .collect();
            let mut hash = 0xcbf2_9ce4_8422_2325_u64;
            for _ in 0..20 {
                sort(&mut items, |a, b| a.0 < b.0);
                for (_, id) in &items {
                    hash = (hash ^ id).wrapping_mul(0x0100_0000_01b3);
                }
                let drawn = draw();
                items[((drawn >> 33) % n as u64) as usize].0 += 1 + (drawn >> 40) % 3;
            }
            assert_eq!(hash, wanted, "{shape} {n} {distinct}");
        }
    }
}
