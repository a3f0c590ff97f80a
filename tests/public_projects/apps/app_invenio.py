"""Invenio's files: Flask, Flask-CeleryExt's task class that runs in an app context, groups, SQLAlchemy."""

import hashlib
import uuid
from pathlib import Path

from cases import SECRET, Case, set_up
from flask import Flask
from flask_celeryext import FlaskCeleryExt
from flask_celeryext.app import AppContextTask, create_celery_app
from invenio_db import InvenioDB, db
from invenio_files_rest import InvenioFilesREST
from invenio_files_rest import tasks as _tasks  # noqa: F401
from invenio_files_rest.models import FileInstance, Location

from celery_dlq import DLQTask


class ContextTask(DLQTask, AppContextTask):
    """A task in an app context, with dead letters."""

    abstract = True


def _create_celery(flask_app):
    celery = create_celery_app(flask_app)
    celery.Task = ContextTask
    return celery


flask_app = Flask("files")
flask_app.config.update(
    SQLALCHEMY_DATABASE_URI=f"sqlite:///{Path.cwd()}/files.sqlite3",
    SECRET_KEY="of-a-test",
    CELERY_ACCEPT_CONTENT=["json"],
    DB_VERSIONING=False,
)
InvenioDB(flask_app, entry_point_group=None)
InvenioFilesREST(flask_app)
app = FlaskCeleryExt(flask_app, create_celery_app=_create_celery).celery
set_up(app)
flask_app.app_context().push()

_CONTENT = b"the content"
_IDS = {
    name: str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
    for name in ("unknown", "on disk", "moved", "removed")
}
_FILES = Path.cwd() / "files"


def _case(name, exception, *args, **kwargs):
    return Case(f"invenio_files_rest.tasks.{name}", exception, "terminal", "terminal", args, kwargs)


CASES = [
    _case("verify_checksum", "AttributeError", _IDS["unknown"]),
    _case("verify_checksum", "FileNotFoundError", _IDS["on disk"]),
    _case("migrate_file", "AttributeError", _IDS["moved"], "archive"),
    _case("remove_file_data", "AttributeError", _IDS["removed"]),
    _case(
        "schedule_checksum_verification", "ImportStringError",
        batch_interval={"hours": 1}, max_count=1, files_query="later.no_files",
        checksum_kwargs={"api_key": SECRET},
    ),
]  # fmt: skip


def _add(name):
    checksum = f"md5:{hashlib.md5(_CONTENT).hexdigest()}"
    db.session.add(
        FileInstance(
            id=uuid.UUID(_IDS[name]), uri=f"{_FILES}/{name}/data", size=len(_CONTENT), checksum=checksum,
            storage_class="S", readable=True, writable=True,
        )
    )  # fmt: skip
    db.session.commit()


def prepare():
    db.create_all()
    _add("on disk")
    _add("moved")


def mend(service):
    (Path.cwd() / "archive").mkdir()
    _add("unknown")
    _add("removed")
    for name in _IDS:
        (_FILES / name).mkdir(parents=True)
        (_FILES / name / "data").write_bytes(_CONTENT)
    db.session.add(Location(name="archive", uri=f"{Path.cwd()}/archive", default=True))
    db.session.commit()
    Path("later.py").write_text(
        "from invenio_files_rest.models import FileInstance\n"
        "def no_files():\n"
        "    return FileInstance.query.filter(FileInstance.size < 0)\n"
    )
