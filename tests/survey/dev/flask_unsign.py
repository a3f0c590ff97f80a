import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "flask-unsign==1.2.1"
import flask_unsign as F
def cases():
    yield "cookie cannot be decoded", lambda: F.decode("not a cookie"), "terminal", "firm", "exceptions.py DecodeError"
    yield "secret is no text", lambda: F.sign({"a": 1}, secret=5), "terminal", "firm", "exceptions.py SigningError"
    yield "secret of verify is no text", lambda: F.verify("x.y.z", secret=5), "terminal", "firm", "exceptions.py FlaskUnsignException"
