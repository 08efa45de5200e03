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
