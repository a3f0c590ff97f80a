"""Candidates: packages of the 15,000 most downloaded that talk to another system, by their metadata."""
import csv, io, json, re, subprocess, sys, concurrent.futures as cf, urllib.request

text=open("top-pypi-packages.csv").read()  # hugovk/top-pypi-packages, April 2026
rows=list(csv.DictReader(io.StringIO(text)))
names=[r["project"] for r in rows]
NET=re.compile(r"^(requests|httpx|aiohttp|urllib3|grpcio|grpclib|websockets|websocket-client|httplib2|pycurl|paramiko|asyncssh|zeep|pyzmq|h2|niquests|hishel|treq|tornado|requests-oauthlib|authlib|pyserial|thrift|msgpack-rpc.*|aiohttp-retry|httpcore|simple-websocket)\b",re.I)
WORDS=re.compile(r"\b(client|driver|sdk|api wrapper|wrapper for the|connector|bindings? for|interface to)\b",re.I)
def meta(n):
    for _ in range(3):
        try:
            with urllib.request.urlopen(f"https://pypi.org/pypi/{n}/json",timeout=20) as r:
                i=json.load(r)
            i2=i["info"]
            whl=[u for u in i["urls"] if u["packagetype"]=="bdist_wheel" and ("none-any" in u["filename"] or "x86_64" in u["filename"] and "manylinux" in u["filename"] and ("cp311" in u["filename"] or "abi3" in u["filename"]))]
            sd=[u for u in i["urls"] if u["packagetype"]=="sdist"]
            f=(whl or sd or [None])[0]
            return n,dict(requires=i2.get("requires_dist") or [],summary=i2.get("summary") or "",file=f and dict(url=f["url"],size=f["size"],name=f["filename"]))
        except Exception as e: err=e
    return n,None
out={}
with cf.ThreadPoolExecutor(16) as ex:
    for n,m in ex.map(meta,names):
        if m: out[n]=m
json.dump(out,open("/tmp/survey/meta.json","w"))
print(len(out))
