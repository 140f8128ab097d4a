//! What fuzzing has found stays mended, and its targets compile: every kept input, whole and mutilated, with any compiler.

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

use std::fs;
use std::path::Path;

/// Mutilations of each input.
const EACH: u32 = 150;

/// Says what was tried if it panics.
struct Tried<'a>(&'a str, &'a [u8]);

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {:?}", self.0, self.1.escape_ascii().to_string());
        }
    }
}

fn attempt(name: &str, target: fn(&[u8]), input: &[u8]) {
    let _tried = Tried(name, input);
    target(input);
}

/// xorshift64 (Marsaglia 2003): the same luck every time.
struct Luck(u64);

impl Luck {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most.max(1) as u64) as usize
    }

    fn mutilate(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let place = self.below(bytes.len());
            match (self.below(5), bytes.get_mut(place)) {
                (0, _) => bytes.truncate(place),
                (1, Some(byte)) => *byte = [0, 1, 0x7f, 0x80, 0xff, b'9', b'-', b'"'][self.below(8)],
                (2, Some(_)) => drop(bytes.remove(place)),
                (3, _) => bytes.extend_from_within(place..),
                (_, Some(byte)) => *byte ^= 1 << self.below(8),
                _ => {}
            }
        }
        bytes
    }
}

#[test]
fn every_kept_input_is_survived_whole_and_mutilated() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in fuzz::TARGETS {
        let mut files: Vec<_> = fs::read_dir(corpus.join(name))
            .expect("each target has a corpus")
            .map(|entry| entry.expect("a readable folder").path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{name}");
        let mut luck = Luck(0x9e37_79b9_7f4a_7c15);
        for file in files {
            let input = fs::read(&file).expect("readable");
            let shown = file.display().to_string();
            attempt(&shown, target, &input);
            for _ in 0..EACH {
                attempt(&shown, target, &luck.mutilate(&input));
            }
        }
    }
}
