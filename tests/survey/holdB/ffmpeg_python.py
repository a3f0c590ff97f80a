"""ffmpeg-python runs the program ffmpeg and raises ffmpeg.Error for every non-zero exit code.

The machine has no ffmpeg: a small shell script stands for it. It writes to stderr what ffmpeg writes,
and it exits as ffmpeg does.
"""

import os
import shlex
import tempfile

LIBRARY = "ffmpeg-python==0.2.0"


def program(stderr, code=1):
    path = os.path.join(tempfile.mkdtemp(), "ffmpeg")
    with open(path, "w") as f:
        f.write("#!/bin/sh\nprintf '%s\\n' " + shlex.quote(stderr) + " >&2\nexit " + str(code) + "\n")
    os.chmod(path, 0o755)
    return path


def run(source, stderr, code=1):
    import ffmpeg

    (
        ffmpeg.input(source)
        .output("out.mp4")
        .run(cmd=program(stderr, code), capture_stdout=True, capture_stderr=True)
    )


def probe(source, stderr, code=1):
    import ffmpeg

    ffmpeg.probe(source, cmd=program(stderr, code))


def cases():
    yield (
        "input file is missing",
        lambda: run("in.mp4", "in.mp4: No such file or directory"),
        "terminal",
        "firm",
        "ffmpeg/_run.py:325 raise Error; ffmpeg prints AVERROR(ENOENT) for a missing input",
    )
    yield (
        "input is no video",
        lambda: probe("in.txt", "in.txt: Invalid data found when processing input"),
        "terminal",
        "firm",
        "ffmpeg/_probe.py:23 raise Error; AVERROR_INVALIDDATA: the data of the input is invalid",
    )
    yield (
        "web server refuses the URL with 403",
        lambda: run(
            "https://example.com/a.mp4",
            "[https @ 0x55d0c0] HTTP error 403 Forbidden\n"
            "https://example.com/a.mp4: Server returned 403 Forbidden (access denied)",
            8,
        ),
        "terminal",
        "firm",
        "ffmpeg/_run.py:325; libavutil AVERROR_HTTP_FORBIDDEN",
    )
    yield (
        "connection to the stream refused",
        lambda: probe(
            "rtmp://127.0.0.1/live",
            "[tcp @ 0x55d0c0] Connection to tcp://127.0.0.1:1935 failed: "
            "Connection refused\nrtmp://127.0.0.1/live: Connection refused",
        ),
        "transient",
        "firm",
        "ffmpeg/_probe.py:23; ffmpeg's text of ECONNREFUSED, stderr kept in Error.stderr",
    )
    yield (
        "connection to the stream timed out",
        lambda: run(
            "tcp://192.0.2.1:9000",
            "[tcp @ 0x55d0c0] Connection to tcp://192.0.2.1:9000 failed: "
            "Connection timed out\ntcp://192.0.2.1:9000: Connection timed out",
        ),
        "transient",
        "firm",
        "ffmpeg/_run.py:325; ffmpeg's text of ETIMEDOUT, stderr kept in Error.stderr",
    )
    yield (
        "web server of the source answers 503",
        lambda: run(
            "https://example.com/a.mp4",
            "[https @ 0x55d0c0] HTTP error 503 Service Unavailable\n"
            "https://example.com/a.mp4: Server returned 5XX Server Error reply",
            8,
        ),
        "transient",
        "firm",
        "ffmpeg/_run.py:325; libavutil AVERROR_HTTP_SERVER_ERROR, the text names 503",
    )
    yield (
        "program is not installed",
        lambda: __import__("ffmpeg").probe("a.mp4", cmd="/nonexistent/ffprobe"),
        "terminal",
        "firm",
        "ffmpeg/_probe.py:20 subprocess.Popen; README: FileNotFoundError if ffmpeg is not installed",
    )
