"""Cloud providers, and gRPC."""

from celery_dlq.classify.builtin.cloud import aws, azure, google, grpc

ROWS = (*grpc.ROWS, *aws.ROWS, *google.ROWS, *azure.ROWS)
