"""phidata: readers, tools and the vector store of MongoDB, each against a stub."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "phidata==2.7.10"


def mongo(**kwargs):
    from phi.vectordb.mongodb.mongodb import MongoDBVector

    return MongoDBVector(
        collection_name="docs",
        embedder=object(),
        serverSelectionTimeoutMS=300,
        db_url=f"mongodb://127.0.0.1:{stub.closed_port()}",
        **kwargs,
    )


def index():
    from phi.vectordb.mongodb.mongodb import MongoDBVector

    store = MongoDBVector.__new__(MongoDBVector)
    store.wait_until_index_ready = -1
    store._collection = stub.mock.Mock(**{"list_search_indexes.return_value": []})
    store._wait_for_index_ready()


def csv(base):
    from phi.document.reader.csv_reader import CSVUrlReader

    CSVUrlReader().read(base + "/data.csv")


def zendesk(base):
    from phi.tools.zendesk import ZendeskTools

    with stub.requests_to(base):
        ZendeskTools("user", "password", "company").search_zendesk("text")


def tool(name, text):
    import phi.tools
    from phi.tools.function import Function, FunctionCall

    def work():
        raise getattr(phi.tools, name)(text)

    FunctionCall(function=Function.from_callable(work), arguments={}).execute()


def cases():
    yield (
        "MongoDB cannot be reached",
        mongo,
        "transient",
        "firm",
        "phi/vectordb/mongodb/mongodb.py:82 ConnectionError 'Failed to connect to MongoDB'",
    )
    yield (
        "search index is not ready in time",
        index,
        "transient",
        "firm",
        (
            "phi/vectordb/mongodb/mongodb.py:162 TimeoutError 'Timeout waiting for search index to become"
            " ready.'"
        ),
    )
    yield (
        "503 of the web server of a CSV file",
        lambda: csv(stub.answer(503, "busy")),
        "transient",
        "firm",
        "phi/document/reader/csv_reader.py:72 httpx.HTTPStatusError",
    )
    yield (
        "Zendesk limits the rate (429)",
        lambda: zendesk(
            stub.answer(429, "Number of allowed API requests per minute exceeded", {"Retry-After": "30"})
        ),
        "transient",
        "firm",
        "phi/tools/zendesk.py:72 ConnectionError 'API request failed: 429 …'",
    )
    yield (
        "Zendesk rejects the password (401)",
        lambda: zendesk(stub.answer(401, '{"error": "Couldn\'t authenticate you"}')),
        "terminal",
        "firm",
        "phi/tools/zendesk.py:72 ConnectionError 'API request failed: 401 …'",
    )
    yield (
        "CSV file is missing (404)",
        lambda: csv(stub.answer(404, "no file")),
        "terminal",
        "firm",
        "phi/document/reader/csv_reader.py:72 httpx.HTTPStatusError",
    )
    yield (
        "a tool asks the agent to retry",
        lambda: tool("RetryAgentRun", "ask the model again"),
        "transient",
        "soft",
        "phi/tools/function.py RetryAgentRun: a tool call should be retried (mostly with other arguments)",
    )
    yield (
        "a tool stops the agent",
        lambda: tool("StopAgentRun", "the address is not one of ours"),
        "terminal",
        "firm",
        "phi/tools/function.py StopAgentRun: the agent should stop executing entirely",
    )
