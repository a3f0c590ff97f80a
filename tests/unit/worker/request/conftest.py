"""Requests as the worker's parent makes them, with a recorder that the test holds back."""

import pytest
from support.parent_requests import charging_app, held_recorder, request_maker


@pytest.fixture
def app():
    return charging_app()


@pytest.fixture
def recorder(app):
    return held_recorder(app)


@pytest.fixture
def make(app):
    return request_maker(app)
