import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "ecs-deploy==1.17.0"
import botocore.session
from ecs_deploy.ecs import EcsClient, EcsAction, RunAction, ScaleAction, EcsTaskDefinition
from botocore.config import Config
import boto3
def client(url, key="a"):
    c = EcsClient(access_key_id=key, secret_access_key="b", region="us-east-1")
    c.boto = boto3.session.Session(aws_access_key_id=key, aws_secret_access_key="b", region_name="us-east-1").client("ecs", endpoint_url=url, config=Config(retries={"total_max_attempts": 1}, connect_timeout=1, read_timeout=0.5))
    return c
import json
def err(status, code, msg="m"): return S.http(status, json.dumps({"__type": code, "message": msg}), ctype="application/x-amz-json-1.1")
def service(url): return EcsAction(client(url), "cluster", "service").get_service()
def cases():
    yield "throttled", lambda: EcsAction(client(err(400, "ThrottlingException", "Rate exceeded")), "c", "s"), "transient", "firm", "ecs.py: EcsConnectionError(str(ClientError)) of ThrottlingException; botocore retries it"
    yield "server exception 503", lambda: EcsAction(client(err(503, "ServiceUnavailable", "Service Unavailable")), "c", "s"), "transient", "firm", "ecs.py: EcsConnectionError(str(ClientError)), 503"
    yield "access denied", lambda: EcsAction(client(err(400, "AccessDeniedException", "User is not authorized")), "c", "s"), "terminal", "firm", "ecs.py: EcsConnectionError(str(ClientError))"
    yield "cluster not found", lambda: EcsAction(client(err(400, "ClusterNotFoundException", "Cluster not found.")), "c", "s"), "terminal", "firm", "ecs.py: EcsConnectionError(str(ClientError))"
    yield "service not found", lambda: EcsAction(client(S.http(200, json.dumps({"services": [], "failures": []}))), "c", "s"), "terminal", "firm", "ecs.py: EcsConnectionError 'Service not found'"
    yield "refused", lambda: EcsAction(client(S.refused()), "c", "s"), "transient", "firm", "botocore EndpointConnectionError"
    yield "unknown task definition", lambda: client(err(400, "ClientException", "Unable to describe task definition.")).describe_task_definition("x"), "terminal", "firm", "ecs.py UnknownTaskDefinitionError"
    yield "task definition throttled", lambda: client(err(400, "ThrottlingException", "Rate exceeded")).describe_task_definition("x"), "transient", "soft", "ecs.py UnknownTaskDefinitionError raised while handling a ClientError of ThrottlingException"
