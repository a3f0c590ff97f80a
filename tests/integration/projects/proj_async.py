"""Tasks that are coroutine functions, for a pool that awaits them."""

import asyncio

import celery_aio_pool

assert celery_aio_pool.patch_celery_tracer()

from proj import FIXED, app, count, say  # noqa: E402

from celery_dlq import DLQTask  # noqa: E402


@app.task(base=DLQTask, bind=True, name="proj.waits_async")
async def waits_async(self, x):
    await asyncio.sleep(0.01)
    say("ran", f"{self.request.id} {self.dlq.attempt}")
    return x


@app.task(base=DLQTask, name="proj.terminal_async")
async def terminal_async(x):
    await asyncio.sleep(0.01)
    if not FIXED.exists():
        raise ValueError(f"bad currency {x}")
    return x


@app.task(base=DLQTask, name="proj.exhausted_async", acks_late=True)
async def exhausted_async():
    count("exhausted_async")
    await asyncio.sleep(0.01)
    raise ConnectionError("the bank is down")


@app.task(base=DLQTask, bind=True, name="proj.asks_async", max_retries=1)
async def asks_async(self):
    count("asks_async")
    await asyncio.sleep(0.01)
    raise self.retry(exc=LookupError("not there yet"), countdown=0)
