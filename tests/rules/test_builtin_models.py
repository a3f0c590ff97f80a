"""The clients of OpenAI, Anthropic, Cohere and Hugging Face against local servers."""

import json
from types import SimpleNamespace

import pytest
from support.errors.verdicts import decided, verdict
from support.servers.local_servers import Answer, Answering

T, X = "transient", "terminal"


def by_openai(url, stream=False):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0, timeout=60) as client:
        answer = client.chat.completions.create(model="m", messages=[], stream=stream)
        list(answer if stream else ())


def by_anthropic(url, stream=False):
    anthropic = pytest.importorskip("anthropic")
    question = [{"role": "user", "content": "?"}]
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0, timeout=60) as client:
        answer = client.messages.create(model="m", max_tokens=1, messages=question, stream=stream)
        list(answer if stream else ())


def by_cohere(url):
    cohere = pytest.importorskip("cohere")
    with cohere.ClientV2(api_key="k", base_url=url, timeout=60) as client:
        question = [{"role": "user", "content": "?"}]
        client.chat(model="m", messages=question, request_options={"max_retries": 0})


def by_huggingface(url):
    hub = pytest.importorskip("huggingface_hub")
    hub.HfApi(endpoint=url).model_info("owner/model", timeout=60)


MODELS = pytest.mark.parametrize("client", [by_openai, by_anthropic, by_cohere, by_huggingface])


@MODELS
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_refusals(served, client, status):
    assert verdict(client, served(Answer(status, {"error": {"message": "m"}, "message": "m"}))) == X


@MODELS
@pytest.mark.parametrize("status", [408, 429, 502, 503, 504, 529])
def test_transient_failures(served, client, status):
    decision = decided(client, served(Answer(status, {"message": "m"}, Retry_After="7")))
    assert (decision.verdict.value, decision.retry_after) == (T, 7.0)


@pytest.mark.parametrize(
    ("client", "conflict", "failure"),
    [(by_openai, T, T), (by_anthropic, T, T), (by_cohere, T, X), (by_huggingface, X, X)],
)
def test_statuses_with_a_meaning_of_their_own(served, client, conflict, failure):
    assert verdict(client, served(Answer(409, {"message": "m"}))) == conflict
    assert verdict(client, served(Answer(500, {"message": "m"}))) == failure


@MODELS
def test_the_network(client, serve, closed_port, self_signed):
    assert verdict(client, f"http://127.0.0.1:{closed_port}") == T
    untrusted = decided(client, f"https://{serve(Answering, context=self_signed)}")
    assert (untrusted.verdict.value, untrusted.rule) == (X, "tls.certificate")


@pytest.mark.parametrize("client", [by_openai, by_anthropic])
@pytest.mark.parametrize(("said", "status", "expected"), [("false", 503, X), ("true", 400, T)])
def test_the_service_says_whether_to_try_again(served, client, said, status, expected):
    decision = decided(client, served(Answer(status, {}, x_should_retry=said)))
    assert decision.verdict.value == expected
    assert decision.evidence == f"x-should-retry: {said}"


@pytest.mark.parametrize(
    ("code", "expected"),
    [("rate_limit_exceeded", T), ("insufficient_quota", X), ("project_spend_limit_exceeded", X)],
)
def test_openai_without_credit(served, code, expected):
    url = served(
        Answer(429, {"error": {"code": code, "type": code, "message": "m"}}, Retry_After="1")
    )
    decision = decided(by_openai, url)
    assert decision.verdict.value == expected
    assert decision.retry_after == (1.0 if expected == T else None)


def test_openai_in_the_middle_of_a_stream(served):
    event = 'data: {"error": {"message": "m", "type": "server_error", "code": null}}\n\n'
    assert verdict(by_openai, served(Answer(200, event, "text/event-stream")), stream=True) == T
    event = event.replace("server_error", "invalid_request_error")
    assert verdict(by_openai, served(Answer(200, event, "text/event-stream")), stream=True) == X


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", T),
        ("rate_limit_error", T),
        ("api_error", T),
        ("invalid_request_error", X),
    ],
)
def test_anthropic_in_the_middle_of_a_stream(served, kind, expected):
    error = json.dumps({"type": "error", "error": {"type": kind, "message": "m"}})
    event = f"event: error\ndata: {error}\n\n"
    url = served(Answer(200, event, "text/event-stream"))
    assert verdict(by_anthropic, url, stream=True) == expected


def test_anthropic_with_a_spending_limit(served):
    details = {"error_code": "enforced_spend_limit_reached"}
    error = {"type": "rate_limit_error", "message": "m", "details": details}
    assert verdict(by_anthropic, served(Answer(429, {"type": "error", "error": error}))) == X


# -- Hugging Face -------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["RepoNotFound", "RevisionNotFound", "GatedRepo"])
def test_huggingface_names_what_is_missing(served, code):
    assert verdict(by_huggingface, served(Answer(404, X_Error_Code=code))) == X


@pytest.fixture
def hub(monkeypatch):
    """Hugging Face's library, without the 23 seconds that it pauses between its tries."""
    library = pytest.importorskip("huggingface_hub")
    http = pytest.importorskip("huggingface_hub.utils._http")
    monkeypatch.setattr(http, "time", SimpleNamespace(sleep=lambda _seconds: None))
    return library


def download(hub, url, folder, **options):
    hub.hf_hub_download("owner/model", "file", endpoint=url, cache_dir=folder, **options)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(503), T),
        (Answer(400), X),
        (Answer(200), X),  # the answer lacks the headers of a hub
    ],
)
def test_huggingface_without_the_file_in_its_cache(hub, served, tmp_path, answer, expected):
    assert verdict(download, hub, served(answer), tmp_path) == expected


def test_huggingface_and_the_network(hub, closed_port, tmp_path):
    url = f"http://127.0.0.1:{closed_port}"
    assert verdict(download, hub, url, tmp_path) == T
    assert verdict(download, hub, url, tmp_path, local_files_only=True) == X


@pytest.mark.parametrize(
    ("status", "kind", "expected"), [(503, "overloaded", T), (422, "validation", X)]
)
def test_huggingface_inference(served, status, kind, expected):
    hub = pytest.importorskip("huggingface_hub")
    url = served(Answer(status, {"error": "m", "error_type": kind}))
    assert verdict(hub.InferenceClient(url).text_generation, "text") == expected
