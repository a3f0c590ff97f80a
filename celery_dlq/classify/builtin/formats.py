"""Errors about malformed data, wrong calls, templates and keys: the same input would fail the same way again.

Many more errors of these libraries derive from ``ValueError``, which has a row. Here are the classes that do
not, and the most common of those that do. The base class of a library's errors stands for all of them.
"""

from __future__ import annotations

from celery_dlq.classify.table import terminal, within, wrapper

# The standard library, including its extension modules.
_STDLIB = (
    terminal(
        "data.format",
        *within("zipfile", "BadZipFile LargeZipFile"),
        *within("xml.dom", "DOMException"),
        *within("xml.sax._exceptions", "SAXException"),
        *within("_pickle", "PickleError"),
        *within("pickle", "PickleError"),
        *within("tokenize", "TokenError"),
        "json.decoder.JSONDecodeError",
        "_csv.Error",
        "struct.error",
        "zlib.error",
        "_lzma.LZMAError",
        "gzip.BadGzipFile",
        "tarfile.TarError",
        "xml.parsers.expat.ExpatError",
        "binascii.Error",
        "binascii.Incomplete",
        "configparser.Error",
        "email.errors.MessageError",
        "wave.Error",
        "netrc.NetrcParseError",
        "http.cookies.CookieError",
        "http.cookiejar.LoadError",
    ),
    terminal(
        "python.usage",
        *within("argparse", "ArgumentError ArgumentTypeError"),
        *within("getopt", "GetoptError"),
        *within("optparse", "OptParseError"),
        "copy.Error",
        "ctypes.ArgumentError",
        "io.UnsupportedOperation",
        "locale.Error",
        "re.error",
        "re.PatternError",
    ),
)

_SCHEMAS = (
    terminal(
        "data.invalid",
        *within(
            "pydantic_core._pydantic_core",
            "ValidationError SchemaError PydanticOmit PydanticUseDefault",
        ),
        *within("pydantic.errors", "PydanticUserError"),
        *within("pydantic.v1.error_wrappers", "ValidationError"),
        *within("pydantic.v1.errors", "ConfigError"),
        *within("marshmallow.exceptions", "MarshmallowError"),
        *within(
            "jsonschema.exceptions",
            "_Error UndefinedTypeCheck UnknownType FormatError ValidationError SchemaError",
        ),
        *within("cerberus.schema", "SchemaError"),
        *within("cerberus.validator", "DocumentError"),
        *within("cattrs.errors", "CattrsError BaseValidationError StructureHandlerNotFoundError"),
        *within("attr.exceptions", "UnannotatedAttributeError DefaultAlreadySetError"),
        *within("voluptuous.error", "Error"),
        *within("schema", "SchemaError"),
        *within("msgspec", "MsgspecError"),
        *within("dacite.exceptions", "DaciteError"),
        *within("typeguard", "TypeCheckError"),
        *within("fastavro._schema_common", "SchemaParseException UnknownType"),
        *within("fastavro._validate_common", "ValidationError"),
        *within("fastavro._read_common", "SchemaResolutionError"),
        *within("xmlschema.exceptions", "XMLSchemaException"),
        *within("phonenumbers.phonenumberutil", "NumberParseException"),
    ),
    # The schema at a URL could not be fetched: the HTTP client's exception decides.
    wrapper(
        "data.reference",
        "its cause",
        *within("jsonschema.exceptions", "_RefResolutionError _WrappedReferencingError"),
        *within("referencing.exceptions", "Unresolvable Unretrievable"),
    ),
    terminal("data.invalid", "email_validator.exceptions.EmailNotValidError"),
)

_FORMATS = (
    terminal(
        "data.format",
        *within("yaml.error", "YAMLError"),
        *within("ruamel.yaml.error", "YAMLError YAMLStreamError"),
        *within("lxml.etree", "Error"),
        *within("PIL", "UnidentifiedImageError"),
        *within("PIL.Image", "DecompressionBombError"),
        *within("PIL.ImageCms", "PyCMSError"),
        *within("msgpack.exceptions", "UnpackException ExtraData"),
        *within("openpyxl.utils.exceptions", "InvalidFileException IllegalCharacterError"),
        *within("xlrd.biffh", "XLRDError"),
        *within("xlrd.compdoc", "CompDocError"),
        *within("pypdf.errors", "PyPdfError DependencyError"),
        *within("docx.exceptions", "PythonDocxError"),
        *within("docx.opc.exceptions", "OpcError"),
        *within("google.protobuf.message", "Error"),
        *within("google.protobuf.json_format", "Error"),
        *within("zstandard.backend_c", "ZstdError"),
        *within("brotli", "error"),
        *within("pyparsing.exceptions", "ParseBaseException RecursiveGrammarException"),
        *within("lark.exceptions", "LarkError"),
        *within("jsonpath_ng.exceptions", "JSONPathError"),
        *within("html5lib.html5parser", "ParseError"),
        *within("bs4.exceptions", "ParserRejectedMarkup"),
    ),
    terminal(
        "template.error",
        *within("jinja2.exceptions", "TemplateError TemplateNotFound"),
        *within("mako.exceptions", "MakoException"),
    ),
    terminal("python.usage", "click.exceptions.ClickException"),
)

# A wrong key, an expired token, a signature that does not match.
_CRYPTOGRAPHY = (
    terminal(
        "crypto.error",
        *within("cryptography.fernet", "InvalidToken"),
        *within(
            "cryptography.exceptions",
            "AlreadyFinalized AlreadyUpdated InternalError InvalidKey InvalidSignature InvalidTag "
            "NotYetFinalized UnsupportedAlgorithm",
        ),
        *within("cryptography.hazmat.primitives.keywrap", "InvalidUnwrap"),
        *within("cryptography.hazmat.primitives.twofactor", "InvalidToken"),
        *within("cryptography.x509.extensions", "DuplicateExtension ExtensionNotFound"),
        *within("cryptography.hazmat.bindings._rust.x509", "VerificationError"),
        *within("nacl.exceptions", "CryptoError"),
    ),
    terminal(
        "token.invalid",
        *within("jwt.exceptions", "PyJWTError"),
        *within("jose.exceptions", "JOSEError"),
        *within("joserfc.errors", "JoseError"),
        *within("itsdangerous.exc", "BadData"),
    ),
    # PyJWT fetches keys with urllib, and raises this error from urllib's.
    wrapper("urllib.reason", "its cause", "jwt.exceptions.PyJWKClientConnectionError"),
)

ROWS = (*_STDLIB, *_SCHEMAS, *_FORMATS, *_CRYPTOGRAPHY)
