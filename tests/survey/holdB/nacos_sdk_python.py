"""nacos-sdk-python: the config service over gRPC. The answer is set where gRPC hands it over."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "lib"))
import holdb_stub as stub  # noqa: E402

LIBRARY = "nacos-sdk-python==3.2.0"


def run(action, answer=None, address=None, **config):
    import asyncio
    import logging
    import tempfile
    from v2.nacos import ClientConfigBuilder, NacosConfigService
    from v2.nacos.config.remote.config_grpc_client_proxy import ConfigGRPCClientProxy
    from v2.nacos.common.client_config import GRPCConfig

    logging.disable(logging.CRITICAL)

    class Rpc:
        async def request(self, request, timeout_millis):
            return await answer(request)

    async def fetch(self, task_id=0):
        return Rpc()

    async def main():
        address_ = address or "127.0.0.1:8848"
        builder = ClientConfigBuilder().server_address(address_).log_dir(tempfile.mkdtemp())
        if config.get("username"):
            builder = builder.username(config["username"]).password(config["password"])
        client_config = builder.grpc_config(GRPCConfig(grpc_timeout=500)).build()
        client_config.disable_use_config_cache = True
        client_config.cache_dir = tempfile.mkdtemp()
        patched = stub.mock.patch.object(ConfigGRPCClientProxy, "fetch_rpc_client", fetch) if answer else None
        if patched:
            patched.start()
        try:
            service = await NacosConfigService.create_config_service(client_config)
            await action(service)
        finally:
            if patched:
                patched.stop()

    try:
        asyncio.run(main())
    finally:
        logging.disable(logging.NOTSET)


async def get(service):
    from v2.nacos import ConfigParam

    return await service.get_config(ConfigParam(data_id="app.json", group="DEFAULT_GROUP"))


async def publish(service):
    from v2.nacos import ConfigParam

    return await service.publish_config(ConfigParam(data_id="app.json", group="DEFAULT_GROUP", content="{}"))


async def nameless(service):
    from v2.nacos import ConfigParam

    return await service.get_config(ConfigParam(data_id="", group="DEFAULT_GROUP"))


def says(code, message, kind="ConfigQueryResponse"):
    async def answer(request):
        from v2.nacos.transport.grpc_util import GrpcUtils

        values = {"resultCode": 500, "errorCode": code, "message": message}
        if kind == "ConfigQueryResponse":
            values["lastModified"] = 0
        return GrpcUtils.remote_type[kind](**values)

    return answer


async def deadline(request):
    import grpc
    from v2.nacos.transport.grpc_connection import GrpcConnection
    from v2.nacos.transport.grpcauto.nacos_grpc_service_pb2_grpc import RequestStub

    async with grpc.aio.insecure_channel(f"127.0.0.1:{stub.silent_port()}") as channel:
        return await GrpcConnection(None, "1", channel, RequestStub(channel), None).request(request, 300)


def cases():
    yield (
        "no server to connect to",
        lambda: run(get, address=f"127.0.0.1:{stub.closed_port()}"),
        "transient",
        "firm",
        "v2/nacos/common/nacos_exception.py CLIENT_DISCONNECT = -401; transport/rpc_client.py:312",
    )
    yield (
        "call exceeds its deadline",
        lambda: run(get, deadline),
        "transient",
        "firm",
        "v2/nacos/config/remote/config_grpc_client_proxy.py:130 wraps the AioRpcError DEADLINE_EXCEEDED",
    )
    yield (
        "server over its threshold (503)",
        lambda: run(
            publish, says(503, "More than client-side current limit threshold", "ConfigPublishResponse")
        ),
        "transient",
        "firm",
        "nacos_exception.py OVER_THRESHOLD = 503; config_grpc_client_proxy.py:120 raises the server's code",
    )
    yield (
        "config is being modified",
        lambda: run(get, says(400, "requested file is being modified, please try later.")),
        "transient",
        "firm",
        (
            "server: ConfigQueryResponse.CONFIG_QUERY_CONFLICT = 400, its text asks to try later;"
            " nacos_config_service.py:57"
        ),
    )
    yield (
        "no right to read (403)",
        lambda: run(get, says(403, "authorization failed!")),
        "terminal",
        "firm",
        "nacos_exception.py NO_RIGHT = 403",
    )
    yield (
        "wrong password of the login",
        lambda: run(
            get,
            says(0, ""),
            stub.answer(403, "unknown user!").replace("http://", ""),
            username="nacos",
            password="wrong",
        ),
        "terminal",
        "soft",
        "transport/auth_client.py:47 'get access token failed'; the text does not tell why",
    )
    yield (
        "data_id is empty",
        lambda: run(nameless, says(0, "")),
        "terminal",
        "firm",
        "nacos_config_service.py:41 INVALID_PARAM = 400 'data_id can not be empty'",
    )
