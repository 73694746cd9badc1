"""Requests that schemathesis makes from the OpenAPI description, good and bad, against a real server."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from nescio import decide
from nescio.serve import Engine, Settings
from tests.serve import models

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
POSTS = ("/check", "/predict", "/score", "/explain")
ENDPOINTS = [*((path, "POST") for path in POSTS), ("/health", "GET"), ("/metrics", "GET")]


@pytest.fixture(scope="module", params=["pictures", "numbers", "texts"])
def schema(request):
    source = getattr(models, request.param)()
    policy = decide.quantile([0.1 * i for i in range(60)], 0.9, about={"score": "entropy"})
    settings = Settings(port=0, max_body=100_000, max_inputs=16, timeout=300.0)  # also on a machine that has much to do
    guard = None if request.param == "texts" else models.guard(source)
    with models.served(Engine(source, ["entropy"], policy=policy, guard=guard), settings) as client:
        yield schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")


def tried(schema, path, method, count):
    """So many requests to one endpoint, and the statuses that came."""
    schema.config.generation.update(modes=list(schemathesis.GenerationMode))
    statuses = []

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(case=schema[path][method].as_strategy())
    def one(case):
        response = case.call(timeout=400)
        statuses.append(response.status_code)
        case.validate_response(response, checks=CHECKS)

    one()
    return statuses


@pytest.mark.parametrize(("path", "method"), ENDPOINTS)
def test_every_answer_is_one_that_is_described(schema, path, method):
    assert max(tried(schema, path, method, 3 if path == "/explain" else 8)) < 500


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), ENDPOINTS)
def test_every_answer_is_one_that_is_described_for_many_requests(schema, path, method):
    assert max(tried(schema, path, method, 200)) < 500
