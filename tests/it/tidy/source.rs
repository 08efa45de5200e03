//! Just enough of Rust's grammar to see names outside comments and strings, what is test code, and what a path leads to.

/// A name or a mark.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) text: String,
    /// Within `#[cfg(test)]`, or in a file of tests.
    pub(super) test: bool,
}

/// One source file.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) module: Vec<String>,
    pub(super) lines: usize,
    pub(super) tokens: Vec<Token>,
    /// Comments with the line they begin in.
    pub(super) comments: Vec<(usize, String)>,
}

impl Source {
    pub(super) fn parse(path: &str, text: &str) -> Self {
        let module: Vec<String> = path
            .trim_end_matches(".rs")
            .split('/')
            .skip(1)
            .map(str::to_owned)
            .collect();
        let mut lexer = Lexer {
            rest: text,
            line: 1,
            tokens: Vec::new(),
            comments: Vec::new(),
        };
        lexer.run();
        let mut source = Self {
            path: path.to_owned(),
            module,
            lines: text.lines().count(),
            tokens: lexer.tokens,
            comments: lexer.comments,
        };
        source.mark_tests();
        source
    }

    /// Whether token `i` is this text.
    pub(super) fn is(&self, i: usize, text: &str) -> bool {
        self.tokens.get(i).is_some_and(|t| t.text == text)
    }

    fn mark_tests(&mut self) {
        if self.module.iter().any(|m| m == "tests") {
            for token in &mut self.tokens {
                token.test = true;
            }
            return;
        }
        const ATTRIBUTE: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
        for start in 0..self.tokens.len() {
            if !(0..ATTRIBUTE.len()).all(|k| self.is(start + k, ATTRIBUTE[k])) {
                continue;
            }
            let mut depth = 0_usize;
            for token in &mut self.tokens[start + ATTRIBUTE.len()..] {
                token.test = true;
                match &*token.text {
                    "{" => depth += 1,
                    "}" => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth == 0 && ["}", ";"].contains(&&*token.text) {
                    break;
                }
            }
        }
    }

    /// Where paths outside test code lead within the crate, by line: after `crate::`, or after as many `super::` as reach it.
    pub(super) fn crate_paths(&self) -> Vec<(usize, Vec<String>)> {
        let mut found = self.paths_from("crate");
        let depth = self.module.len();
        for i in 0..self.tokens.len() {
            let chain =
                (0..depth).all(|k| self.is(i + 2 * k, "super") && self.is(i + 2 * k + 1, "::"));
            let begins = i < 2 || !self.is(i - 2, "super");
            if chain && begins && !self.tokens[i].test {
                self.tree(i + 2 * depth, &mut Vec::new(), &mut found);
            }
        }
        found
    }

    /// Paths outside test code after `root::`, by line, without the root.
    pub(super) fn paths_from(&self, root: &str) -> Vec<(usize, Vec<String>)> {
        let mut found = Vec::new();
        for i in 0..self.tokens.len() {
            let begins = i == 0 || !self.is(i - 1, "::");
            if self.is(i, root) && self.is(i + 1, "::") && begins && !self.tokens[i].test {
                self.tree(i + 2, &mut Vec::new(), &mut found);
            }
        }
        found
    }

    /// Reads a use tree at token `i`; returns the token after it.
    fn tree(
        &self,
        i: usize,
        prefix: &mut Vec<String>,
        found: &mut Vec<(usize, Vec<String>)>,
    ) -> usize {
        let Some(token) = self.tokens.get(i) else {
            return i;
        };
        if token.text == "{" {
            let mut i = i + 1;
            while i < self.tokens.len() && !self.is(i, "}") {
                i = self.tree(i, prefix, found);
                while i < self.tokens.len() && !self.is(i, ",") && !self.is(i, "}") {
                    i += 1;
                }
                if self.is(i, ",") {
                    i += 1;
                }
            }
            return i + 1;
        }
        prefix.push(token.text.clone());
        let next = if self.is(i + 1, "::") {
            self.tree(i + 2, prefix, found)
        } else {
            found.push((token.line, prefix.clone()));
            i + 1
        };
        prefix.pop();
        next
    }
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<(usize, String)>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(c) = self.rest.chars().next() {
            let length = self.next_length(c);
            let (taken, rest) = self.rest.split_at(length);
            self.line += taken.matches('\n').count();
            self.rest = rest;
        }
    }

    /// Looks at what begins here, keeps it if it is a name, a mark or a comment, and says how long it is.
    fn next_length(&mut self, c: char) -> usize {
        let rest = self.rest;
        if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            self.comments.push((self.line, rest[..length].to_owned()));
            return length;
        }
        if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |i| i + 2);
            self.comments.push((self.line, rest[..length].to_owned()));
            return length;
        }
        if let Some(length) = raw_string(rest) {
            return length;
        }
        if c == '"' || rest.starts_with("b\"") || rest.starts_with("c\"") {
            return quoted(rest);
        }
        if c == '\'' {
            return tick(rest);
        }
        if c == '_' || c.is_alphanumeric() {
            let length = rest
                .find(|c: char| c != '_' && !c.is_alphanumeric())
                .unwrap_or(rest.len());
            self.keep(&rest[..length]);
            return length;
        }
        if rest.starts_with("::") {
            self.keep("::");
            return 2;
        }
        if !c.is_whitespace() {
            self.keep(&rest[..c.len_utf8()]);
        }
        c.len_utf8()
    }

    fn keep(&mut self, text: &str) {
        self.tokens.push(Token {
            line: self.line,
            text: text.to_owned(),
            test: false,
        });
    }
}

/// The length of a string, escapes included.
fn quoted(text: &str) -> usize {
    let start = text.find('"').map_or(0, |i| i + 1);
    let mut escaped = false;
    for (i, c) in text[start..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return start + i + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a raw string, if one begins here.
fn raw_string(text: &str) -> Option<usize> {
    let after = text
        .strip_prefix("r")
        .or_else(|| text.strip_prefix("br"))
        .or_else(|| text.strip_prefix("cr"))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = text.len() - body.len();
    Some(
        body.find(&end)
            .map_or(text.len(), |i| opening + i + end.len()),
    )
}

/// The length of a character, or of a lifetime with its name.
fn tick(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            // The escaped character may itself be a tick.
            chars.next();
            chars
                .find(|(_, c)| *c == '\'')
                .map_or(text.len(), |(i, _)| i + 1)
        }
        Some((_, first)) => match chars.next() {
            Some((i, '\'')) => i + 1,
            _ => {
                let name = text[1..]
                    .find(|c: char| c != '_' && !c.is_alphanumeric())
                    .unwrap_or(text.len() - 1);
                1 + name.max(if first.is_alphanumeric() || first == '_' {
                    1
                } else {
                    0
                })
            }
        },
        None => text.len(),
    }
}
