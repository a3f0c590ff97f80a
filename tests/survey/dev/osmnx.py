import sys; sys.path.insert(0, "/tmp/survey/cases/dev_lib")
import devstub as S

LIBRARY = "osmnx==2.1.1"
import osmnx as ox, osmnx._http, osmnx._overpass, osmnx._nominatim
from collections import OrderedDict
ox.settings.use_cache = False; ox.settings.overpass_rate_limit = False; ox.settings.requests_timeout = 2
def overpass(url, timeout=2):
    ox.settings.overpass_url = url + "/api"; ox.settings.requests_timeout = timeout
    return ox._overpass._overpass_request(OrderedDict(data="[out:json];"))
def geocode(url):
    ox.settings.nominatim_url = url + "/"; import time; old = time.sleep; ox._nominatim.time.sleep = lambda s: old(0)
    try: return ox.geocode("Nowhere")
    finally: ox._nominatim.time.sleep = old
P = "_http.py _parse_response: ResponseStatusCodeError from JSONDecodeError; text 'host responded: status reason text'; "
def cases():
    yield "overpass 503", lambda: overpass(S.http(503, "<html>busy", ctype="text/html")), "transient", "firm", P + "503"
    yield "overpass 502", lambda: overpass(S.http(502, "<html>proxy", ctype="text/html")), "transient", "firm", P + "502"
    yield "overpass 400", lambda: overpass(S.http(400, "<html>parse error: ';' expected", ctype="text/html")), "terminal", "firm", P + "400"
    yield "overpass 403", lambda: overpass(S.http(403, "<html>forbidden", ctype="text/html")), "terminal", "firm", P + "403"
    yield "overpass timeout", lambda: overpass(S.silent(), 0.3), "transient", "firm", "requests ReadTimeout"
    yield "overpass refused", lambda: overpass(S.refused()), "transient", "firm", "requests ConnectionError"
    yield "geocode finds nothing", lambda: geocode(S.http(200, "[]")), "terminal", "firm", "geocoder.py InsufficientResponseError: Nominatim could not geocode query"
