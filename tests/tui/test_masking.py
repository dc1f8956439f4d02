"""Secrets in what is shown: found, whole, wherever they are; and what is none is left alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.adapters.needed import needs
from tests.tables import inputs

needs("tui", "detect_secrets")

from flue_py.masking import HIDDEN, Mask, Masked, without  # noqa: E402

MASK = Mask()

SECRETS = {
    "github": "ghp_" + "Ab1" * 12,
    "aws": "AKIA" + "QWERTYUIOPASDFGH",
    "slack": "xoxb-123456789012-123456789012-abcdefghijklmnopqrstuvwx",
    "openai": "sk-proj-" + "a1B2" * 12,
    "anthropic": "sk-ant-api03-" + "Zz9-" * 20,
    "google": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
    "gitlab": "glpat-" + "a1B2c3D4e5F6g7H8i9J0",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nq83v\n-----END RSA PRIVATE KEY-----",
}
"""Made up, in the forms of real ones."""


@inputs("secret", SECRETS.values(), ids=SECRETS)
@inputs("around", ["{}", "the key {} is old", 'x = "{}"', "a\nb {}\nc", "{}\n{}", "(`{}`)"])
def test_a_key_is_hidden_whatever_stands_around_it(secret: str, around: str) -> None:
    masked = MASK.masked(around.format(secret, secret))
    assert HIDDEN in masked.text
    assert masked.hidden == around.count("{}")
    for piece in secret.split("\n"):
        assert piece not in masked.text


@inputs(
    ("text", "shown"),
    [
        ("password = 'hunter2'", "password = '[hidden]'"),
        ("DB_PASSWORD=hunter2", "DB_PASSWORD=[hidden]"),
        ('"api_key": "abc", "page": 3', '"api_key": "[hidden]", "page": 3'),
        ("a: 1\npassword: hunter2\nb: 2", "a: 1\npassword: [hidden]\nb: 2"),
        ("curl -H 'Authorization: Bearer abcdefghij123'", "curl -H 'Authorization: Bearer [hidden]'"),
    ],
)
def test_what_follows_a_telling_word_is_hidden(text: str, shown: str) -> None:
    assert MASK.masked(text).text == shown


def test_a_password_in_an_address_is_hidden() -> None:
    assert "s3cret" not in MASK.masked("postgresql://app:s3cret@db.example/x").text


@inputs(
    "text",
    [
        "commit 4aa643f0c0ffee1234567890abcdef1234567890", "the secret of the pool is its size",
        "sk-learn-is-a-package", "src/db/pool.py:42", "0213c128ac59accb",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "今日は token を使う", "",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert MASK.masked(text) == Masked(text, 0)


@given(st.integers(0, 2_400), st.sampled_from(sorted(SECRETS)), st.sampled_from(["x", "x ", "界", "/"]))
def test_a_key_is_hidden_wherever_it_lies_in_a_long_text(before: int, name: str, filler: str) -> None:
    secret = SECRETS[name]
    masked = MASK.masked(filler * before + " " + secret + " " + filler * 900)
    assert secret not in masked.text
    assert secret[-12:] not in masked.text


@given(
    st.integers(960, 1_010), st.sampled_from(["password = hunter2xx", "Bearer abcdefgh123", 'DB_PASSWORD: "two words"'])
)
def test_a_word_before_a_cut_tells_of_the_secret_behind_it(before: int, told: str) -> None:
    masked = MASK.masked(("word " * 300)[:before] + " " + told + " and more" * 40)
    for secret in ("hunter2xx", "abcdefgh123", "two words"):
        assert secret not in masked.text


@inputs(
    ("piece", "shown"),
    [
        ("b123 and more", "[hidden] and more"),
        ("see secret-a", "see [hidden]"),
        ("a secret-ab123 b", "a [hidden] b"),
        ("secure", "secure"),
    ],
)
def test_parts_of_secrets_at_the_ends_of_a_piece_are_hidden(piece: str, shown: str) -> None:
    assert without(piece, ["secret-ab123"]) == shown


def test_a_key_longer_than_a_piece_is_hidden_to_its_end() -> None:
    text = "x" * 990 + " sk-ant-api03-" + "b1" * 2_000 + " end"
    assert MASK.masked(text).text == "x" * 990 + " [hidden] end"


@given(st.text())
def test_any_text_can_be_looked_at(text: str) -> None:
    masked = MASK.masked(text)
    assert masked.hidden or masked.text == text
