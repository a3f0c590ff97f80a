"""The clients of payment, message, code, secret, market, map and SOAP services on local servers."""

import asyncio
import io
from urllib.parse import urlsplit

import pytest
from support.errors.verdicts import decided, verdict
from support.servers.local_servers import Answer

T, X = "transient", "terminal"


# -- clients: each gets a URL and raises what its library raises ----------------------------------


def by_stripe(url):
    stripe = pytest.importorskip("stripe")
    client = stripe.StripeClient("sk_test_x", base_addresses={"api": url}, max_network_retries=0)
    client.v1.customers.retrieve("cus_1")


def by_braintree(url):
    braintree = pytest.importorskip("braintree")
    parts = urlsplit(url)
    place = braintree.environment.Environment(
        "test", parts.hostname, str(parts.port), "http://auth", False, None
    )
    options = {"merchant_id": "m", "public_key": "p", "private_key": "k"}
    configuration = braintree.Configuration(place, **options, wrap_http_exceptions=True)
    braintree.BraintreeGateway(configuration).customer.find("1")


def by_twilio(url):
    rest = pytest.importorskip("twilio.rest")
    from twilio.http.http_client import TwilioHttpClient

    class Local(TwilioHttpClient):
        def request(self, method, uri, **options):
            return super().request(method, url + urlsplit(uri).path, **options)

    client = rest.Client("AC" + "1" * 32, "token", http_client=Local(timeout=60))
    client.messages.create(to="+1", from_="+2", body="m")


def by_slack(url):
    sdk = pytest.importorskip("slack_sdk")
    sdk.WebClient("t", base_url=f"{url}/", timeout=60, retry_handlers=[]).api_test()


def by_async_slack(url):
    sdk = pytest.importorskip("slack_sdk.web.async_client")

    async def send():
        client = sdk.AsyncWebClient("t", base_url=f"{url}/", timeout=60, retry_handlers=[])
        await client.api_test()

    asyncio.run(send())


def by_telegram(url):
    telegram = pytest.importorskip("telegram")

    async def send():
        async with telegram.Bot("1:x", base_url=f"{url}/bot") as bot:
            await bot.send_message(1, "m")

    asyncio.run(send())


def by_github(url):
    github = pytest.importorskip("github")
    with github.Github(base_url=url, retry=None, auth=github.Auth.Token("t"), timeout=60) as client:
        client.get_user("somebody")


def by_gitlab(url):
    gitlab = pytest.importorskip("gitlab")
    with gitlab.Gitlab(url, private_token="t", timeout=60) as client:
        client.projects.get(1, obey_rate_limit=False)


def by_vault(url):
    hvac = pytest.importorskip("hvac")
    hvac.Client(url, token="t", timeout=60).secrets.kv.v1.read_secret("path")


def by_ccxt(url):
    ccxt = pytest.importorskip("ccxt")
    exchange = ccxt.binance({"timeout": 60_000})
    exchange.urls["api"] = dict.fromkeys(exchange.urls["api"], url)
    exchange.fetch_time()


WSDL = """<?xml version="1.0"?>
<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" xmlns:s="http://schemas.xmlsoap.org/wsdl/soap/"
  xmlns:t="urn:t" xmlns:x="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:t">
<message name="In"><part name="a" type="x:string"/></message>
<message name="Out"><part name="b" type="x:string"/></message>
<portType name="P"><operation name="Ask">
  <input message="t:In"/><output message="t:Out"/></operation></portType>
<binding name="B" type="t:P">
  <s:binding style="rpc" transport="http://schemas.xmlsoap.org/soap/http"/>
  <operation name="Ask"><s:operation soapAction="Ask"/>
    <input><s:body use="literal" namespace="urn:t"/></input>
    <output><s:body use="literal" namespace="urn:t"/></output></operation></binding>
<service name="S"><port name="Q" binding="t:B"><s:address location="URL"/></port></service>
</definitions>"""  # fmt: skip

FAULT = """<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body><e:Fault>
<faultcode>e:Server</faultcode><faultstring>no</faultstring></e:Fault></e:Body></e:Envelope>"""


def by_zeep(url):
    zeep = pytest.importorskip("zeep")
    description = io.BytesIO(WSDL.replace("URL", url).encode())
    zeep.Client(description).service.Ask("something")


def by_googlemaps(url):
    maps = pytest.importorskip("googlemaps")
    client = maps.Client(key="AIza", retry_timeout=0.5, retry_over_query_limit=False, timeout=60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("googlemaps.client.time.sleep", lambda seconds: None)
        client._request("/geocode", {}, base_url=url)


CLIENTS = [
    by_stripe, by_braintree, by_twilio, by_slack, by_async_slack, by_telegram, by_github, by_gitlab,
    by_vault, by_ccxt, by_zeep, by_googlemaps,
]  # fmt: skip


# -- common to all of them - --------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_connection(client, closed_port):
    assert verdict(client, f"http://127.0.0.1:{closed_port}") == T


# ccxt takes 403 and 404 for an exchange that is not available.
@pytest.mark.parametrize("client", [client for client in CLIENTS if client is not by_ccxt])
@pytest.mark.parametrize(("status", "expected"), [(503, T), (429, T), (403, X), (404, X)])
def test_a_status_without_a_word(served, client, status, expected):
    assert verdict(client, served(Answer(status, {}))) == expected


@pytest.mark.parametrize("client", [by_stripe, by_slack, by_async_slack, by_github])
def test_when_to_come_back(served, client):
    answer = Answer(429, {"error": {}}, Retry_After="30")
    assert decided(client, served(answer)).retry_after == 30.0


# -- one by one ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "said", "expected"),
    [
        (429, {"code": "rate_limit"}, {}, T),
        (429, {"code": "lock_timeout"}, {"stripe_should_retry": "true"}, T),
        (409, {"code": "idempotency_key_in_use"}, {}, T),
        (500, {"type": "api_error"}, {}, T),
        (503, {"type": "api_error"}, {"stripe_should_retry": "false"}, X),
        (400, {"type": "idempotency_error"}, {}, X),
        (400, {"type": "invalid_request_error"}, {}, X),
        (401, {"type": "invalid_request_error"}, {}, X),
        (402, {"type": "card_error", "code": "card_declined"}, {}, X),
        (402, {"type": "card_error", "code": "processing_error"}, {}, X),
        (403, {"type": "invalid_request_error"}, {}, X),
    ],
)
def test_stripe(served, status, error, said, expected):
    assert verdict(by_stripe, served(Answer(status, {"error": error}, **said))) == expected


def test_stripe_and_a_signature():
    stripe = pytest.importorskip("stripe")
    decision = decided(stripe.Webhook.construct_event, "{}", "t=1,v1=0", "secret")
    assert (decision.verdict.value, decision.rule) == (X, "stripe.signature")


@pytest.mark.parametrize(
    ("status", "expected"),
    [(408, T), (429, T), (502, T), (504, T), (401, X), (418, X), (426, X), (500, X)],
)
def test_braintree(served, status, expected):
    assert verdict(by_braintree, served(Answer(status))) == expected


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(429, 20429, T), (503, 20503, T), (400, 21211, X), (401, 20003, X)],
)
def test_twilio(served, status, code, expected):
    answer = Answer(status, {"code": code, "message": "m", "status": status})
    assert verdict(by_twilio, served(answer)) == expected


@pytest.mark.parametrize("client", [by_slack, by_async_slack])
@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (429, "ratelimited", T),
        (200, "internal_error", T),
        (200, "service_unavailable", T),
        (500, "fatal_error", T),
        (200, "channel_not_found", X),
        (200, "invalid_auth", X),
    ],
)
def test_slack(served, client, status, error, expected):
    decision = decided(client, served(Answer(status, {"ok": False, "error": error})))
    assert (decision.verdict.value, decision.evidence) == (expected, f"error={error}")


@pytest.mark.parametrize("client", [by_slack, by_async_slack])
def test_slack_behind_a_proxy_that_answers_itself(served, client):
    assert verdict(client, served(Answer(503, "<html>", "text/html"))) == T


@pytest.mark.parametrize(
    ("status", "expected"),
    [(500, T), (502, T), (400, X), (401, X), (409, X), (413, X), (414, X)],
)
def test_telegram(served, status, expected):
    description = {"description": "Request Entity Too Large"} if status == 413 else {}
    assert verdict(by_telegram, served(Answer(status, {"ok": False, **description}))) == expected


@pytest.mark.filterwarnings("ignore:.*retry_after.*")
def test_telegram_floods(served):
    body = {"ok": False, "description": "m", "parameters": {"retry_after": 11}}
    decision = decided(by_telegram, served(Answer(429, body)))
    assert (decision.verdict.value, decision.retry_after) == (T, 11.0)


def test_telegram_and_a_chat_that_moved(served):
    body = {"ok": False, "description": "m", "parameters": {"migrate_to_chat_id": -1}}
    assert verdict(by_telegram, served(Answer(400, body))) == X


@pytest.mark.parametrize(
    ("status", "message", "headers", "expected"),
    [
        (403, "API rate limit exceeded for 1.2.3.4", {"X_RateLimit_Remaining": "0"}, T),
        (403, "You have exceeded a secondary rate limit", {"Retry_After": "60"}, T),
        (403, "Something else", {"Retry_After": "60"}, T),
        (403, "Resource not accessible", {}, X),
        (401, "Bad credentials", {}, X),
        (422, "Validation Failed", {}, X),
        (500, "m", {}, X),
        (502, "m", {}, T),
    ],
)
def test_github(served, status, message, headers, expected):
    assert verdict(by_github, served(Answer(status, {"message": message}, **headers))) == expected


@pytest.mark.parametrize(
    ("status", "expected"), [(400, X), (401, X), (409, X), (500, X), (502, T), (504, T)]
)
def test_gitlab(served, status, expected):
    assert verdict(by_gitlab, served(Answer(status, {"message": "m"}))) == expected


def test_gitlab_answers_without_json(served):
    assert verdict(by_gitlab, served(Answer(200, "<html>"))) == X


@pytest.mark.parametrize(
    ("status", "expected"), [(400, X), (401, X), (500, X), (501, X), (502, T), (503, T)]
)
def test_vault(served, status, expected):
    decision = decided(by_vault, served(Answer(status, {"errors": ["m"]})))
    assert (decision.verdict.value, decision.rule) == (expected, "vault.answer")


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(429, -1003, T), (418, -1003, T), (400, -1121, X), (401, -2015, X), (400, -2010, X)],
)
def test_ccxt(served, status, code, expected):
    assert (
        verdict(by_ccxt, served(Answer(status, {"code": code, "msg": "Invalid symbol."})))
        == expected
    )


def test_soap(served):
    fault = decided(by_zeep, served(Answer(500, FAULT, "text/xml")))
    assert (fault.verdict.value, fault.rule) == (X, "soap.fault")
    assert decided(by_zeep, served(Answer(502, "", "text/xml"))).rule == "http.status"
    assert verdict(by_zeep, served(Answer(200, "no XML", "text/xml"))) == X


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("OVER_QUERY_LIMIT", T),
        ("UNKNOWN_ERROR", T),
        ("OVER_DAILY_LIMIT", X),
        ("REQUEST_DENIED", X),
        ("INVALID_REQUEST", X),
    ],
)
def test_googlemaps(served, word, expected):
    assert verdict(by_googlemaps, served(Answer(200, {"status": word}))) == expected
