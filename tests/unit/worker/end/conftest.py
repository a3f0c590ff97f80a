"""Requests as the worker's parent makes them, with a desk that the test holds back."""

import pytest
from support.workers.parent_requests import charging_app, held_desk, request_maker


@pytest.fixture
def app():
    return charging_app()


@pytest.fixture
def desk(app):
    return held_desk(app)


@pytest.fixture
def make(app):
    return request_maker(app)
