import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "latest-user-agents==0.0.5"
import os, sqlite3, tempfile, time
import latest_user_agents as L
def fresh(url, age=None):
    L._cache_dir = tempfile.mkdtemp(); L._cache_file = os.path.join(L._cache_dir, "u.sqlite"); L._cached_user_agents = None; L._download_url = url
    if age:
        with L._cache_db_connection() as c:
            then = int(time.time() - age)
            c.execute('INSERT INTO user_agents VALUES (?, ?)', (then, "x")); c.execute('INSERT INTO last_download_attempt VALUES (0, ?)', (then,))
    return L.get_latest_user_agents()
def locked():
    L._cache_dir = tempfile.mkdtemp(); L._cache_file = os.path.join(L._cache_dir, "u.sqlite"); L._cached_user_agents = None
    c = sqlite3.connect(L._cache_file, isolation_level=None); c.execute("PRAGMA journal_mode = wal"); c.execute("BEGIN IMMEDIATE")
    real = sqlite3.connect; L.sqlite3.connect = lambda *a, **k: real(*a, timeout=0.1, **k)
    try:
        with L._cache_db_connection() as d: d.execute("INSERT INTO user_agents VALUES (1, 'y')"); d.execute("BEGIN IMMEDIATE")
    finally: L.sqlite3.connect = real; c.close()
def cases():
    yield "503, no cache", lambda: fresh(S.http(503, "x")), "transient", "firm", "__init__.py _download: requests HTTPError 503"
    yield "refused, no cache", lambda: fresh(S.refused()), "transient", "firm", "requests ConnectionError"
    yield "404, no cache", lambda: fresh(S.http(404, "x")), "terminal", "firm", "__init__.py _download: requests HTTPError 404"
    yield "cache too old and 503", lambda: fresh(S.http(503, "x"), 9 * 86400), "transient", "firm", "__init__.py LatestUserAgentsError from HTTPError 503"
    yield "cache too old and refused", lambda: fresh(S.refused(), 9 * 86400), "transient", "firm", "__init__.py LatestUserAgentsError from ConnectionError"
    yield "cache too old and 404", lambda: fresh(S.http(404, "x"), 9 * 86400), "terminal", "firm", "__init__.py LatestUserAgentsError from HTTPError 404"
    yield "cache database locked", locked, "transient", "firm", "sqlite3.OperationalError: database is locked"
