"""pymantic: a stub of a SPARQL endpoint."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "pymantic==1.0.1"


def query(base, sparql="SELECT * WHERE { ?s ?p ?o }"):
    from pymantic.sparql import SPARQLServer

    SPARQLServer(base + "/sparql").query(sparql)


def cases():
    yield (
        "endpoint answers 503",
        lambda: query(stub.answer(503, "<html><h1>503 Service Temporarily Unavailable</h1></html>")),
        "transient",
        "firm",
        "pymantic/sparql.py SPARQLQueryException: the store returns another status than 200",
    )
    yield (
        "query times out in the store (503)",
        lambda: query(stub.answer(503, "Query timed out")),
        "transient",
        "firm",
        "pymantic/sparql.py SPARQLQueryException; Fuseki answers 503 'Query timed out'",
    )
    yield (
        "connection refused",
        lambda: query(stub.refused()),
        "transient",
        "firm",
        "requests' ConnectionError passes through",
    )
    yield (
        "server closes the connection",
        lambda: query(stub.closing()),
        "transient",
        "firm",
        "requests' ConnectionError (remote end closed connection) passes through",
    )
    yield (
        "query is malformed (400)",
        lambda: query(
            stub.answer(400, "MalformedQueryException: Lexical error at line 1, column 5"), "SELEC"
        ),
        "terminal",
        "firm",
        "pymantic/sparql.py SPARQLQueryException",
    )
    yield (
        "dataset is missing (404)",
        lambda: query(stub.answer(404, "<html><h1>404 Not Found</h1></html>")),
        "terminal",
        "firm",
        "pymantic/sparql.py SPARQLQueryException",
    )
    yield (
        "login is missing (401)",
        lambda: query(stub.answer(401, "Unauthorized", {"WWW-Authenticate": "Basic"})),
        "terminal",
        "firm",
        "pymantic/sparql.py SPARQLQueryException",
    )
    yield (
        "answer has an unknown type",
        lambda: query(stub.answer(200, "<html></html>")),
        "terminal",
        "firm",
        "pymantic/sparql.py UnknownSPARQLReturnTypeException: a response with an unrecognized content-type",
    )
