use super::*;

fn fault(payload: &[u8]) -> Malformed {
    Json::parse(payload).expect_err("the payload is malformed")
}

fn read(payload: &str) -> Json<'_> {
    Json::parse(payload.as_bytes()).unwrap()
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn every_kind_of_value_is_read() {
    let json =
        read(r#" {"a":null,"b":true,"c":false,"d":-1.50E+3,"e":"x","f":[],"g":{}, "h":[1,"2"]} "#);
    let kinds: Vec<&str> = json
        .object()
        .unwrap()
        .iter()
        .map(|(_, value)| value.kind())
        .collect();
    assert_eq!(
        kinds,
        [
            "null",
            "a boolean",
            "a boolean",
            "a number",
            "text",
            "an array",
            "an object",
            "an array"
        ]
    );
    assert_eq!(json.get("d").and_then(Json::number), Some("-1.50E+3"));
    assert_eq!(json.get("h").and_then(Json::array).map(<[_]>::len), Some(2));
    assert_eq!(json.get("i"), None);
}

#[test]
fn t87_a_number_beyond_f64_keeps_its_digits() {
    for source in [
        "327267367867168100000",
        "73314510714175488",
        "0.1",
        "1e999",
        "-0",
        "1.0",
    ] {
        assert_eq!(read(source), Json::Number(source));
        assert_eq!(
            read(&format!("[{source}]")).array(),
            Some(&[Json::Number(source)][..])
        );
    }
}

#[test]
fn t88_a_duplicate_name_is_malformed() {
    let found = fault(br#"{"amount":1,"amount":1000000}"#);
    assert_eq!(found.field.as_deref(), Some("amount"));
    assert_eq!(
        found.detail,
        r#"the name "amount" occurs twice in the object at byte 0"#
    );
}

#[test]
fn t88_a_duplicate_name_is_found_under_escapes_and_deep_inside() {
    assert_eq!(fault(br#"{"a":1,"\u0061":2}"#).field.as_deref(), Some("a"));
    let found = fault(br#"{"legs":[{"amount":1},{"amount":1,"amount":2}]}"#);
    assert_eq!(found.field.as_deref(), Some("legs/1/amount"));
    assert_eq!(
        found.to_string(),
        r#"the name "amount" occurs twice in the object at byte 22"#
    );
}

#[test]
fn t88_a_duplicate_name_is_found_among_thousands() {
    let names: Vec<String> = (0..50_000).map(|i| format!(r#""n{i}":0"#)).collect();
    let payload = format!("{{{}}}", names.join(","));
    assert_eq!(read(&payload).object().map(Object::len), Some(50_000));
    let payload = format!(r#"{{{},"n49":1}}"#, names.join(","));
    assert_eq!(fault(payload.as_bytes()).field.as_deref(), Some("n49"));
}

#[test]
fn nesting_ends_at_its_limit_and_never_on_the_stack() {
    assert!(Json::parse(nested(DEPTH_MAX).as_bytes()).is_ok());
    let found = fault(nested(DEPTH_MAX + 1).as_bytes());
    assert_eq!(found.detail, "nested deeper than 64 levels at byte 64");
    for payload in [
        nested(100_000),
        "[".repeat(100_000),
        r#"{"a":"#.repeat(100_000),
        format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000)),
    ] {
        fault(payload.as_bytes());
    }
}

#[test]
fn a_byte_order_mark_is_named() {
    let found = fault(b"\xEF\xBB\xBF{\"event_id\":\"w-1\"}\r\n");
    assert!(
        found.detail.contains("byte order mark (BOM, EF BB BF)"),
        "{found}"
    );
    assert!(fault(b"\xFF\xFE{\0}\0").detail.contains("FF FE"));
}

#[test]
fn white_space_around_the_value_is_fine_and_anything_else_is_not() {
    assert_eq!(read("\r\n\t {} \r\n").object().map(Object::len), Some(0));
    for payload in [
        "{} {}", "{},", "1 2", "[]x", "\"a\"b", "{}\0", "\u{a0}{}", "{}\u{c}", "\u{c}{}",
    ] {
        let found = fault(payload.as_bytes());
        assert!(
            found.detail.contains("is not JSON from byte"),
            "{payload}: {found}"
        );
    }
}

#[test]
fn a_payload_without_a_value_is_malformed() {
    for payload in ["", " ", "\n"] {
        assert_eq!(fault(payload.as_bytes()).detail, "the payload is empty");
    }
}

#[test]
fn bytes_that_are_not_utf8_are_malformed() {
    assert_eq!(
        fault(b"{\"a\":\"\xC3\"}").detail,
        "the payload is not UTF-8 at byte 6"
    );
    fault(b"\"\xED\xA0\x80\"");
    fault(b"\"\xC0\xAF\"");
}

#[test]
fn a_lone_surrogate_is_malformed_and_a_pair_is_a_character() {
    for payload in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#"{"a":"\ud800x"}"#,
        r#"{"\ud800":1}"#,
        r#""\ud800\u0041""#,
    ] {
        fault(payload.as_bytes());
    }
    assert_eq!(
        fault(br#"{"legs":[{"id":"\udc00"}]}"#).field.as_deref(),
        Some("legs/0/id")
    );
    assert!(fault(br#"{"a":"\ud800x"}"#).detail.contains("at byte 1"));
    assert_eq!(read(r#""\ud83c\udfb2""#), Json::Text("🎲".into()));
}

#[test]
fn what_other_parsers_allow_is_malformed() {
    for payload in [
        "{'a':1}",
        "{a:1}",
        "[1,]",
        "{\"a\":1,}",
        "01",
        "+1",
        ".5",
        "1.",
        "1e",
        "0x10",
        "NaN",
        "Infinity",
        "-",
        "nul",
        "tru",
        "// c\n1",
        "\"\n\"",
        "\"\\x41\"",
        "\"\\u12\"",
        "\"",
        "[",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "[1 2]",
        "]",
    ] {
        fault(payload.as_bytes());
    }
}

#[test]
fn text_borrows_from_the_payload_unless_it_has_escapes() {
    let json = read(r#"["plain","\u0065scaped"]"#);
    let borrowed = |at: usize| matches!(json.array().unwrap()[at], Json::Text(Cow::Borrowed(_)));
    assert_eq!((borrowed(0), borrowed(1)), (true, false));
    assert_eq!(json.array().unwrap()[1].text(), Some("escaped"));
}

#[test]
fn pointers_follow_names_and_positions() {
    // The examples of RFC 6901, section 5.
    let json =
        read(r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"i\\j":5,"k\"l":6," ":7,"m~n":8}"#);
    let at = |pointer: &str| {
        json.at(&Pointer::parse(pointer).unwrap())
            .map(|value| canonical(value))
    };
    assert_eq!(at(""), Some(canonical(&json)));
    for (pointer, value) in [
        ("/foo", r#"["bar","baz"]"#),
        ("/foo/0", r#""bar""#),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
    ] {
        assert_eq!(at(pointer).as_deref(), Some(value.as_bytes()), "{pointer}");
    }
    for pointer in [
        "/foo/2",
        "/foo/-",
        "/foo/00",
        "/foo/+1",
        "/foo/bar",
        "/absent",
        "//",
        "/foo/99999999999999999999",
    ] {
        assert_eq!(at(pointer), None, "{pointer}");
    }
}

#[test]
fn a_bad_pointer_says_why() {
    let why = |text| Pointer::parse(text).unwrap_err().to_string();
    assert_eq!(why("id"), "`id` is no JSON pointer: it must start with `/`");
    assert_eq!(
        why("/a~2"),
        "`/a~2` is no JSON pointer: it has a `~` without `0` or `1` behind it"
    );
    assert!(Pointer::parse("/a~").is_err());
    assert_eq!(Pointer::parse("/~01").unwrap().segments(), ["~1"]);
}

#[test]
fn the_canonical_form_is_itself_canonical() {
    let form = canonical(&read(
        r#"{"z":[{"b":1,"a":"\u001f\u007f\/"}],"é":1,"e":1,"ｆ":1,"🎲":1}"#,
    ));
    assert_eq!(
        String::from_utf8(form.clone()).unwrap(),
        "{\"e\":1,\"z\":[{\"a\":\"\\u001f\u{7f}/\",\"b\":1}],\"é\":1,\"ｆ\":1,\"🎲\":1}"
    );
    assert_eq!(canonical(&Json::parse(&form).unwrap()), form);
}

mod properties {
    use proptest::prelude::*;

    use super::super::*;

    /// A value apart from any spelling.
    #[derive(Debug, Clone)]
    enum Tree {
        Plain(&'static str),
        Number(i64),
        Text(String),
        Array(Vec<Tree>),
        Object(std::collections::BTreeMap<String, Tree>),
    }

    fn trees() -> impl Strategy<Value = Tree> {
        let leaf = prop_oneof![
            prop::sample::select(vec!["null", "true", "false", "1.0", "-0", "1E400"])
                .prop_map(Tree::Plain),
            any::<i64>().prop_map(Tree::Number),
            any::<String>().prop_map(Tree::Text),
        ];
        leaf.prop_recursive(4, 64, 24, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Tree::Array),
                prop::collection::btree_map(any::<String>(), inner, 0..24).prop_map(Tree::Object),
            ]
        })
    }

    /// Spells a tree, with white space, escapes and the order of names as `dice` fall.
    struct Speller<'d> {
        dice: std::iter::Cycle<std::slice::Iter<'d, u8>>,
        out: String,
    }

    impl Speller<'_> {
        fn roll(&mut self) -> u8 {
            self.dice.next().copied().unwrap_or(0)
        }

        fn token(&mut self, token: &str) {
            let space = ["", " ", "\n", "\t\r"][usize::from(self.roll() % 4)];
            self.out.push_str(space);
            self.out.push_str(token);
        }

        fn text(&mut self, text: &str) {
            self.token("\"");
            for c in text.chars() {
                if c < ' ' || c == '"' || c == '\\' || self.roll().is_multiple_of(5) {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04X}"));
                    }
                } else {
                    self.out.push(c);
                }
            }
            self.out.push('"');
        }

        fn tree(&mut self, tree: &Tree) {
            match tree {
                Tree::Plain(source) => self.token(source),
                Tree::Number(number) => self.token(&number.to_string()),
                Tree::Text(text) => self.text(text),
                Tree::Array(items) => {
                    self.token("[");
                    for (i, item) in items.iter().enumerate() {
                        self.token(if i > 0 { "," } else { "" });
                        self.tree(item);
                    }
                    self.token("]");
                }
                Tree::Object(fields) => {
                    let mut fields: Vec<_> =
                        fields.iter().map(|field| (self.roll(), field)).collect();
                    fields.sort_by_key(|(place, _)| *place);
                    self.token("{");
                    for (i, (_, (name, value))) in fields.into_iter().enumerate() {
                        self.token(if i > 0 { "," } else { "" });
                        self.text(name);
                        self.token(":");
                        self.tree(value);
                    }
                    self.token("}");
                }
            }
        }
    }

    fn spelled(tree: &Tree, dice: &[u8]) -> String {
        let mut speller = Speller {
            dice: dice.iter().cycle(),
            out: String::new(),
        };
        speller.tree(tree);
        speller.out
    }

    proptest! {
        #[test]
        fn order_white_space_and_escapes_do_not_change_the_canonical_form(
            tree in trees(), dice in prop::collection::vec(any::<u8>(), 1..64), other in prop::collection::vec(any::<u8>(), 1..64),
        ) {
            let (one, two) = (spelled(&tree, &dice), spelled(&tree, &other));
            let form = canonical(&Json::parse(one.as_bytes()).unwrap());
            prop_assert_eq!(&form, &canonical(&Json::parse(two.as_bytes()).unwrap()));
            prop_assert_eq!(&canonical(&Json::parse(&form).unwrap()), &form);
        }

        #[test]
        fn no_bytes_make_the_parser_panic(payload in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = Json::parse(&payload);
        }

        #[test]
        fn what_looks_like_json_is_read_or_refused_as_serde_json_does(payload in r#"[\[\]{}:,"\\ au0d8e1.+-]{0,24}"#) {
            let ours = Json::parse(payload.as_bytes());
            let theirs = serde_json::from_str::<serde_json::Value>(&payload);
            match (ours, theirs) {
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
                // They keep the last of two values, and we do not read a number as a float.
                (Err(ours), Ok(_)) => prop_assert!(ours.detail.contains("occurs twice"), "{}: {}", payload, ours),
                (Ok(_), Err(theirs)) => prop_assert!(theirs.to_string().contains("out of range"), "{}: {}", payload, theirs),
            }
        }
    }
}
