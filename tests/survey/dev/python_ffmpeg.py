import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "python-ffmpeg==2.0.12"
from ffmpeg import FFmpegError
def a(text):
    def f(): raise FFmpegError.create(message=text, arguments=["ffmpeg", "-i", "x", "y"])     # as ffmpeg.py execute raises it with the last line of stderr
    return f
C = "errors.py FFmpegError.create, called by ffmpeg.py execute with the last line of ffmpeg's stderr: "
def cases():
    yield "no such file", a("x: No such file or directory"), "terminal", "firm", C + "FFmpegFileNotFound"
    yield "option not found", a("Unrecognized option 'foo'."), "terminal", "firm", C + "FFmpegInvalidCommand"
    yield "unknown encoder", a("Unknown encoder 'foo'"), "terminal", "firm", C + "FFmpegUnsupportedCodec"
    yield "invalid data", a("x: Invalid data found when processing input"), "terminal", "firm", C + "FFmpegError"
    yield "input url: connection refused", a("tcp://127.0.0.1:9: Connection refused"), "transient", "firm", C + "FFmpegError of ECONNREFUSED"
    yield "input url: timed out", a("rtsp://cam/1: Connection timed out"), "transient", "firm", C + "FFmpegError of ETIMEDOUT"
    yield "input url: 503", a("https://x/v.m3u8: Server returned 5XX Server Error reply"), "transient", "soft", C + "FFmpegError, AVERROR_HTTP_SERVER_ERROR"
    yield "input url: 404", a("https://x/v.m3u8: Server returned 404 Not Found"), "terminal", "firm", C + "FFmpegError, AVERROR_HTTP_NOT_FOUND"
