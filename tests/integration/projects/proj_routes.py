"""The app of ``proj`` with routes: one for a task, one for messages that no task takes."""

from proj import app, say

from celery_dlq import Route


def tell(event):
    say("told", f"{event.kind.value}:{event.route}:{event.owner}:{event.value.task}")


app.conf.dlq_routes = [
    Route(
        "payments",
        task="proj.terminal",
        exception="ValueError",
        owner="team-payments",
        tags=("payments", "money"),
        hooks=(tell,),
    ),
    Route("strangers", reason="unknown_task", owner="platform"),
    Route("rest", task="proj.*"),
]
