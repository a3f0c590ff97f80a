import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "mechanicalsoup==1.4.0"
import mechanicalsoup as M
def page(): b = M.StatefulBrowser(raise_on_404=True); b.open_fake_page("<a href='x'>y</a><form><input name=a></form>", url="http://x/"); return b
def form(): b = page(); b.select_form(); b["nope"] = "1"
def cases():
    yield "404 with raise_on_404", lambda: M.StatefulBrowser(raise_on_404=True).open(S.http(404, "no", ctype="text/html")), "terminal", "firm", "utils.py LinkNotFoundError"
    yield "no such link", lambda: page().follow_link("nothing"), "terminal", "firm", "utils.py LinkNotFoundError"
    yield "no such field", form, "terminal", "firm", "form.py InvalidFormMethod/LinkNotFoundError"
    yield "refused", lambda: M.StatefulBrowser().open(S.refused()), "transient", "firm", "requests ConnectionError"
    yield "timeout", lambda: M.StatefulBrowser().open(S.silent(), timeout=0.3), "transient", "firm", "requests ReadTimeout"
    yield "503 and raise_for_status", lambda: M.StatefulBrowser().open(S.http(503, "busy", ctype="text/html")).raise_for_status(), "transient", "firm", "requests HTTPError 503"
