"""Bodhi, Fedora's system for updates: Pyramid, SQLAlchemy, periodic tasks, ``autoretry_for``."""

import os
from pathlib import Path

from cases import QUEUE, SECRET, SERVICE, Case, set_up

_HERE = Path.cwd()
# Celery imports the module again in the worker, which finds these files.
(_HERE / "celeryconfig.py").write_text(
    'imports = "bodhi.server.tasks"\nresult_backend = "rpc://"\n'
)
(_HERE / "bodhi.ini").write_text(
    "[app:main]\nuse = egg:bodhi-server\n"
    f"sqlalchemy.url = sqlite:///{_HERE}/bodhi.sqlite3\n"
    f"celery_config = {_HERE}/celeryconfig.py\ncompose_dir = {_HERE}/composes\n"
    f"buildsystem = dev\nacl_system = dummy\nbugtracker = dummy\n"
    f"query_wiki_test_cases = true\nwiki_url = {SERVICE}/api.php\n"
    "authtkt.secret = of-a-test\nsession.secret = of-a-test\n"
    "base_address = https://bodhi.example/\n"
)
os.environ["BODHI_CONFIG"] = str(_HERE / "bodhi.ini")

from bodhi.server import Session, initialize_db, models  # noqa: E402
from bodhi.server.config import config  # noqa: E402
from bodhi.server.tasks import app  # noqa: E402

set_up(app)
app.conf.task_routes = {"*": {"queue": QUEUE}}
# pymediawiki asks standard output for its encoding, which that of a worker does not have.
app.conf.worker_redirect_stdouts = False

_BUGS, _CASES = "bodhi.server.tasks.work_on_bugs", "bodhi.server.tasks.fetch_test_cases"

CASES = [
    Case(
        "clean_old_composes",
        "FileNotFoundError",
        "terminal",
        "terminal",
        (10,),
        {"password": SECRET},
    ),
    Case("clean_old_composes", "FileNotFoundError", "terminal", "terminal", (), {"num_to_keep": 3}),
    Case(_BUGS, "BodhiException", "terminal", "terminal", ("FEDORA-2026-later", [])),
    Case(_CASES, "BodhiException", "terminal", "terminal", ("FEDORA-2026-later",)),
    Case(_CASES, "ExternalCallException", "transient", "exhausted", ("FEDORA-2026-first",)),
]


def _add_update(nvr, alias):
    from tests.base import create_update

    update = create_update(Session, [nvr])
    update.alias, update.status = alias, models.UpdateStatus.stable
    Session.commit()


def prepare():
    from tests.base import populate

    config.load_config()
    engine = initialize_db(config)
    models.Base.metadata.create_all(engine)
    populate(Session)
    _add_update("first-1.0-1.fc17", "FEDORA-2026-first")
    Session.remove()


def mend(service):
    _add_update("later-1.0-1.fc17", "FEDORA-2026-later")
    os.mkdir(config["compose_dir"])
    service.answers[""] = (200, {
        "query": {
            "general": {"generator": "MediaWiki 1.43.0", "lang": "en", "server": SERVICE},
            "extensions": [],
            "categorymembers": [],
        }
    })  # fmt: skip
