//! The scanner: octets to tokens. It knows lines, quotes, parentheses, comments and escapes, and no DNS.
//!
//! It works on a window of the file. When a token might go on past the window's end it says [`Stop::More`]; the
//! reader then goes back to the start of the entry, reads on, and scans the entry again.

use super::masks::Masks;
use memchr::memchr;

/// What an octet is to the scanner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Blank,
    Newline,
    Comment,
    Open,
    Close,
    Quote,
    Escape,
    Nul,
}

#[inline]
fn kind(octet: u8) -> Kind {
    match octet {
        b' ' | b'\t' | b'\r' => Kind::Blank,
        b'\n' => Kind::Newline,
        b';' => Kind::Comment,
        b'(' => Kind::Open,
        b')' => Kind::Close,
        b'"' => Kind::Quote,
        b'\\' => Kind::Escape,
        0 => Kind::Nul,
        _ => Kind::Plain,
    }
}

/// Why scanning stopped before the end of an entry.
#[derive(Debug)]
pub(super) enum Stop {
    /// The window ends within the entry.
    More,
    /// Something is wrong.
    Wrong(Box<Fault>),
}

/// What is wrong, and where in the file.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) rule: &'static str,
    pub(super) message: String,
    /// Nothing that follows in this file can make sense.
    pub(super) is_fatal: bool,
}

/// How a token was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Without quotes and backslashes.
    Plain,
    /// Without quotes, with at least one backslash.
    Escaped,
    /// In quotes, which are not part of the text.
    Quoted,
}

/// A token with its escapes as they were written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub(super) text: &'t [u8],
    pub(super) form: Form,
}

/// A place to go back to.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pub(super) at: usize,
    pub(super) line: u32,
}

/// The scanner of one window.
pub(super) struct Scanner<'t> {
    window: &'t [u8],
    masks: &'t Masks,
    /// The window runs to the end of the file.
    is_last: bool,
    at: usize,
    line: u32,
    /// Where the line starts in the window; every window starts with a line.
    line_at: usize,
    token_at: usize,
    token_line: u32,
    token_line_at: usize,
    depth: u32,
    /// Line and column of the outermost parenthesis that is open.
    opened: (u32, u32),
    entry_ended: bool,
    file_ended: bool,
}

impl<'t> Scanner<'t> {
    /// A scanner of a window, to which `masks` belong, that starts with the line numbered `line`.
    pub(super) fn new(window: &'t [u8], masks: &'t Masks, is_last: bool, line: u32) -> Scanner<'t> {
        Scanner {
            window,
            masks,
            is_last,
            at: 0,
            line,
            line_at: 0,
            token_at: 0,
            token_line: line,
            token_line_at: 0,
            depth: 0,
            opened: (0, 0),
            entry_ended: false,
            file_ended: false,
        }
    }

    /// The start of the next line that is to be scanned.
    pub(super) fn mark(&self) -> Mark {
        Mark { at: self.at, line: self.line }
    }

    /// Starts an entry at the current line.
    pub(super) fn begin_entry(&mut self) {
        self.depth = 0;
        self.entry_ended = false;
        self.token_at = self.at;
        self.token_line = self.line;
        self.token_line_at = self.line_at;
    }

    /// Whether the entry ended because the file did.
    pub(super) fn has_file_ended(&self) -> bool {
        self.file_ended
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.window.len()
    }

    /// Whether the entry's first octet is white space: its owner is left out.
    pub(super) fn starts_blank(&self) -> bool {
        self.window.get(self.at).is_some_and(|&octet| kind(octet) == Kind::Blank)
    }

    /// Whether the octet that follows directly is a quote.
    pub(super) fn is_glued_to_quote(&self) -> bool {
        self.window.get(self.at) == Some(&b'"')
    }

    /// Line and column of the token that was scanned last, or of the entry's end when it has ended.
    #[inline]
    pub(super) fn place(&self) -> (u32, u32) {
        let column = u32::try_from(self.token_at - self.token_line_at).unwrap_or(u32::MAX - 1) + 1;
        (self.token_line, column)
    }

    /// The next token of the entry, or `None` at its end.
    #[inline]
    pub(super) fn token(&mut self) -> Result<Option<Token<'t>>, Stop> {
        loop {
            if self.entry_ended {
                return Ok(None);
            }
            let Some(&octet) = self.window.get(self.at) else { return self.end_of_window() };
            match kind(octet) {
                Kind::Blank => self.at += 1,
                Kind::Plain => return self.contiguous().map(Some),
                _ => {
                    if let Some(token) = self.special(octet)? {
                        return Ok(Some(token));
                    }
                }
            }
        }
    }

    /// What is left of the entry as it stands in the file, white space, comments and all.
    pub(super) fn rest_of_entry(&mut self) -> Result<&'t [u8], Stop> {
        let start = self.at;
        while self.token()?.is_some() {}
        Ok(self.window.get(start..self.token_at).unwrap_or(&[]).trim_ascii_start())
    }

    fn end_of_window(&mut self) -> Result<Option<Token<'t>>, Stop> {
        if !self.is_last {
            return Err(Stop::More);
        }
        self.here();
        if self.depth > 0 {
            let (line, column) = self.opened;
            let message = "the parenthesis that opens here is never closed".to_owned();
            return Err(Stop::Wrong(Box::new(Fault {
                line,
                column,
                rule: "parenthesis",
                message,
                is_fatal: true,
            })));
        }
        self.entry_ended = true;
        self.file_ended = true;
        Ok(None)
    }

    /// Whatever is neither white space nor plain text; yields a token where one starts.
    fn special(&mut self, octet: u8) -> Result<Option<Token<'t>>, Stop> {
        match kind(octet) {
            Kind::Newline => self.newline(),
            Kind::Comment => self.at = self.end_of_line(),
            Kind::Open => {
                self.here();
                if self.depth == 0 {
                    self.opened = self.place();
                }
                self.depth += 1;
                self.at += 1;
            }
            Kind::Close => {
                self.here();
                if self.depth == 0 {
                    return Err(self.wrong("parenthesis", "this parenthesis closes nothing"));
                }
                self.depth -= 1;
                self.at += 1;
            }
            Kind::Quote => return self.quoted().map(Some),
            Kind::Nul => return Err(self.nul()),
            Kind::Escape | Kind::Plain | Kind::Blank => return self.contiguous().map(Some),
        }
        Ok(None)
    }

    /// Ends the line, and with it the entry unless a parenthesis is open.
    #[inline]
    fn newline(&mut self) {
        if self.depth == 0 {
            self.here();
            self.entry_ended = true;
        }
        self.at += 1;
        self.line = self.line.saturating_add(1);
        self.line_at = self.at;
    }

    fn end_of_line(&self) -> usize {
        let rest = self.window.get(self.at..).unwrap_or(&[]);
        memchr(b'\n', rest).map_or(self.window.len(), |len| self.at + len)
    }

    /// Notes the current octet as the place of what is scanned.
    #[inline]
    fn here(&mut self) {
        self.token_at = self.at;
        self.token_line = self.line;
        self.token_line_at = self.line_at;
    }

    #[inline]
    fn contiguous(&mut self) -> Result<Token<'t>, Stop> {
        self.here();
        let mut end = self.at;
        let mut form = Form::Plain;
        loop {
            end = self.masks.next_special(end);
            let Some(&octet) = self.window.get(end) else {
                if !self.is_last {
                    return Err(Stop::More);
                }
                end = self.window.len();
                break;
            };
            match kind(octet) {
                Kind::Plain => end += 1,
                Kind::Escape => {
                    end += self.escape_len(self.window.get(end + 1))?;
                    form = Form::Escaped;
                }
                _ => break,
            }
        }
        let text = self.window.get(self.at..end).unwrap_or(&[]);
        self.at = end;
        Ok(Token { text, form })
    }

    /// The masks of the window, and where in it the token stands that was scanned last.
    #[inline]
    pub(super) fn token_masks(&self) -> (&'t Masks, usize) {
        (self.masks, self.token_at)
    }

    /// A backslash takes the next octet with it, whatever it is, but not the end of the line.
    fn escape_len(&self, next: Option<&u8>) -> Result<usize, Stop> {
        match next {
            None if !self.is_last => Err(Stop::More),
            None | Some(b'\n' | b'\r') => {
                Err(self.wrong("escape", "a backslash at the end of the line escapes nothing"))
            }
            Some(_) => Ok(2),
        }
    }

    fn quoted(&mut self) -> Result<Token<'t>, Stop> {
        self.here();
        let text = self.window.get(self.at + 1..).unwrap_or(&[]);
        let mut len = 0;
        loop {
            match text.get(len) {
                None if !self.is_last => return Err(Stop::More),
                None | Some(b'\n') => {
                    return Err(self.wrong("quote", "the quote that opens here is not closed on this line"));
                }
                Some(b'"') => break,
                Some(b'\\') => len += self.escape_len(text.get(len + 1))?,
                Some(_) => len += 1,
            }
        }
        self.at += len + 2;
        Ok(Token { text: text.get(..len).unwrap_or(&[]), form: Form::Quoted })
    }

    fn nul(&mut self) -> Stop {
        self.here();
        let (line, column) = self.place();
        let message = "an octet of value zero: this is not a text file".to_owned();
        Stop::Wrong(Box::new(Fault { line, column, rule: "nul", message, is_fatal: true }))
    }

    /// An error at the token that was scanned last.
    #[cold]
    pub(super) fn wrong(&self, rule: &'static str, message: impl Into<String>) -> Stop {
        let (line, column) = self.place();
        let mut message = message.into();
        if self.depth > 0 && self.opened.0 < line && rule != "parenthesis" {
            message = format!("{message} (the parenthesis opened on line {} is still open)", self.opened.0);
        }
        Stop::Wrong(Box::new(Fault { line, column, rule, message, is_fatal: false }))
    }

    /// Goes on to the entry's end after an error in it.
    ///
    /// An entry that has no end, because a parenthesis is never closed or a quote in it does not match, is left
    /// at the first line after the error that starts with something else than white space.
    pub(super) fn skip_entry(&mut self) -> Result<(), Stop> {
        let (at, line, line_at) = (self.at, self.line, self.line_at);
        loop {
            match self.token() {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(Stop::More) => return Err(Stop::More),
                Err(Stop::Wrong(_)) if self.depth == 0 => {
                    self.at = self.end_of_line();
                    if self.is_at_end() {
                        return self.end_of_window().map(|_| ());
                    }
                    self.newline();
                    return Ok(());
                }
                Err(Stop::Wrong(_)) => break,
            }
        }
        (self.at, self.line, self.line_at) = (at, line, line_at);
        self.skip_indented_lines()
    }

    fn skip_indented_lines(&mut self) -> Result<(), Stop> {
        loop {
            self.depth = 0;
            self.at = self.end_of_line();
            if self.is_at_end() {
                return self.end_of_window().map(|_| ());
            }
            self.newline();
            match self.window.get(self.at).map(|&octet| kind(octet)) {
                Some(Kind::Blank | Kind::Newline | Kind::Close | Kind::Comment) => {}
                None if !self.is_last => return Err(Stop::More),
                _ => return Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Vec<String> {
        let mut masks = Masks::default();
        masks.fill(text.as_bytes());
        let mut scanner = Scanner::new(text.as_bytes(), &masks, true, 1);
        let mut tokens = Vec::new();
        while let Some(token) = scanner.token().unwrap() {
            tokens.push(String::from_utf8(token.text.to_vec()).unwrap());
        }
        tokens
    }

    fn fault(text: &str) -> (u32, u32, &'static str) {
        let mut masks = Masks::default();
        masks.fill(text.as_bytes());
        let mut scanner = Scanner::new(text.as_bytes(), &masks, true, 1);
        loop {
            match scanner.token() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{text:?} has no fault"),
                Err(Stop::More) => panic!("the window is the last"),
                Err(Stop::Wrong(fault)) => return (fault.line, fault.column, fault.rule),
            }
        }
    }

    #[test]
    fn tokens_end_at_white_space_comments_parentheses_and_quotes() {
        assert_eq!(entry("a b\tc;d\ne"), ["a", "b", "c"]);
        assert_eq!(entry("a(b;x\n)c"), ["a", "b", "c"]);
        assert_eq!(entry("a\"b c\"d"), ["a", "b c", "d"]);
        assert_eq!(entry(r#"a\;b \"c "\";""#), [r"a\;b", r#"\"c"#, r#"\";"#]);
    }

    #[test]
    fn parentheses_let_an_entry_run_over_lines() {
        assert_eq!(entry("a ( b ; one\n c ) d\nnext"), ["a", "b", "c", "d"]);
        assert_eq!(entry("a ((b)\n) c"), ["a", "b", "c"]);
    }

    #[test]
    fn what_does_not_match_is_shown_where_it_opens() {
        assert_eq!(fault("a ( b\n c"), (1, 3, "parenthesis"));
        assert_eq!(fault("a b )"), (1, 5, "parenthesis"));
        assert_eq!(fault("a \"b c\nd"), (1, 3, "quote"));
        assert_eq!(fault("a \\\n"), (1, 3, "escape"));
        assert_eq!(fault("a (\n \0"), (2, 2, "nul"));
    }

    #[test]
    fn a_window_that_ends_within_an_entry_asks_for_more() {
        for text in ["a", "a (b\n", "a \"b", "a \\", "a ; c", "a "] {
            let mut masks = Masks::default();
            masks.fill(text.as_bytes());
            let mut scanner = Scanner::new(text.as_bytes(), &masks, false, 1);
            let stop = std::iter::repeat_with(|| scanner.token()).find_map(Result::err);
            assert!(matches!(stop, Some(Stop::More)), "{text:?}");
        }
    }
}
