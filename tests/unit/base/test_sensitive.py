"""The one list of names and shapes of secrets."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_dlq.base.redact import Redactor, clip
from celery_dlq.base.sensitive import REDACTED, hide_in_traceback, hide_secrets, names_of_secrets

is_sensitive = names_of_secrets()
SECRET = "hunter2xyz"


def hide(text):
    return hide_secrets(text, is_sensitive)


NAMES = [
    "password",
    "DB_PASSWORD",
    "userPassword",
    "passwords",
    "PGPASSWORD",
    "passwd",
    "pwd",
    "DB_PWD",
    "dbPwd",
    "pass",
    "DB_PASS",
    "smtp-pass",
    "userPass",
    "dbpass",
    "token",
    "accessToken",
    "X-Auth-Token",
    "csrftoken",
    "apiKey",
    "API_KEY",
    "X-API-Key",
    "apikey",
    "stripe-api-key",
    "accessKey",
    "aws_secret_access_key",
    "privateKey",
    "PRIVATE KEY",
    "clientSecret",
    "Authorization",
    "Proxy-Authorization",
    "Set-Cookie",
    "credentials",
    "dsn",
    "SENTRY_DSN",
    "sentryDsn",
    "card number",
    "cardNumber",
    "cvv",
    "CVC2",
    "IBAN",
    "ssn",
    "b'Authorization'",
    "kwargs.password",
    "--password",
]


def test_names_of_secrets():
    assert [name for name in NAMES if not is_sensitive(name)] == []


OTHER_NAMES = [
    "compass",
    "passenger",
    "passage",
    "bypass",
    "className",
    "classname",
    "lesson",
    "caliban",
    "user",
    "keys",
    "api",
    "key",
    "card",
    "number",
    "access",
    "authority",
    "author",
    "primary_key",
    "sort_key",
    "",
    "…",
    "名前",
]


def test_other_names():
    assert [name for name in OTHER_NAMES if is_sensitive(name)] == []


def test_further_parts_follow_the_same_rule():
    also = names_of_secrets(["pin", "Tax-ID"])
    assert [also(name) for name in ("pin", "cardPin", "shipping", "tax_id", "taxID", "tax")] == [
        True,
        True,
        False,
        True,
        True,
        False,
    ]


WITH_SECRET = [
    f"postgresql://shop:{SECRET}@db/shop",
    f"amqp://shop:{SECRET}@mq:5672//",
    f"redis://:{SECRET}@cache:6379/0",
    f"cannot connect to postgresql+psycopg2://u:{SECRET}@h:5432/d?x=1, gave up",
    f"mysql://u:p@{SECRET}@h/d",
    f"mysql://u:p/{SECRET}@h/d",
    f"https://{SECRET}@github.com/a/b.git",
    f"https://x-access-token:{SECRET}@github.com",
    f"mongodb+srv://u:{SECRET}@cluster0.example.net",
    f"GET https://api.example.com/v1/pay?token={SECRET}&x=1",
    f"?access_token={SECRET}",
    f"host=db user=shop password={SECRET} dbname=x",
    f"Server=db;Uid=shop;Pwd={SECRET};Timeout=3",
    f"password='{SECRET}'",
    f'password="{SECRET} and more"',
    f"Login(user='a', password='{SECRET}')",
    f"{{'password': '{SECRET}', 'a': 1}}",
    f'{{"api_key": "{SECRET}"}}',
    f'{{\\"api_key\\": \\"{SECRET}\\"}}',
    f"{{b'Authorization': b'{SECRET}'}}",
    f"Authorization: Bearer {SECRET}",
    f"Authorization: {SECRET}",
    f"authorization: Basic {SECRET}=",
    f"{{'Authorization': 'Token {SECRET}'}}",
    f"X-Auth-Token: {SECRET}",
    f"the header was Bearer {SECRET}",
    f"Cookie: a=1; session={SECRET}",
    f"Set-Cookie: id={SECRET}; Path=/",
    f"[['Authorization', '{SECRET}']]",
    f'[["X-Auth-Token", "{SECRET}"]]',
    f"('password', '{SECRET}')",
    f"password: {SECRET}",
    f"token: {SECRET}",
    f"psql --password={SECRET} -h db",
    f"mysql --password {SECRET}",
    f"Command '['mysql', '--password', '{SECRET}']' returned 1",
    f"api_key={SECRET}",
    f"client.apiKey={SECRET}",
    f"dsn=https://{SECRET}@sentry.io/1",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.{SECRET}",
    f"ghp_0123456789{SECRET}",
    f"xoxb-12-34-{SECRET}",
    f"sk_live_12{SECRET}",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----\n",
    f"password={SECRET}" + "x" * 3_000,
    f'password="{SECRET}',
    f"kwargs.card_token={SECRET}",
]


def test_shapes_of_secrets():
    for text in WITH_SECRET:
        hidden = hide(text)
        assert SECRET not in hidden, text
        assert REDACTED in hidden, text
        assert hide(hidden) == hidden, text


WITHOUT_SECRET = [
    "",
    "EUR",
    "10:30",
    "2026-11-21T12:00:00+00:00",
    "http://localhost:8000/a@b",
    "postgresql://shop@db/shop",
    "https://example.com/orders/1?x=1",
    "mail to ann@example.com: no such user",
    "http://h:80/~me@x",
    "Basic authentication failed",
    "Bearer token is missing",
    "Unexpected token: < in JSON at position 0",
    "invalid token: expected a comma",
    "jwt.exceptions.InvalidTokenError: Not enough segments",
    "TokenExpired: 2026-11-21",
    "KeyError: 'password'",
    "missing 1 required argument: 'token'",
    "password=None",
    "password=''",
    "fields: ['password', 'email', 'name']",
    "a == b",
    "passenger: Bob 123",
    "no such column: compass",
    "sqlite:////srv/shop/a.sqlite3",
    "token",
    "std::secret::x",
    "x-dlq: y=1",
    "the --password option is missing",
    "status=503 from response.status_code; 2 of 2 attempts used",
]


def test_texts_that_are_not_secrets_stay():
    for text in WITHOUT_SECRET:
        assert hide(text) == text


def test_the_text_around_a_secret_stays():
    assert hide(f"cannot reach amqp://shop:{SECRET}@mq:5672// at 10:30") == (
        f"cannot reach amqp://shop:{REDACTED}@mq:5672// at 10:30"
    )
    assert hide(f"https://h/p?a=1&token={SECRET}&b=2") == f"https://h/p?a=1&token={REDACTED}&b=2"
    assert hide(f"{{'pwd': '{SECRET}', 'n': 1}}") == f"{{'pwd': '{REDACTED}', 'n': 1}}"
    assert (
        hide(f"Authorization: Bearer {SECRET}\nAccept: */*")
        == f"Authorization: {REDACTED}\nAccept: */*"
    )


def test_a_secret_that_was_cut_is_hidden():
    long = f"x postgresql://shop:{SECRET * 50}@db/shop"
    assert SECRET not in hide(clip(long, 100))
    assert SECRET not in hide(clip(f'x {{"password": "{SECRET * 50}"}}', 100))


TRACEBACK = f'''Traceback (most recent call last):
  File "/srv/shop/tasks.py", line 9, in charge
    connect(url, password=settings.password, token = token)
            ^^^^^^^^^
  File "/srv/shop/db.py", line 3, in connect
    raise ConnectionError(f"postgresql://u:{SECRET}@h", password="{SECRET}")
ConnectionError: postgresql://u:{SECRET}@h password={SECRET}
  token={SECRET}

During handling of the above exception, another exception occurred:

shop.Failed: Authorization: Bearer {SECRET}
'''


def test_source_lines_of_a_traceback_stay_readable():
    hidden = hide_in_traceback(TRACEBACK, is_sensitive)
    assert SECRET not in hidden
    assert "    connect(url, password=settings.password, token = token)\n            ^^^" in hidden
    assert f'raise ConnectionError(f"postgresql://u:{REDACTED}@h", password="{REDACTED}")' in hidden
    assert hidden.count("\n") == TRACEBACK.count("\n")


@pytest.mark.parametrize(
    "piece",
    [
        "a://b:",
        "password=",
        "password:'",
        "'token', '",
        "Bearer ",
        "eyJ",
        "--token ",
        "x" * 99 + ".",
        "['pwd', ",
        "-----BEGIN PRIVATE KEY-----",
        "\\",
        '"',
        "cookie: ",
        "http://a@",
        "a=b",
        ":",
        "=",
        "password=\\\\\\",
        "left out] …\nabc",
    ],
)
def test_no_text_takes_long(piece):
    # Its end makes a search for the parts of a key begin.
    text = (piece * 98_304)[:98_304] + "PRIVATE KEY-----"
    begun = time.process_time()
    hide(text)
    hide_in_traceback(f'  File "x"\n    {text}', is_sensitive)
    assert time.process_time() - begun < 2.0


@given(st.text())
def test_any_text_is_taken(text):
    assert isinstance(hide(text), str)
    assert isinstance(hide_in_traceback(text, is_sensitive), str)


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        [["Authorization", SECRET]],
        [("X-Auth-Token", SECRET)],
        [[b"authorization", SECRET.encode()]],
        {"headers": [["Cookie", SECRET], ["Accept", "*/*"]]},
        {"name": "API_KEY", "value": SECRET},
        [{"Key": "dbPassword", "Value": SECRET}],
        {"pwd": {"deep": [SECRET]}},
        [f"redis://:{SECRET}@h"],
        {"note": f"password={SECRET}"},
        {f"redis://:{SECRET}@h": 1},
        ["x" * 950 + f" redis://u:{SECRET * 3}@h"],
        [SECRET.encode(), f"token={SECRET}"][1:],
        {"token": SECRET},
        [["password", [SECRET]]],
    ],
)
def test_secrets_are_hidden_in_copies_that_are_bounded_and_in_whole_ones(value):
    redactor = Redactor()
    for copy in (redactor.display(value), redactor.hidden(value)):
        assert SECRET not in repr(copy)
        assert REDACTED in repr(copy)


def test_a_whole_copy_has_all_else_as_it_was():
    deep = current = []
    for _ in range(100):
        current.append([])
        current = current[0]
    value = {
        "big": 10**30,
        "many": list(range(1_000)),
        "long": "x" * 5_000,
        "deep": deep,
        "b": b"x",
    }
    assert Redactor().hidden(value) == value


def test_a_value_that_is_too_deep_is_copied_as_far_as_it_is_shown():
    deep = current = []
    for _ in range(100_000):
        current.append([])
        current = current[0]
    assert "…" in repr(Redactor().hidden(deep))
    while deep:  # or its end would be as deep
        deep = deep.pop()


@pytest.mark.parametrize(
    "value",
    [
        ["password_reset", 17],
        ("token_expired", "ann@example.com"),
        ["cookie_consent", True],
        [["passenger", "Bob"]],
        {"name": "password_reset", "value": 3},
        ["password", "email", "name"],
        ["password"],
    ],
)
def test_two_arguments_are_not_a_pair_if_the_first_names_something_else(value):
    assert Redactor().display(value) == Redactor().hidden(value)
    assert REDACTED not in repr(Redactor().display(value))


@pytest.mark.parametrize(
    "name",
    ["secret_key", "X-API-Key", "access_token", "apiKeys", "passwords", "PASS", "token_secret"],
)
def test_names_in_pairs(name):
    assert Redactor().display([name, "x"]) == [name, REDACTED]
