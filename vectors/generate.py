#!/usr/bin/env python3
"""Writes key.json and fingerprint.json beside this file.

A second implementation of docs/reference/keys.md, made from that text and not from the Rust code, so that the two
check each other. It needs Python 3.9 and nothing else. Run it after a change of the format; a change of an existing
vector is a change of every stored key and needs a new format number.
"""

import hashlib
import json
import pathlib
import re
import unicodedata
import uuid

HERE = pathlib.Path(__file__).parent
PART_BYTES_MAX = 512
PARTS_MAX = 16
TIME_MS_MIN = 946_684_800_000
DAY_MS = 86_400_000
U64 = (1 << 64) - 1


class NoKey(Exception):
    """Carries the name of the lack."""


# ---- keys --------------------------------------------------------------------------------------------------------

HEX = "[0-9a-fA-F]"
CORE = f"(?:{HEX}{{32}}|{HEX}{{8}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{4}}-{HEX}{{12}})"
UUID = re.compile(rf"(?:(?i:urn:uuid:)({CORE})|\{{({CORE})\}}|({CORE}))")
ULID = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def uuid_bytes(text):
    match = UUID.fullmatch(text)
    if not match:
        return None
    return bytes.fromhex(next(group for group in match.groups() if group).replace("-", ""))


def check(part):
    kind, data = part
    if not data:
        raise NoKey("empty")
    if len(data) > PART_BYTES_MAX:
        raise NoKey("too_long")


def stamp(raw, version):
    raw = bytearray(raw)
    raw[6] = version << 4 | raw[6] & 0x0F
    raw[8] = 0x80 | raw[8] & 0x3F
    return bytes(raw)


def is_inner(raw):
    return raw[6] >> 4 == 8 and raw[8] >> 5 == 0b111


def inner(key, name, number):
    """A key that no id can spell: the variant is 111."""
    raw = bytearray(derive([("u", key), s(name), s(str(number))]))
    raw[8] |= 0b111 << 5
    return bytes(raw)


def derive(parts, unix_ms=None):
    """parts: (kind, bytes) pairs."""
    if not 1 <= len(parts) <= PARTS_MAX:
        raise NoKey("part_count")
    for part in parts:
        check(part)
    if unix_ms is not None and not TIME_MS_MIN <= unix_ms < 1 << 48:
        raise NoKey("time_out_of_range")
    if len(parts) == 1:
        kind, data = parts[0]
        own = data if kind == "u" else uuid_bytes(data.decode()) if kind == "s" else None
        if own and not is_inner(own):
            return own
        # In the space of inner keys: hashed as the UUID that it is, so that its spelling does not count.
        if own:
            parts = [("u", own)]
    preimage = b"semel:key:1\0" + b"".join(
        kind.encode() + len(data).to_bytes(4, "big") + data for kind, data in parts
    )
    digest = hashlib.sha256(preimage).digest()
    if unix_ms is None:
        return stamp(digest[:16], 8)
    return stamp(unix_ms.to_bytes(6, "big") + digest[:10], 8)


def spelled(key):
    return str(uuid.UUID(bytes=key))


# ---- rules -------------------------------------------------------------------------------------------------------


def normalise(name, kind, data):
    if kind == "x":
        if name in ("uuid", "ulid") and len(data) == 16:
            return "u", data
        raise NoKey("ill_typed")
    text = data.decode()
    if name == "uuid":
        own = uuid_bytes(text)
        if own is None:
            raise NoKey("ill_typed")
        return "u", own
    if name == "ulid":
        upper = text.upper() if text.isascii() else text
        if len(text) != 26 or text[0] > "7" or any(c not in ULID for c in upper):
            raise NoKey("ill_typed")
        value = 0
        for c in upper:
            value = value << 5 | ULID.index(c)
        return "u", value.to_bytes(16, "big")
    if name == "int":
        match = re.fullmatch("(-?)0*([0-9]+)", text)
        if not match or not text.isascii():
            raise NoKey("ill_typed")
        sign, digits = match.groups()
        digits = digits.lstrip("0") or "0"
        return "s", (digits if digits == "0" else sign + digits).encode()
    if name == "trim":
        return "s", text.strip(" \t\r\n").encode()
    if name == "lower":
        return "s", re.sub("[A-Z]+", lambda m: m.group().lower(), text).encode()
    assert name == "nfc"
    return "s", unicodedata.normalize("NFC", text).encode()


def bytes_part(data):
    try:
        data.decode()
        return "s", data
    except UnicodeDecodeError:
        return "x", data


def find(source, inputs, sole):
    if source.startswith("/"):
        value = at(inputs["json"], source)
        if value is None or value is ABSENT:
            raise NoKey("missing")
        if isinstance(value, Number):
            return "s", value.source.encode()
        if isinstance(value, bool) and not sole:
            return "s", b"true" if value else b"false"
        if isinstance(value, str):
            return "s", value.encode()
        raise NoKey("ill_typed")
    if source.startswith("header:"):
        name = source[len("header:") :].lower()
        values = {value for known, value in inputs["headers"] if known.lower() == name}
        if not values:
            raise NoKey("missing")
        if len(values) > 1:
            raise NoKey("ambiguous")
        return bytes_part(values.pop())
    if source == "message_key":
        if inputs["message_key"] is None:
            raise NoKey("missing")
        return bytes_part(inputs["message_key"])
    assert source.startswith("const:")
    return "s", source[len("const:") :].encode()


def identify(rule, inputs, key_time_ms):
    found, texts = [], []
    for text in rule:
        names = []
        while match := re.fullmatch(r"(uuid|ulid|int|trim|lower|nfc)\((.*)\)", text, re.S):
            names.insert(0, match.group(1))
            text = match.group(2)
        kind, data = find(text, inputs, len(rule) == 1)
        check((kind, data))
        texts.append(data.decode() if kind == "s" else "0x" + data.hex())
        for name in names:
            kind, data = normalise(name, kind, data)
        found.append((kind, data))
    if key_time_ms is not None and key_time_ms > inputs["now_ms"] + DAY_MS:
        raise NoKey("time_out_of_range")
    return derive(found, key_time_ms), "/".join(texts)


# ---- JSON --------------------------------------------------------------------------------------------------------

ABSENT = object()


class Number:
    def __init__(self, source):
        self.source = source


def pairs(items):
    names = [name for name, _ in items]
    if len(set(names)) != len(names):
        raise ValueError("a name twice")
    return dict(items)


def constant(name):
    raise ValueError(name)


def read(text):
    value = json.loads(
        text, parse_int=Number, parse_float=Number, parse_constant=constant, object_pairs_hook=pairs
    )
    canonical(value).encode()  # a lone surrogate has no UTF-8
    return value


def segments(pointer):
    if pointer == "":
        return []
    return [s.replace("~1", "/").replace("~0", "~") for s in pointer[1:].split("/")]


def at(value, pointer):
    for segment in segments(pointer):
        if isinstance(value, dict) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and re.fullmatch("0|[1-9][0-9]*", segment) and int(segment) < len(value):
            value = value[int(segment)]
        else:
            return ABSENT
    return value


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def quoted(text):
    return '"' + "".join(SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def by_name(value):
    return sorted(value.items(), key=lambda item: item[0].encode("utf-8", "surrogatepass"))


def canonical(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Number):
        return value.source
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ",".join(canonical(item) for item in value if item is not ABSENT) + "]"
    return "{" + ",".join(quoted(name) + ":" + canonical(item) for name, item in by_name(value)) + "}"


# ---- fingerprints ------------------------------------------------------------------------------------------------


def without(value, unwanted):
    """The value without what the pointers (lists of segments) lead to."""

    def part(segment, item):
        below = [p[1:] for p in unwanted if p and p[0] == segment]
        return ABSENT if [] in below else without(item, below)

    if isinstance(value, list):
        return [part(str(i), item) for i, item in enumerate(value)]  # the others keep their positions
    if isinstance(value, dict):
        items = ((name, part(name, item)) for name, item in value.items())
        return {name: item for name, item in items if item is not ABSENT}
    return value


def absorb(state, data):
    for start in range(0, len(data), 8):
        state = (state ^ int.from_bytes(data[start : start + 8], "little")) * 0x9E3779B97F4A7C15 & U64
        state ^= state >> 32
    return state


def leaves(value, path):
    """(path, kind, bytes) of every leaf, in canonical order. `path` is a list of segments."""
    if isinstance(value, dict) and value:
        for name, item in by_name(value):
            yield from leaves(item, path + [name])
    elif isinstance(value, list) and any(item is not ABSENT for item in value):
        for i, item in enumerate(value):
            if item is not ABSENT:
                yield from leaves(item, path + [str(i)])
    elif isinstance(value, str):
        yield path, b"s", value.encode()
    else:
        yield path, b"v", canonical(value).encode()


def field_sums(content, name=lambda segment: segment):
    by_leaf, by_top = [], {}
    for path, kind, data in leaves(content, []):
        path = [name(path[0])] + path[1:] if path else path
        state = 0xCBF29CE484222325
        for segment in path:
            state = absorb(state, segment.encode())
        state = absorb(absorb(state, kind), data)
        by_leaf.append(state)
        top = path[0] if path else ""
        by_top[top] = by_top.get(top, 0) + state & U64
    states = by_leaf if len(by_leaf) <= 32 else list(by_top.values())[:32]
    return "".join(f"{state >> 48:04x}" for state in states)


def scheme(policy):
    if policy in ("all", "none"):
        return {"none": 0, "all": 1}[policy]
    (kind, pointers), = policy.items()
    pointers = sorted(set(pointers), key=str.encode)
    text = "\0".join(["semel:scheme:1", kind, *pointers]).encode()
    return 256 + int.from_bytes(hashlib.sha256(text).digest()[:2], "big") % 32512


def bind(policy, value):
    """(canonical content, fingerprint, sums)"""
    if policy == "none":
        return None, "00" * 16, ""
    if policy == "all":
        content, sums = value, field_sums(value)
    elif "except" in policy:
        content = without(value, [segments(p) for p in policy["except"]])
        sums = field_sums(content)
    else:
        listed = {p: at(value, p) for p in policy["fields"]}
        content = {p: found for p, found in listed.items() if found is not ABSENT}
        sums = field_sums(content, lambda pointer: pointer[1:])
    text = canonical(content)
    return text, hashlib.sha256(text.encode()).digest()[:16].hex(), sums


# ---- what the files say --------------------------------------------------------------------------------------------


def shown(part):
    kind, data = part
    if kind == "s":
        return {"kind": "s", "text": data.decode()}
    return {"kind": kind, "hex": data.hex()}


def attempt(make):
    try:
        return make()
    except NoKey as lack:
        return {"no_key": str(lack)}


def s(text):
    return "s", text.encode()


U = uuid.UUID("0190d6f3-79f9-7000-8000-0000deadbeef").bytes


def key_vectors():
    derived = []
    for parts, unix_ms in [
        ([s("acme"), s("bet-42")], None),
        ([s("bet-42"), s("acme")], None),
        ([s("acmebet"), s("-42")], None),
        ([s("acme bet-42")], None),
        ([s("123")], None),
        ([s("123 ")], None),
        ([s("-9223372036854774281")], None),
        ([s("é")], None),
        ([s("e\u0301")], None),
        ([s("a\0b")], None),
        ([s("\U0001F3B2"), s("ｆ")], None),
        ([("x", b"acme")], None),
        ([("x", bytes(range(16)))], None),
        ([("x", b"\xff\xfe"), s("1")], None),
        ([("u", U)], None),
        ([("u", bytes.fromhex("0190d6f379f98000e0000000deadbeef"))], None),
        ([("u", U), s("expire")], None),
        ([s("0190d6f3-79f9-7000-8000-0000deadbeef"), s("expire")], None),
        ([("u", U), s("outbox"), s("0")], None),
        ([("u", U), s("outbox"), s("10")], None),
        ([s("a" * 512)], None),
        ([s("a" * 513)], None),
        ([s("é" * 256)], None),
        ([s("é" * 256 + "x")], None),
        ([s("x")] * 16, None),
        ([s("x")] * 17, None),
        ([], None),
        ([s("")], None),
        ([s("a"), s("")], None),
        ([s("acme"), s("bet-42")], TIME_MS_MIN),
        ([s("acme"), s("bet-42")], TIME_MS_MIN - 1),
        ([s("acme"), s("bet-42")], 1767323045678),
        ([s("acme"), s("bet-42")], (1 << 48) - 1),
        ([s("acme"), s("bet-42")], 1 << 48),
        ([s("0190D6F379F9700080000000DEADBEEF")], 1767323045678),
    ]:
        answer = attempt(lambda: {"key": spelled(derive(parts, unix_ms))})
        derived.append({"parts": [shown(p) for p in parts], "unix_ms": unix_ms, **answer})

    texts = [
        "0190d6f3-79f9-7000-8000-0000deadbeef",
        "0190D6F3-79F9-7000-8000-0000DEADBEEF",
        "0190d6f379f9700080000000deadbeef",
        "{0190d6f3-79f9-7000-8000-0000deadbeef}",
        "{0190D6F379F9700080000000DEADBEEF}",
        "urn:uuid:0190d6f3-79f9-7000-8000-0000deadbeef",
        "URN:UUID:0190d6f379f9700080000000deadbeef",
        "12345678901234567890123456789012",
        "00000000-0000-0000-0000-000000000000",
        " 0190d6f3-79f9-7000-8000-0000deadbeef",
        "0190d6f3-79f9-7000-8000-0000deadbee",
        "0190d6f3-79f9-7000-8000-0000deadbeeg",
        "0190d6f379f9-7000-8000-0000-deadbeef",
        "0190d6f3-79f97000-8000-0000deadbeef-",
        "{urn:uuid:0190d6f3-79f9-7000-8000-0000deadbeef}",
        "urn:uuid:{0190d6f3-79f9-7000-8000-0000deadbeef}",
        "{0190d6f3-79f9-7000-8000-0000deadbeef",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "4a4c7068-f922-85dc-a87c-b02c5b9f134a",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "0190d6f3-79f9-8000-c000-0000deadbeef",
        "0190d6f3-79f9-8000-e000-0000deadbeef",
        "{0190D6F379F98000FFFF0000DEADBEEF}",
    ]
    spellings = [
        {"text": t, "is_uuid": uuid_bytes(t) is not None, "key": spelled(derive([s(t)]))} for t in texts
    ]

    version_7 = []
    for unix_ms, random in [(0, "00" * 10), (1645557742000, "0cc318c4dc0c0c07398f"), (1767323045678, "ff" * 10), ((1 << 48) - 1, "5a" * 10)]:
        key = spelled(stamp(unix_ms.to_bytes(6, "big") + bytes.fromhex(random), 7))
        version_7.append({"unix_ms": unix_ms, "random": random, "key": key})

    inner_keys = [
        {
            "of": spelled(U),
            "name": name,
            "number": number,
            "key": spelled(inner(U, name, number)),
            "sent": spelled(derive([s(spelled(inner(U, name, number)))])),
        }
        for name, number in [("leg", 1), ("leg", 99), ("expire", 0)]
    ]

    return {
        "format": "semel:key:1",
        "derive": derived,
        "inner": inner_keys,
        "spellings": spellings,
        "v7": version_7,
        "rules": rule_vectors(),
    }


def rule_vectors():
    out = []
    now = 1767323045678

    def case(rule, payload="{}", headers=(), message_key=None, key_time=None, key_time_ms=None):
        inputs = {"json": read(payload), "headers": headers, "message_key": message_key, "now_ms": now}

        def answer():
            key, text = identify(rule, inputs, key_time_ms)
            return {"key": spelled(key), "id": text}

        out.append(
            {
                "rule": rule,
                "key_time": key_time,
                "payload": payload,
                "headers": [[name, value.hex()] for name, value in headers],
                "message_key": None if message_key is None else message_key.hex(),
                "now_ms": now,
                **attempt(answer),
            }
        )

    case(["/id"], '{"id":"bet-42"}')
    case(["/id"], '{"id":123}')
    case(["/id"], '{"id":"123"}')
    case(["/id"], '{"id":1.0}')
    case(["/id"], '{"id":327267367867168100000}')
    case(["/id"], '{"id":12345678901234567890123456789012}')
    case(["/id"], '{"id":"0190D6F3-79F9-7000-8000-0000DEADBEEF"}')
    case(["/id"], '{"id":null}')
    case(["/id"], '{"id":""}')
    case(["/id"], "{}")
    case(["/id"], '{"id":true}')
    case(["/id"], '{"id":{}}')
    case(["/id"], '{"id":["a"]}')
    case(["/id"], '{"id":"\\u0062et-42"}')
    case(["/a~1b/1/~0"], '{"a/b":[0,{"~":"deep"}]}')
    case(["/legs/01"], '{"legs":["a","b"]}')
    case(["const:acme", "/id"], '{"id":"bet-42"}')
    case(["const:acme", "/id", "/live"], '{"id":"bet-42","live":true}')
    case(["/id", "/player"], '{"id":"0190d6f3-79f9-7000-8000-0000deadbeef","player":7}')
    case(["uuid(/id)", "/player"], '{"id":"{0190D6F3-79F9-7000-8000-0000DEADBEEF}","player":7}')
    case(["uuid(/id)"], '{"id":"bet-42"}')
    case(["/id"], '{"id":"0190d6f3-79f9-8000-e000-0000deadbeef"}')
    case(["uuid(/id)"], '{"id":"0190d6f3-79f9-8000-e000-0000deadbeef"}')
    case(["ulid(/id)"], '{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}')
    case(["ulid(/id)"], '{"id":"01arz3ndektsv4rrffq69g5fav"}')
    case(["ulid(/id)"], '{"id":"81ARZ3NDEKTSV4RRFFQ69G5FAV"}')
    case(["ulid(/id)"], '{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAU"}')
    case(["/id"], '{"id":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}')
    case(["int(/id)"], '{"id":"00042"}')
    case(["int(/id)"], '{"id":-0}')
    case(["int(/id)"], '{"id":"-007"}')
    case(["int(/id)"], '{"id":"4 2"}')
    case(["int(/id)"], '{"id":1e3}')
    case(["trim(/id)"], '{"id":" \\tbet-42\\r\\n"}')
    case(["trim(/id)"], '{"id":"   "}')
    case(["trim(/id)"], '{"id":"\\u00a0bet-42"}')
    case(["lower(trim(/id))"], '{"id":" BET-42 "}')
    case(["lower(/id)"], '{"id":"ÄB"}')
    case(["nfc(/id)"], '{"id":"e\\u0301"}')
    case(["/id"], '{"id":"e\\u0301"}')
    case(["header:Idempotency-Key"], headers=[("idempotency-key", b"bet-42")])
    case(["header:k"], headers=[("k", b"a"), ("K", b"a")])
    case(["header:k"], headers=[("k", b"a"), ("k", b"b")])
    case(["header:k"], headers=[("k", b"")])
    case(["header:k"])
    case(["message_key"], message_key=b"bet-42")
    case(["message_key"], message_key=bytes(range(200, 216)))
    case(["uuid(message_key)"], message_key=bytes(range(200, 216)))
    case(["message_key"])
    case(["/id"], '{"id":"bet-42","at":"2026-01-02T03:04:05.678999Z"}', key_time="/at", key_time_ms=1767323045678)
    case(["/id"], '{"id":"bet-42","at":"2026-01-02T05:04:05.678+02:00"}', key_time="/at", key_time_ms=1767323045678)
    case(["/id"], '{"id":"bet-42","at":1767323045678}', key_time="/at", key_time_ms=1767323045678)
    case(["/id"], '{"id":"bet-42","at":1767323045}', key_time="/at", key_time_ms=1767323045)
    case(["/id"], f'{{"id":"bet-42","at":{now + DAY_MS}}}', key_time="/at", key_time_ms=now + DAY_MS)
    case(["/id"], f'{{"id":"bet-42","at":{now + DAY_MS + 1}}}', key_time="/at", key_time_ms=now + DAY_MS + 1)
    return out


def fingerprint_vectors():
    content = []
    many = "{" + ",".join(f'"f{i:02}":{i}' for i in range(40)) + "}"
    legs = '{"op":"transfer_group","legs":[' + ",".join(f'{{"amount":{i},"credit":"a","debit":"b"}}' for i in range(12)) + "]}"
    for text in [
        '{"a":1,"b":2}',
        '{ "b" : 2,\n\t"a" : 1 }',
        '{"a":1.0,"b":2}',
        '{"amount":327267367867168100000}',
        '{"b":[true,false,null,{}],"a":[]}',
        '{"":"empty name","\\u0061":"\\u0041\\/\\u00e9"}',
        '{"t":"\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\\u007f\\u2028"}',
        '{"\\ud83c\\udfb2":1,"\\uff46":2,"z":3}',
        '{"legs":[{"debit":"a","credit":"b","amount":1},{"debit":"a","credit":"b","amount":2}],"op":"transfer_group"}',
        '{"name of more than eight bytes":"value of more than eight bytes"}',
        '{"n":1,"t":"1"}',
        many,
        legs,
        "[1,[2,3]]",
        '"text"',
        "-0.50e+2",
        "null",
        "{}",
        "[]",
    ]:
        form, fingerprint, sums = bind("all", read(text))
        content.append({"json": text, "canonical": form, "fingerprint": fingerprint, "sums": sums})

    policies = []
    body = '{"id":"a-1","amount":5,"trace":{"id":"t","hop":3},"legs":[{"amount":1,"sent_at":9},{"amount":2}],"a/b":1}'
    for policy in [
        "all",
        "none",
        {"except": ["/trace"]},
        {"except": ["/trace/hop", "/legs/0/sent_at", "/absent/x"]},
        {"except": ["/legs/0/sent_at", "/trace/hop", "/absent/x", "/trace/hop"]},
        {"except": ["/legs/0"]},
        {"except": ["/a~1b", "/legs/00"]},
        {"fields": ["/id", "/amount"]},
        {"fields": ["/legs/1/amount", "/trace", "/absent"]},
        {"fields": ["/absent"]},
    ]:
        form, fingerprint, sums = bind(policy, read(body))
        policies.append({"policy": policy, "scheme": scheme(policy), "json": body, "canonical": form, "fingerprint": fingerprint, "sums": sums})

    raw = [
        {"hex": data.hex(), "fingerprint": hashlib.sha256(data).digest()[:16].hex()}
        for data in [b"", b"not json", bytes(range(256)) * 5]
    ]
    return {"content": content, "policies": policies, "raw": raw}


def write(name, vectors):
    lines = ["{"]
    for section, value in vectors.items():
        if isinstance(value, list):
            lines.append(f"  {json.dumps(section)}: [")
            lines.append(",\n".join("    " + json.dumps(item) for item in value))
            lines.append("  ],")
        else:
            lines.append(f"  {json.dumps(section)}: {json.dumps(value)},")
    lines[-1] = lines[-1].rstrip(",")
    (HERE / name).write_text("\n".join([*lines, "}", ""]), encoding="utf-8")


if __name__ == "__main__":
    write("key.json", key_vectors())
    write("fingerprint.json", fingerprint_vectors())
