"""rapidyaml parses text in the process: every error is an error of the input (terminal)."""

LIBRARY = "rapidyaml==0.15.2"


def parse(text):
    import ryml

    tree = ryml.parse_in_arena(text)
    tree.resolve()
    return tree


def emit():
    import ryml

    ryml.emit_yaml_in_place(parse(b"abc: 123456"), bytearray(2))


def cases():
    yield (
        "a bracket is not closed",
        lambda: parse(b"a: [1, 2"),
        "terminal",
        "firm",
        "ryml.ExceptionParse: the text is no YAML",
    )
    yield (
        "a quote is not closed",
        lambda: parse(b'"abc'),
        "terminal",
        "firm",
        "ryml.ExceptionParse: reached end of file while looking for closing quote",
    )
    yield (
        "an alias has no anchor",
        lambda: parse(b"*nope"),
        "terminal",
        "firm",
        "ryml.ExceptionVisit: anchor not found",
    )
    yield (
        "the buffer is too small",
        emit,
        "terminal",
        "firm",
        "ryml/ryml.py:240 IndexError: output buffer has too few bytes",
    )
