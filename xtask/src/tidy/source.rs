//! Rust source as the rules see it: comments and strings set apart from code, tests set apart from the rest.

/// One Rust file. All texts have the same lines as the file, so a line number is good for each of them.
pub struct Source {
    /// The code; comments and the contents of strings are blank.
    pub code: String,
    /// The code and its strings; comments are blank.
    pub code_and_strings: String,
    /// Exceptions asked for in comments.
    pub allows: Vec<Allow>,
    /// For each line, whether it belongs to a `#[cfg(test)]` item.
    is_test: Vec<bool>,
}

/// An exception: `// tidy: allow(RULE): REASON`, good for its own line and the next line of code.
#[derive(Debug, PartialEq, Eq)]
pub struct Allow {
    /// Line of the comment, from 1.
    pub line: usize,
    /// Name of the rule.
    pub rule: String,
    /// Why; empty when none is given.
    pub reason: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Text,
    Comment,
}

impl Source {
    /// Reads a file. Source that does not compile may be cut wrongly, but never panics.
    pub fn parse(source: &str) -> Source {
        let characters: Vec<char> = source.chars().collect();
        let kinds = classify(&characters);
        let keep = |wanted: &[Kind]| -> String {
            let pairs = characters.iter().zip(&kinds);
            pairs.map(|(c, kind)| if *c == '\n' || wanted.contains(kind) { *c } else { ' ' }).collect()
        };
        let code = keep(&[Kind::Code]);
        Source {
            is_test: test_lines(&code),
            allows: allows(&keep(&[Kind::Comment])),
            code_and_strings: keep(&[Kind::Code, Kind::Text]),
            code,
        }
    }

    /// The lines of code that are not tests, with their numbers from 1.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.code.lines().enumerate().zip(&self.is_test);
        lines.filter(|(_, is_test)| !**is_test).map(|((index, line), _)| (index + 1, line))
    }

    /// The first line with code below `line` (both from 1), which an exception above it covers. Attributes belong
    /// to what follows them.
    pub fn next_code_line(&self, line: usize) -> usize {
        let mut below = self.code.lines().enumerate().skip(line);
        let is_code = |text: &str| !text.is_empty() && !text.starts_with("#[");
        below.find(|(_, text)| is_code(text.trim())).map_or(line, |(index, _)| index + 1)
    }
}

/// Says of each character whether it is code, the inside of a string or a character, or comment.
fn classify(source: &[char]) -> Vec<Kind> {
    let mut kinds = vec![Kind::Code; source.len()];
    let mut at = 0;
    while at < source.len() {
        let (end, kind) = match (source[at], source.get(at + 1).copied().unwrap_or('\0')) {
            ('/', '/') => (line_end(source, at), Kind::Comment),
            ('/', '*') => (block_comment_end(source, at), Kind::Comment),
            ('"', _) => (string_end(source, at + 1), Kind::Text),
            ('r', '"' | '#') if !continues_word(source, at) => match raw_string_end(source, at + 1) {
                Some(end) => (end, Kind::Text),
                None => (at + 1, Kind::Code),
            },
            ('\'', _) => match character_end(source, at) {
                Some(end) => (end, Kind::Text),
                None => (at + 1, Kind::Code),
            },
            _ => (at + 1, Kind::Code),
        };
        kinds[at..end].fill(kind);
        at = end;
    }
    kinds
}

/// Whether the character before `at` belongs to the same word, as in `for"`. The `b` of `br"` does not count.
fn continues_word(source: &[char], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| source[before]);
    before.is_some_and(|c| (c.is_alphanumeric() && c != 'b' && c != 'c') || c == '_')
}

fn line_end(source: &[char], at: usize) -> usize {
    source[at..].iter().position(|c| *c == '\n').map_or(source.len(), |length| at + length)
}

/// Block comments nest.
fn block_comment_end(source: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < source.len() {
        match source[at..] {
            ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
            ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    source.len()
}

fn string_end(source: &[char], mut at: usize) -> usize {
    while at < source.len() {
        match source[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    source.len()
}

/// End of a raw string whose hashes or quote stand at `at`; `None` for a raw identifier such as `r#type`.
fn raw_string_end(source: &[char], at: usize) -> Option<usize> {
    let hashes = source[at..].iter().take_while(|c| **c == '#').count();
    let body = at + hashes + 1;
    if source.get(at + hashes) != Some(&'"') {
        return None;
    }
    let closes =
        |at: usize| source[at] == '"' && source[at + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((body..source.len()).find(|at| closes(*at)).map_or(source.len(), |at| at + 1 + hashes))
}

/// End of a character literal at `at`; `None` for a lifetime.
fn character_end(source: &[char], at: usize) -> Option<usize> {
    match source[at + 1..] {
        ['\\', _, ..] => {
            let end = source[at + 3..].iter().position(|c| *c == '\'')?;
            Some(at + 3 + end + 1)
        }
        [_, '\'', ..] => Some(at + 3),
        _ => None,
    }
}

fn allows(comments: &str) -> Vec<Allow> {
    let read = |(index, line): (usize, &str)| {
        let rest = line.trim_start().strip_prefix("// tidy: allow(")?;
        let (rule, after) = rest.split_once(')')?;
        let reason = after.strip_prefix(':').unwrap_or_default().trim();
        Some(Allow { line: index + 1, rule: rule.to_owned(), reason: reason.to_owned() })
    };
    comments.lines().enumerate().filter_map(read).collect()
}

/// Marks what `#[cfg(test)]` covers: from the attribute to the end of the item's braces, or to its semicolon.
fn test_lines(code: &str) -> Vec<bool> {
    let mut marks = vec![false; code.lines().count()];
    for (start, attribute) in code.match_indices("#[cfg(test)]") {
        let body = start + attribute.len();
        let end = item_end(&code[body..]).map_or(code.len(), |length| body + length);
        let first = code[..start].matches('\n').count();
        let last = code[..end].matches('\n').count();
        let until = marks.len().min(last + 1);
        marks[first.min(until)..until].fill(true);
    }
    marks
}

/// Length of an item: to its closing brace, or to a semicolon before any brace.
fn item_end(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' => {}
            _ => continue,
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_not_code() {
        let source = Source::parse(
            "let a = \"x \\\" y\"; // z\nlet b = 1; /* c /* d */ e */ let f = r#\"g \" h\"#;\n",
        );
        let words: Vec<&str> = source.code.split_whitespace().collect();
        assert_eq!(words, ["let", "a", "=", ";", "let", "b", "=", "1;", "let", "f", "=", ";"]);
        assert!(source.code_and_strings.contains("g \" h"));
        assert!(!source.code_and_strings.contains('z'));
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        let source = Source::parse("fn f<'a>(r#type: &'a str, b: char) { b == '\"' || b == '\\'' }");
        assert!(source.code.contains("fn f<'a>(r#type: &'a str, b: char)"));
        assert!(source.code.contains('}'), "the quotes in characters open no string: {}", source.code);
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "// a\n\"b\nc\"\n/* d\n e */ let x = 1;\n";
        let source = Source::parse(text);
        assert_eq!(source.code.lines().count(), text.lines().count());
        assert_eq!(source.code.lines().nth(4).map(str::trim), Some("let x = 1;"));
    }

    #[test]
    fn test_modules_are_told_apart() {
        let source = Source::parse("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n");
        assert_eq!(source.is_test, [false, true, true, true, true, false]);
        let outside = Source::parse("#[cfg(test)]\nmod tests;\nfn c() {}\n");
        assert_eq!(outside.is_test, [true, true, false]);
    }

    #[test]
    fn an_exception_has_a_rule_and_a_reason() {
        let source = Source::parse("// tidy: allow(eight): RFC 6298 gives 1/8\n\nlet x = y / 8;\n");
        let wanted = Allow { line: 1, rule: "eight".into(), reason: "RFC 6298 gives 1/8".into() };
        assert_eq!(source.allows, [wanted]);
        assert_eq!(source.next_code_line(1), 3);
        let source = Source::parse("// tidy: allow(pure): why\n#[allow(x)]\n// more\nlet x = 1;\n");
        assert_eq!(source.next_code_line(1), 4);
    }

    #[test]
    fn broken_source_does_not_panic() {
        for text in
            ["\"", "'", "'\\", "r#", "/*", "b'", "#[cfg(test)]", "#[cfg(test)] mod x {", "\\", "'é", "r\"é"]
        {
            Source::parse(text);
        }
    }
}
