"""Data that is wrong, as the real libraries say so. All of it stays wrong."""

import argparse
import asyncio
import base64
import configparser
import csv
import ctypes
import email.errors
import getopt
import gzip
import io
import json
import lzma
import optparse
import pickle
import re
import struct
import tarfile
import tokenize
import wave
import xml.dom.minidom
import xml.etree.ElementTree
import xml.sax
import zipfile
import zlib
from contextlib import closing
from http.cookies import SimpleCookie
from types import SimpleNamespace

import pytest
from support.errors.libraries import library
from support.errors.verdicts import judge, raised

from celery_dlq.classify import decide

DATA, INVALID, KEYS, TOKEN = "data.format", "data.invalid", "crypto.error", "token.invalid"


class Parser(argparse.ArgumentParser):
    def __init__(self):
        super().__init__(exit_on_error=False)
        self.add_argument("--number", type=int)


def _unfinished():
    with closing(asyncio.new_event_loop()) as loop:
        asyncio.Future(loop=loop).result()


# -- the standard library ---------------------------------------------------------------------------


STDLIB = {
    "json": lambda: json.loads("{"),
    "csv": lambda: list(csv.reader(["a\0b" * 3, '"' + "x" * 200_000])),
    "csv dialect": lambda: csv.reader([], dialect="none"),
    "struct": lambda: struct.unpack("i", b"1"),
    "zlib": lambda: zlib.decompress(b"no"),
    "lzma": lambda: lzma.decompress(b"no lzma at all"),
    "gzip": lambda: gzip.decompress(b"no gzip at all"),
    "zip": lambda: zipfile.ZipFile(io.BytesIO(b"no")),
    "tar": lambda: tarfile.TarFile(fileobj=io.BytesIO(b"no")),
    "pickle": lambda: pickle.loads(b"no"),
    "pickling": lambda: pickle.dumps(lambda: None),
    "base64": lambda: base64.b64decode("a"),
    "etree": lambda: xml.etree.ElementTree.fromstring("<a>"),
    "minidom": lambda: xml.dom.minidom.parseString("<a>"),
    "dom": lambda: xml.dom.minidom.Document().appendChild(xml.dom.minidom.Document()),
    "sax": lambda: xml.sax.parseString("<a>", xml.sax.ContentHandler()),
    "configparser": lambda: configparser.ConfigParser().read_string("x"),
    "option": lambda: configparser.ConfigParser().get("a", "b"),
    "wave": lambda: wave.Wave_read(io.BytesIO(b"RIFF0000no")),
    "cookie": lambda: SimpleCookie()["a b"].coded_value or SimpleCookie({"a b": "c"}),
    "tokenize": lambda: list(tokenize.generate_tokens(io.StringIO('"""').readline)),
    "regex": lambda: re.compile("("),
    "argparse": lambda: Parser().parse_args(["--number", "x"]),
    "getopt": lambda: getopt.getopt(["-x"], "a"),
    "optparse": lambda: optparse.OptionParser()._match_long_opt("--x"),
    "ctypes": lambda: ctypes.CDLL(None).strlen(object()),
    "unsupported": lambda: io.BytesIO().fileno(),
    "unicode": lambda: "\ud800".encode(),
    "iteration": lambda: next(iter(())),
    "async state": _unfinished,
}


@pytest.mark.parametrize("name", STDLIB)
def test_standard_library(name):
    verdict, rule = judge(raised(STDLIB[name]))
    assert verdict == "terminal"
    assert rule != "default"


def test_a_header_that_cannot_be_read():
    assert judge(email.errors.HeaderParseError("x")) == ("terminal", DATA)


# -- schemas ----------------------------------------------------------------------------------------


def _marshmallow():
    marshmallow = library("marshmallow")
    schema = marshmallow.Schema.from_dict({"number": marshmallow.fields.Int()})()
    schema.load({"number": "x"})


def _attrs():
    attr = library("attr")
    attr.make_class("Point", {"x": attr.ib(validator=attr.validators.instance_of(int))})("x")


def _msgspec():
    library("msgspec").json.decode(b'"x"', type=int)


def _fastavro():
    library("fastavro").parse_schema({"type": "unheard of"})


def _typeguard():
    library("typeguard").check_type("x", int)


def _dacite():
    from dataclasses import make_dataclass

    library("dacite").from_dict(make_dataclass("Point", [("x", int)]), {"x": "y"})


SCHEMAS = {
    "pydantic": lambda: library("pydantic").TypeAdapter(int).validate_python("x"),
    "pydantic schema": lambda: library("pydantic_core").SchemaValidator({"type": "none such"}),
    "pydantic json": lambda: library("pydantic").TypeAdapter(int).validate_json("{"),
    "marshmallow": _marshmallow,
    "jsonschema": lambda: library("jsonschema").validate(1, {"type": "string"}),
    "jsonschema schema": lambda: library("jsonschema").validate(1, {"type": "none such"}),
    "cerberus schema": lambda: library("cerberus").Validator({"x": {"type": "none such"}}),
    "cerberus document": lambda: library("cerberus").Validator({}).validate(1),
    "cattrs": lambda: library("cattrs").structure(1, object()),
    "voluptuous": lambda: library("voluptuous").Schema(int)("x"),
    "schema": lambda: library("schema").Schema(int).validate("x"),
    "msgspec": _msgspec,
    "dacite": _dacite,
    "typeguard": _typeguard,
    "fastavro": _fastavro,
    "phonenumbers": lambda: library("phonenumbers").parse("x"),
    "email": lambda: library("email_validator").validate_email("x", check_deliverability=False),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas(name):
    assert judge(raised(SCHEMAS[name])) == ("terminal", INVALID)


def test_a_group_of_invalid_fields():
    cattrs, attr = library("cattrs"), library("attr")
    point = attr.make_class("Point", {"x": attr.ib(type=int)})
    assert judge(raised(cattrs.structure, {"x": "y"}, point)) == ("terminal", INVALID)


def test_attrs():
    assert judge(raised(_attrs)) == ("terminal", "python.error")


def test_a_schema_that_could_not_be_fetched():
    referencing = library("referencing")

    def refused(uri):
        raise ConnectionRefusedError(111, "refused")

    registry = referencing.Registry(retrieve=refused)
    exc = raised(registry.resolver().lookup, "http://127.0.0.1/schema")
    assert judge(exc) == ("transient", "os.network")
    assert judge(raised(referencing.Registry().resolver().lookup, "urn:none"))[0] == "terminal"


# -- formats ----------------------------------------------------------------------------------------


FORMATS = {
    "yaml": lambda: library("yaml").safe_load("a: [b"),
    "yaml tag": lambda: library("yaml").safe_load("!!python/name:os.system"),
    "ruamel": lambda: library("ruamel.yaml").YAML().load("a: [b"),
    "lxml": lambda: library("lxml.etree").DTD(io.StringIO("<!nonsense>")),
    "lxml xpath": lambda: library("lxml.etree").XML("<a/>").xpath("]"),
    "pillow": lambda: library("PIL.Image").open(io.BytesIO(b"no image")),
    "msgpack": lambda: library("msgpack").unpackb(b"\x01\x02"),
    "openpyxl": lambda: library("openpyxl").load_workbook("book.txt"),
    "xlrd": lambda: library("xlrd").open_workbook(file_contents=b"no workbook"),
    "pypdf": lambda: library("pypdf").PdfReader(io.BytesIO(b"")),
    "docx": lambda: library("docx").Document("/nonexistent.docx"),
    "protobuf": lambda: library("google.protobuf.wrappers_pb2").StringValue.FromString(b"\xff"),
    "zstandard": lambda: library("zstandard").ZstdDecompressor().decompress(b"no"),
    "brotli": lambda: library("brotli").decompress(b"no brotli"),
    "pyparsing": lambda: library("pyparsing").Word("a").parse_string("b"),
    "lark": lambda: library("lark").Lark("start: 'a'").parse("b"),
    "jsonpath": lambda: library("jsonpath_ng").parse("$["),
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats(name):
    assert judge(raised(FORMATS[name])) == ("terminal", DATA)


TEMPLATES = {
    "syntax": lambda: library("jinja2").Template("{{"),
    "undefined": lambda: library("jinja2").Template("{{ a.b.c }}").render(),
    "missing": lambda: (
        library("jinja2").Environment(loader=library("jinja2").DictLoader({})).get_template("x")
    ),
    "mako": lambda: library("mako.template").Template("<%"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(name):
    assert judge(raised(TEMPLATES[name])) == ("terminal", "template.error")


# Derived from ValueError and the like, each in a library of its own.
OWN_ERRORS = {
    "orjson": lambda: library("orjson").loads("{"),
    "orjson type": lambda: library("orjson").dumps(object()),
    "simplejson": lambda: library("simplejson").loads("{"),
    "ujson": lambda: library("ujson").loads("{"),
    "dateutil": lambda: library("dateutil.parser").parse("never"),
    "croniter": lambda: library("croniter").croniter("x"),
    "pendulum": lambda: library("pendulum").parse("never"),
    "jmespath": lambda: library("jmespath").search("[", {}),
    "xmltodict": lambda: library("xmltodict").parse("<a>"),
    "lxml syntax": lambda: library("lxml.etree").fromstring("<a>"),
    "defusedxml": lambda: library("defusedxml.ElementTree").fromstring(
        '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
    ),
    "toml": lambda: library("toml").loads("="),
    "idna": lambda: library("idna").encode("\u2260"),
    "environs": lambda: library("environs").Env().int("CELERY_DLQ_NO_SUCH_VARIABLE"),
    "cloudpickle": lambda: library("cloudpickle").loads(b"no"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", OWN_ERRORS)
def test_errors_below_pythons_own(name):
    verdict, rule = judge(raised(OWN_ERRORS[name]))
    assert verdict == "terminal"
    assert rule in {"python.error", DATA, INVALID}


def test_the_number_of_a_parsers_error_is_not_an_http_status():
    # libxml2 numbers its errors; 503 and 504 are among them.
    error = library("lxml.etree").XMLSyntaxError("x", 503, 1, 1)
    assert decide(error).verdict.value == "terminal"
    custom = type("TaxError", (ValueError,), {"code": 503, "status": 503})
    assert judge(custom()) == ("terminal", "python.error")
    sure = type("ApiError", (ValueError,), {"status_code": 503})
    assert judge(sure()) == ("transient", "http.status")


# -- keys and tokens --------------------------------------------------------------------------------


def _signature():
    ed25519 = library("cryptography.hazmat.primitives.asymmetric.ed25519")
    ed25519.Ed25519PrivateKey.generate().public_key().verify(b"0" * 64, b"x")


def _tag():
    aead = library("cryptography.hazmat.primitives.ciphers.aead")
    aead.AESGCM(b"0" * 32).decrypt(b"0" * 12, b"0" * 32, None)


SECRETS = {
    "fernet": lambda: (
        library("cryptography.fernet").Fernet(base64.b64encode(b"0" * 32)).decrypt(b"x")
    ),
    "signature": _signature,
    "tag": _tag,
    "nacl": lambda: library("nacl.secret").SecretBox(b"0" * 32).decrypt(b"0" * 64),
}


@pytest.mark.parametrize("name", SECRETS)
def test_secrets(name):
    assert judge(raised(SECRETS[name])) == ("terminal", KEYS)


def _expired():
    jwt = library("jwt")
    token = jwt.encode({"exp": 1}, "0" * 64, algorithm="HS256")
    jwt.decode(token, "0" * 64, algorithms=["HS256"])


TOKENS = {
    "decode": lambda: library("jwt").decode("x", "0" * 64, algorithms=["HS256"]),
    "expired": _expired,
    "jose": lambda: library("jose.jwt").decode("x", "0" * 64),
    "joserfc": lambda: library("joserfc.jwt").decode(
        "x", library("joserfc.jwk").OctKey.import_key("0" * 64)
    ),
    "itsdangerous": lambda: library("itsdangerous").Signer("k").unsign("x.y"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", TOKENS)
def test_tokens(name):
    assert judge(raised(TOKENS[name])) == ("terminal", TOKEN)


def test_keys_that_could_not_be_fetched():
    jwt = library("jwt")
    exc = raised(jwt.PyJWKClient("http://127.0.0.1:1/keys").fetch_data)
    assert judge(exc) == ("transient", "os.network")


def test_commands():
    click = library("click")
    exc = raised(click.Command("x", params=[]).main, ["--no"], standalone_mode=False)
    assert judge(exc) == ("terminal", "python.usage")


def test_an_attribute_of_data_decides_nothing():
    exc = raised(json.loads, "{")
    exc.response = SimpleNamespace(status_code=503)
    assert judge(exc) == ("terminal", DATA)
