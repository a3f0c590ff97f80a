import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "snowfakery==4.2.1"
import io, tempfile, pathlib
from snowfakery import generate_data
def recipe(text):
    def f():
        p = pathlib.Path(tempfile.mkdtemp()) / "r.yml"; p.write_text(text); generate_data(p, output_format="json", output_file=io.StringIO())
    return f
D = "data_gen_exceptions.py "
def cases():
    yield "broken YAML", recipe("- object: [\n"), "terminal", "firm", D + "DataGenYamlSyntaxError"
    yield "unknown name", recipe("- object: A\n  fields:\n    b: ${{nothing + 1}}\n"), "terminal", "firm", D + "DataGenNameError"
    yield "unknown function", recipe("- object: A\n  fields:\n    b:\n      nosuchfunction: 1\n"), "terminal", "firm", D + "DataGenNameError"
    yield "wrong type", recipe("- object: A\n  count: abc\n"), "terminal", "firm", D + "DataGenValueError"
