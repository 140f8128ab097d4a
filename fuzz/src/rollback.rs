//! Any bytes are a word that is written back the same or none; whatever TCP brings is frames or refused, and is not kept.

use skyhaul_pep::rollback::wire::{put_frame, Frames, Word, FRAME_HEAD, FRAME_MOST, WORD};

/// One input.
pub fn run(bytes: &[u8]) {
    if let Some((word, tag)) = Word::decode(bytes) {
        assert!(Word::is_there(bytes) && usize::from(word.size) == bytes.len());
        assert_eq!([&word.head()[..], &tag[..]].concat(), bytes[..WORD]);
    }
    for most in [WORD, FRAME_MOST] {
        let (mut frames, mut again) = (Frames::default(), Vec::new());
        let mut fine = true;
        for piece in bytes.chunks(7) {
            frames.push(piece);
            loop {
                match frames.next(most) {
                    Ok(Some((frame, marked))) => {
                        assert!(!frame.is_empty() && frame.len() <= most);
                        put_frame(frame, marked, &mut again);
                    }
                    Ok(None) => break,
                    Err(_) => fine = false,
                }
                if !fine {
                    break;
                }
            }
            if !fine {
                break;
            }
            assert!(frames.waiting() < FRAME_HEAD + most);
        }
        assert_eq!(again, bytes[..again.len()]);
    }
}
